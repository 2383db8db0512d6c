package redisengine

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// quickAttempt bounds a call in the caller's own goroutine: until it ends,
	// a cancellation of the context has no effect.
	quickAttempt = 250 * time.Millisecond

	// quickReply is the longest time that the server's last answer may have
	// taken if the next call is to run in the caller's own goroutine.
	quickReply = 20 * time.Millisecond
)

// caller makes the calls of an engine's sessions, and ends them with their
// contexts.
type caller struct {
	*topology
	replicas int         // Options.Replicas
	readSize int         // how many permits and tickets State reads in one step
	quick    atomic.Bool // the last answer came within quickReply
}

// run runs the script with args, which w made.
//
// The caller's own goroutine makes the call if possible: another goroutine would
// cost a switch, and perhaps the wake-up of a thread. But go-redis ends a call
// only at a deadline, not at a cancellation. So the call in the caller's
// goroutine takes at most quickAttempt, and is made only while the server
// answers quickly. All other calls run in a goroutine that is abandoned when the
// context ends.
func (c *caller) run(ctx context.Context, now time.Time, w *words, args []any) (string, error) {
	deadline, _ := ctx.Deadline()
	soon := c.wireDeadlines && !deadline.IsZero() && !deadline.After(now.Add(quickAttempt))
	if !soon && ctx.Done() != nil {
		if !c.wireDeadlines || !c.quick.Load() {
			return c.runCancellable(ctx, now, w, args)
		}
		ctx = &earlyDeadline{ctx, now.Add(quickAttempt)}
	}
	text, err := runStep(ctx, c.rdb, args)
	c.setQuick(time.Since(now), err)
	return text, c.notSent(err)
}

// runCancellable is run with a goroutine for the call. It is a function of its own because its
// variables are allocated on the heap, also when run would not use them.
func (c *caller) runCancellable(ctx context.Context, now time.Time, w *words, args []any) (string, error) {
	w.detach() // the goroutine may still use args after this call has returned
	text, err := cancellable(ctx, func() (string, error) { return runStep(ctx, c.rdb, args) })
	c.setQuick(time.Since(now), err)
	return text, err
}

func (c *caller) setQuick(d time.Duration, err error) {
	if quick := d < quickReply && err == nil; quick != c.quick.Load() {
		c.quick.Store(quick)
	}
}

// earlyDeadline is a context that reports an earlier deadline than its own.
// go-redis sets the connection's deadline by it, so it needs no timer.
type earlyDeadline struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (s *earlyDeadline) Deadline() (time.Time, bool) { return s.deadline, true }

// cancellable runs f in a goroutine. If ctx ends first, it returns ctx's error
// and lets f run on.
func cancellable[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
