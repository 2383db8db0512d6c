package redisengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/protocol"
)

// ErrTooFewReplicas means that fewer than Options.Replicas replicas confirmed a
// call in time. The master has carried it out, and the replicas may still do so.
// As after a lost reply, the outcome is unknown.
var ErrTooFewReplicas = errors.New("redisengine: too few replicas have it")

// longestWait bounds the wait for replicas. The wait must end before the call
// does: otherwise the reply with the number of replicas would come too late.
const longestWait = time.Second

// wantsReplicas reports whether a call could have a result that replicas must
// confirm. A release needs no confirmation: if a failover forgets it, the permit
// is free at the end of its lease.
func wantsReplicas(c protocol.Call) bool {
	return slices.ContainsFunc(c.Requests, func(r protocol.Request) bool { return r.Kind != protocol.Release && r.Kind != protocol.Remove })
}

// needsReplicas reports whether a call had such a result.
func needsReplicas(c protocol.Call, answers []protocol.Answer) bool {
	for i, r := range c.Requests {
		switch answers[i].Status {
		case protocol.Granted:
			return true
		case protocol.Done:
			if r.Kind != protocol.Release && r.Kind != protocol.Remove {
				return true
			}
		}
	}
	return false
}

// unsure marks the grants in notifications as unsure. They were made in a step
// of another client, and that client did not wait until replicas confirmed
// them.
func unsure(notify func(protocol.Notification)) func(protocol.Notification) {
	return func(n protocol.Notification) {
		markUnsure(n.Grants)
		notify(n)
	}
}

func markUnsure(grants []protocol.Grant) {
	for i := range grants {
		grants[i].Unsure = true
	}
}

// replicated runs the script with args, which w made, and returns how many
// replicas confirmed it.
//
// WAIT counts replicas that have the last write of its own connection, so the
// script and WAIT use the same one. Each step that grants or renews writes
// something, even if nothing changes. So WAIT covers all earlier writes, too.
func (c *caller) replicated(ctx context.Context, w *words, key string, args []any) (text string, on int, err error) {
	w.detach() // the goroutine may still use args after this call has returned
	type outcome struct {
		text string
		on   int
	}
	o, err := cancellable(ctx, func() (outcome, error) {
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
			c.reload(ctx) // the slot may have moved; go-redis reads the map in the background
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

// waitTime is how long the server waits for replicas: half of the time that the
// call has, at most longestWait. It is never 0, because WAIT takes 0 as no
// limit.
func (c *caller) waitTime(ctx context.Context) time.Duration {
	most := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)/2)
	}
	if c.readTimeout > 0 {
		most = min(most, c.readTimeout/2)
	}
	return max(most, time.Millisecond)
}
