package loop

import (
	"context"
	"errors"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/watchdog"
)

// Repeat makes a call that only reads. It repeats the call after temporary failures, until
// client.Patience has passed or ctx ends. An engine that says at once that it is busy lives, and the
// patience begins anew.
func Repeat(ctx context.Context, call func() error) error {
	end := time.Now().Add(client.Patience)
	for failures := 1; ; failures++ {
		began := time.Now()
		err := call()
		failure, pause := (*engine.Error)(nil), client.Pause(failures)
		if errors.As(err, &failure) && failure.Busy && time.Since(began) < client.ProbeTime {
			end = time.Now().Add(client.Patience)
		}
		if failure == nil || !failure.Temporary || time.Until(end) < pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// State reads the state of the semaphore. If ctx has no deadline, it waits until the engine has given no
// sign of life for client.Patience.
func (l *Loop) State(ctx context.Context) (st engine.State, err error) {
	bounded := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		bounded, cancel = l.whileAlive(ctx)
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

// whileAlive returns a context that ends with ctx, or when the engine has given no sign of life for
// client.Patience.
func (l *Loop) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.living == nil {
		return context.WithTimeout(ctx, client.Patience)
	}
	ctx, cancel := context.WithCancel(ctx)
	var probe func()
	probe = func() {
		life, end := watchdog.Within(ctx, client.ProbeTime)
		defer end()
		if l.living.Alive(life) {
			time.AfterFunc(client.Patience-client.ProbeTime, probe)
		} else {
			cancel()
		}
	}
	first := time.AfterFunc(client.Patience-client.ProbeTime, probe)
	return ctx, func() { cancel(); first.Stop() }
}
