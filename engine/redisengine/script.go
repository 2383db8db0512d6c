package redisengine

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

//go:embed lua/clock.lua
var clockLua string

//go:embed lua/step.lua
var stepLua string

//go:embed lua/state.lua
var stateLua string

var (
	stepSource  = clockLua + stepLua
	stepHash    = redis.NewScript(stepSource).Hash()
	stateScript = redis.NewScript(clockLua + stateLua)
)

// op is one operation of a step.
type op struct {
	kind    string
	id      string
	limit   int
	pin     bool
	lease   time.Duration
	ticket  time.Duration
	arrival int64
	flags   string
}

// The operations of step.lua.
const (
	acquireOp = "A"
	renewOp   = "N"
	releaseOp = "R"
	revokeOp  = "K"
	limitOp   = "L"
)

// found is the status of a release or revocation that had an effect.
const found = sema.Granted

func askOp(r sema.Request) op {
	flags := ""
	if r.Wait {
		flags += "w"
	}
	if r.Unfair {
		flags += "u"
	}
	if r.Strict {
		flags += "x"
	}
	return op{kind: acquireOp, id: r.ID, limit: r.Limit, lease: r.Lease, ticket: r.Ticket, arrival: r.Arrival, flags: flags}
}

// words appends the operation as step.lua reads it.
func (o op) words(args []any) []any {
	switch o.kind {
	case acquireOp:
		return append(args, o.kind, o.id, o.limit, o.lease.Microseconds(), o.ticket.Microseconds(), o.arrival, o.flags)
	case renewOp:
		return append(args, o.kind, o.id, o.lease.Microseconds())
	case limitOp:
		pin := "0"
		if o.pin {
			pin = "1"
		}
		return append(args, o.kind, o.limit, pin)
	}
	return append(args, o.kind, o.id)
}

// answers reads step.lua's reply to ops.
func answers(reply []any, ops []op) (list []sema.Answer, news string, err error) {
	at := 0
	next := func() int64 {
		if at >= len(reply) {
			err = fmt.Errorf("the script's reply ends after %d words", len(reply))
			return 0
		}
		v, ok := reply[at].(int64)
		if !ok {
			err = fmt.Errorf("the script's reply has %v as word %d", reply[at], at)
		}
		at++
		return v
	}
	limit := int(next())
	if at < len(reply) {
		news, _ = reply[at].(string)
		at++
	}
	list = make([]sema.Answer, len(ops))
	for i := range list {
		a := sema.Answer{Status: sema.Status(next()), Limit: limit, Slot: -1}
		if ops[i].kind == acquireOp || ops[i].kind == renewOp {
			switch a.Status {
			case sema.Granted:
				a.Token, a.Slot, a.Lease = next(), int(next()), micros(next())
			case sema.Queued:
				a.Arrival, a.Ahead, a.Ticket, a.Look = next(), int(next()), next(), micros(next())
			}
		}
		list[i] = a
	}
	return list, news, err
}

// onceCmd is a command that go-redis does not send again by itself: the
// combiner decides that, and remembers that it did.
type onceCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// runStep sends the step once: by its hash, and whole if the server does not
// know it.
func runStep(ctx context.Context, rdb redis.UniversalClient, keys []string, args []any) ([]any, error) {
	for _, by := range [...]struct{ command, script string }{{"evalsha", stepHash}, {"eval", stepSource}} {
		words := make([]any, 0, 3+len(keys)+len(args))
		words = append(words, by.command, by.script, strconv.Itoa(len(keys)))
		for _, k := range keys {
			words = append(words, k)
		}
		cmd := onceCmd{redis.NewCmd(ctx, append(words, args...)...)}
		err := rdb.Process(ctx, cmd)
		if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			continue
		}
		if err != nil {
			return nil, err
		}
		return cmd.Slice()
	}
	return nil, fmt.Errorf("NOSCRIPT even for EVAL")
}
