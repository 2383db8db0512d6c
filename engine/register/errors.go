package register

import (
	"context"
	"errors"
	"time"

	"sema/engine"
)

// fail makes the typed error of a failed operation. reads says that it changes nothing.
func fail(op, name string, err error, reads bool) *engine.Error {
	out := engine.Error{Temporary: true, Err: err}
	if known := (*engine.Error)(nil); errors.As(err, &known) {
		out = *known
	}
	out.Op, out.Name, out.NotExecuted = op, name, out.NotExecuted || reads
	return &out
}

func closed(op, name string) error {
	return &engine.Error{Op: op, Name: name, NotExecuted: true, Err: engine.ErrClosed}
}

// apart reads something from the store in its own time, and leaves that behind when
// ctx ends: the clients of many databases give up a connection if they are interrupted.
func apart[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
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

// within waits for something for so long at the most, and reports whether it happened.
func within(d time.Duration, happens <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-happens:
		return true
	case <-timer.C:
		return false
	}
}
