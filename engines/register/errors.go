package register

import (
	"context"
	"errors"
	"net"
	"time"

	"sema/engine"
)

// fail makes the *engine.Error of a failed operation. reads says that the operation only reads.
func fail(op, name string, err error, reads bool) *engine.Error {
	out := engine.Error{Temporary: true, Err: err}
	if known := (*engine.Error)(nil); errors.As(err, &known) {
		out = *known
	} else if errors.Is(err, context.DeadlineExceeded) {
		out.Hint = "see whether the store answers, and whether its pool of connections is in use"
	}
	out.Op, out.Name, out.NotExecuted = op, name, out.NotExecuted || reads
	late := net.Error(nil) // such as that of a context
	out.Busy = out.Busy || errors.As(out.Err, &late) && late.Timeout()
	return &out
}

func closed(op, name string) error {
	return &engine.Error{Op: op, Name: name, NotExecuted: true, Err: engine.ErrClosed}
}

// readDetached calls f in a goroutine with its own time limit and returns when ctx ends,
// while f continues: many database clients close a connection if a read is interrupted.
func readDetached[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		own, cancel := context.WithTimeout(context.Background(), storeTime)
		defer cancel()
		value, err := f(own)
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

// waitFor waits until done is closed, for at most d.
func waitFor(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
