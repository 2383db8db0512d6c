package loop

import (
	"context"
	"errors"
	"time"

	"sema/engine"
	"sema/internal/client"
)

// Repeat makes a call that only reads. It repeats the call after temporary failures, until
// client.Patience has passed or ctx ends.
func Repeat(ctx context.Context, call func() error) error {
	end := time.Now().Add(client.Patience)
	for failures := 1; ; failures++ {
		err := call()
		failure, pause := (*engine.Error)(nil), client.Pause(failures)
		if !errors.As(err, &failure) || !failure.Temporary || time.Until(end) < pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// State reads the state of the semaphore. If ctx has no deadline, it waits for the engine
// for at most client.Patience.
func (l *Loop) State(ctx context.Context) (st engine.State, err error) {
	bounded := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, client.Patience)
		defer cancel()
	}
	err = Repeat(bounded, func() (err error) {
		st, err = l.session.State(bounded)
		return err
	})
	switch {
	case err == nil:
		return st, nil
	case ctx.Err() != nil:
		return st, Ended(l.Named("state", err), ctx.Err())
	case bounded.Err() != nil:
		l.Lock()
		defer l.Unlock()
		return st, l.Silent("state", client.Patience)
	}
	return st, l.Named("state", err)
}
