package redisengine

import (
	"context"
	"sync/atomic"

	"sema/internal/protocol"
)

// caller makes the calls of an engine's sessions, and ends them with their
// contexts.
type caller struct {
	topology
	replicas int // Options.Replicas
	readSize int // how many permits and tickets State reads in one step
	checked  atomic.Bool
}

// run runs the script with args, which w made.
//
// The caller's own goroutine makes the call if possible: another goroutine would
// cost a switch, and perhaps the wake-up of a thread. But go-redis ends a call
// only at a deadline, not at a cancellation. So a call with another context than
// a protocol.Timed runs in a goroutine that is abandoned when the context ends.
func (c *caller) run(ctx context.Context, w *words, args []any) (string, error) {
	if c.inline(ctx) {
		text, err := runStep(ctx, c.rdb, args, nil)
		return text, c.notSent(err)
	}
	return c.runCancellable(ctx, w, args)
}

// inline reports whether a call may run in the caller's own goroutine.
func (c *caller) inline(ctx context.Context) bool {
	_, timed := ctx.(*protocol.Timed)
	return timed && c.wireDeadlines || ctx.Done() == nil
}

// runCancellable is run with a goroutine for the call. It is a function of its own because its
// variables are allocated on the heap, also when run would not use them.
func (c *caller) runCancellable(ctx context.Context, w *words, args []any) (string, error) {
	w.detach() // the goroutine may still use args after this call has returned
	return cancellable(ctx, func() (string, error) {
		text, err := runStep(ctx, c.rdb, args, nil)
		return text, c.notSent(err)
	})
}

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
