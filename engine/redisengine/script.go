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

//go:embed lua/layout.lua
var layoutLua string

//go:embed lua/queue.lua
var queueLua string

//go:embed lua/step.lua
var stepLua string

//go:embed lua/state.lua
var stateLua string

var (
	stepSource  = clockLua + layoutLua + queueLua + stepLua
	stepHash    = redis.NewScript(stepSource).Hash()
	stateScript = redis.NewScript(clockLua + layoutLua + stateLua)
)

// The operations of step.lua.
const (
	acquireOp = 'A'
	renewOp   = 'N'
	releaseOp = 'R'
	revokeOp  = 'K'
	limitOp   = 'L'
)

// op is one operation of a step.
type op struct {
	terms
	id      string
	arrival int64
	pin     bool // of a limitOp

	call   *call       // to be told; see combine.go
	answer sema.Answer // in the end
}

// terms are what operations must have in common to be a run of step.lua.
type terms struct {
	kind   byte
	flags  string // as step.lua has them
	limit  int
	weight int
	lease  time.Duration
	ticket time.Duration
	placed bool // asked before, and queued then
}

// found is the status of a release or revocation that had an effect.
const found = sema.Granted

// flagsOf and needsOf are all combinations of step.lua's letters.
var flagsOf, needsOf = combinations("wuxsl"), combinations("wslfh")

func combinations(letters string) []string {
	table := make([]string, 1<<len(letters))
	for i := range table {
		for bit, letter := range letters {
			if i&(1<<bit) != 0 {
				table[i] += string(letter)
			}
		}
	}
	return table
}

// shape reads the end of an id, client-number[s][l]-weight.
func shape(id string) (weight int, slot, listed bool) {
	dash := strings.LastIndexByte(id, '-')
	weight, _ = strconv.Atoi(id[dash+1:])
	rest := id[:max(dash, 0)]
	if rest, listed = strings.CutSuffix(rest, "l"); rest != "" {
		slot = rest[len(rest)-1] == 's'
	}
	return weight, slot, listed
}

func bit(on bool, n int) int {
	if on {
		return 1 << n
	}
	return 0
}

func askOp(r sema.Request) op {
	_, slot, listed := shape(r.ID)
	return op{id: r.ID, arrival: r.Arrival, terms: terms{
		kind: acquireOp, limit: r.Limit, weight: r.Weight, lease: r.Lease, ticket: r.Ticket, placed: r.Arrival > 0,
		flags: flagsOf[bit(r.Wait, 0)|bit(r.Unfair, 1)|bit(r.Strict, 2)|bit(slot, 3)|bit(listed, 4)],
	}}
}

// idOp is a renewal, release or revocation.
func idOp(kind byte, id string, lease time.Duration) op {
	weight, slot, listed := shape(id)
	return op{id: id, terms: terms{kind: kind, weight: weight, lease: lease, flags: flagsOf[bit(slot, 3)|bit(listed, 4)]}}
}

// program appends what the operations need, the words that describe the
// client, if any, and the operations, as step.lua reads them: neighbours with
// the same terms as one run. Strings go as
// pointers, which saves making interfaces of them; so ops must stay as they are
// until the words have been sent.
func program(words []any, ops []*op, describe ...any) []any {
	needs, put := 0, len(words)
	words = append(words, nil)
	words = append(words, describe...)
	for len(ops) > 0 {
		first, n := ops[0], 1
		for n < len(ops) && ops[n].terms == first.terms && first.kind != revokeOp && first.kind != limitOp {
			n++
		}
		needs |= bit(strings.Contains(first.flags, "w"), 0) | bit(strings.Contains(first.flags, "s"), 1) | bit(strings.Contains(first.flags, "l"), 2)
		needs |= bit(first.kind == renewOp || first.kind == releaseOp || first.kind == revokeOp, 3) | bit(first.kind == limitOp, 4)
		switch first.kind {
		case acquireOp:
			kind := "A"
			if first.placed {
				kind = "Q"
			}
			words = append(words, kind, first.limit, first.lease.Microseconds(), first.ticket.Microseconds(), first.weight, first.flags, n)
		case renewOp:
			words = append(words, "N", first.lease.Microseconds(), first.flags, n)
		case releaseOp:
			words = append(words, "R", first.weight, first.flags, n)
		case revokeOp:
			words = append(words, "K")
		case limitOp:
			words = append(words, "L", first.limit, strconv.Itoa(bit(first.pin, 0)))
		}
		for _, o := range ops[:n] {
			if o.kind != limitOp {
				words = append(words, &o.id)
			}
			if o.placed {
				words = append(words, &o.arrival)
			}
		}
		ops = ops[n:]
	}
	words[put] = needsOf[needs]
	return words
}

// readReply reads step.lua's reply into the operations' answers.
func readReply(reply []any, ops []*op) (news string, err error) {
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
	for len(ops) > 0 && err == nil {
		a := sema.Answer{Status: sema.Status(next()), Limit: limit, Slot: -1}
		n := int(next())
		if n < 1 || n > len(ops) {
			return "", fmt.Errorf("the script's reply has %d answers for %d operations", n, len(ops))
		}
		if kind := ops[0].kind; kind == acquireOp || kind == renewOp {
			switch a.Status {
			case sema.Granted:
				a.Token, a.Slot, a.Lease = next(), int(next()), micros(next())
			case sema.Queued:
				a.Arrival, a.Ahead, a.Ticket, a.Look = next(), int(next()), next(), micros(next())
			}
		}
		for _, o := range ops[:n] {
			o.answer = a
			if a.Token != 0 {
				a.Token++
			}
			if a.Status == sema.Queued {
				a.Arrival++
				a.Ahead++
			}
		}
		ops = ops[n:]
	}
	return news, err
}

// onceCmd is a command that go-redis does not send again by itself: the
// combiner decides that, and remembers that it did.
type onceCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// runStep sends the step once: by its hash, and whole if the server does not
// know it; only by its hash over a place that was taken. words are those of the
// whole command; the first two are filled in.
func runStep(p carrier, words []any, most time.Duration, taken bool) ([]any, error) {
	send := func(command, script string, process func(redis.Cmder, time.Duration)) ([]any, error) {
		words[0], words[1] = command, script
		cmd := onceCmd{redis.NewCmd(context.Background(), words...)}
		process(cmd, most)
		if err := cmd.Err(); err != nil {
			return nil, err
		}
		return cmd.Slice()
	}
	if taken {
		return send("evalsha", stepHash, p.direct)
	}
	reply, err := send("evalsha", stepHash, p.process)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return send("eval", stepSource, p.process)
	}
	return reply, err
}
