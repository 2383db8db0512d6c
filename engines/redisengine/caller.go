package redisengine

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// quickAttempt bounds a call that keeps its caller from heeding the
	// cancellation of its context.
	quickAttempt = 250 * time.Millisecond

	// quickReply is how soon a server must answer for callers to wait for its
	// reply in their own goroutines.
	quickReply = 20 * time.Millisecond
)

// caller makes the calls of an engine's sessions, and heeds their contexts.
type caller struct {
	*topology
	replicas int         // so many must have what counts
	part     int         // so many permits and tickets are read in one step
	quick    atomic.Bool // the server's last answer was
}

// run runs step with the words, which it made from w.
//
// The caller's own goroutine does it where it can: to wake another one, the
// runtime may have to wake a thread. go-redis heeds a deadline on the wire, but
// not a cancellation; so the goroutine's own call is a short one, and only while
// the server answers soon. All others are left behind when the context ends.
func (c *caller) run(ctx context.Context, now time.Time, w *words, args []any) (string, error) {
	deadline, _ := ctx.Deadline()
	soon := c.heeds && !deadline.IsZero() && !deadline.After(now.Add(quickAttempt))
	if !soon && ctx.Done() != nil {
		if !c.heeds || !c.quick.Load() {
			return c.runApart(ctx, now, w, args)
		}
		ctx = &short{ctx, now.Add(quickAttempt)}
	}
	text, err := runStep(ctx, c.rdb, args)
	c.took(time.Since(now), err)
	return text, c.notSent(err)
}

// runApart is run in a goroutine of its own. It stands alone because its variables would cost
// run memory.
func (c *caller) runApart(ctx context.Context, now time.Time, w *words, args []any) (string, error) {
	w.part() // with args
	text, err := apart(ctx, func() (string, error) { return runStep(ctx, c.rdb, args) })
	c.took(time.Since(now), err)
	return text, err
}

func (c *caller) took(d time.Duration, err error) {
	if quick := d < quickReply && err == nil; quick != c.quick.Load() {
		c.quick.Store(quick)
	}
}

// short is a context whose deadline, which is heeded on the wire, is earlier
// than its end. It needs no timer.
type short struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (s *short) Deadline() (time.Time, bool) { return s.deadline, true }

// apart runs f, and leaves it behind when ctx ends.
func apart[T any](ctx context.Context, f func() (T, error)) (T, error) {
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
