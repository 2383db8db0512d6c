package redisengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/engine"
)

// ErrTooFewReplicas says that fewer than Options.Replicas had a call in time. The
// master has carried it out, and the replicas may yet: what comes of it is as
// unknown as after a lost reply.
var ErrTooFewReplicas = errors.New("redisengine: too few replicas have it")

// longestWait bounds the wait for replicas. It must end before the call does, or
// nobody hears how many there were.
const longestWait = time.Second

// wantsReplicas reports whether a call may do what counts only on replicas. A
// release does not: should it be forgotten, the permit comes back with its lease.
func wantsReplicas(c engine.Call) bool {
	return slices.ContainsFunc(c.Requests, func(r engine.Request) bool { return r.Kind != engine.Release && r.Kind != engine.Remove })
}

// needsReplicas reports whether a call did.
func needsReplicas(c engine.Call, answers []engine.Answer) bool {
	for i, r := range c.Requests {
		switch answers[i].Status {
		case engine.Granted:
			return true
		case engine.Done:
			if r.Kind != engine.Release && r.Kind != engine.Remove {
				return true
			}
		}
	}
	return false
}

// unsure marks what notifications tell of grants. They were made in a step of
// another client, which does not wait for replicas on this one's behalf.
func unsure(notify func(engine.Notification)) func(engine.Notification) {
	return func(n engine.Notification) {
		markUnsure(n.Grants)
		notify(n)
	}
}

func markUnsure(grants []engine.Grant) {
	for i := range grants {
		grants[i].Unsure = true
	}
}

// replicated runs step with the words, which it made from w, and says how many
// replicas have it.
//
// WAIT is about what its connection has written, so both go over one. Each step
// that grants or renews writes something, even if nothing changes: so WAIT covers
// all earlier writes, too.
func (c *caller) replicated(ctx context.Context, w *words, key string, args []any) (text string, on int, err error) {
	w.part() // with args
	type outcome struct {
		text string
		on   int
	}
	o, err := apart(ctx, func() (outcome, error) {
		master, err := c.master(ctx, key)
		if err != nil {
			return outcome{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
		source, hash := step()
		text, on, err := c.sendAndWait(ctx, master, args, evalsha, hash)
		if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			text, on, err = c.sendAndWait(ctx, master, args, eval, source)
		}
		if err != nil {
			c.moved(ctx) // perhaps: the map is read again in the background
		}
		return outcome{text, on}, err
	})
	return o.text, o.on, err
}

func (c *caller) sendAndWait(ctx context.Context, master redis.Cmdable, words []any, command, script any) (string, int, error) {
	words[0], words[1] = command, script
	step := onceCmd{redis.NewStringCmd(ctx, words...)}
	wait := redis.NewIntCmd(ctx, "wait", c.replicas, c.waitTime(ctx).Milliseconds())
	pipe := master.Pipeline()
	_, _ = pipe.Process(ctx, step), pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // the commands have the errors
	text, err := step.Result()
	if err == nil {
		err = wait.Err()
	}
	return text, int(wait.Val()), err
}

// waitTime is how long the server waits for replicas: until half of the call's
// time is over. It is never 0, which would be for ever.
func (c *caller) waitTime(ctx context.Context) time.Duration {
	most := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)/2)
	}
	if c.patience > 0 {
		most = min(most, c.patience/2)
	}
	return max(most, time.Millisecond)
}
