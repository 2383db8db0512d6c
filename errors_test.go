package sema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
)

// wantOnly fails the test if err is of another class than the one wanted, or if it reads
// as an end of a context that is not the one wanted (nil: of none).
func wantOnly(t *testing.T, err, class, end error) {
	t.Helper()
	for _, c := range []error{sema.ErrBusy, sema.ErrEngine, sema.ErrClosed, sema.ErrNotFound, sema.ErrInUse, sema.ErrLost, sema.ErrReleased} {
		if errors.Is(err, c) != (c == class) {
			t.Errorf("%v: is %q: %v", err, c, c != class)
		}
	}
	for _, c := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, c) != (c == end) {
			t.Errorf("%v: is %q: %v", err, c, c != end)
		}
	}
	if failure, ok := errors.AsType[*engine.Error](err); ok && !failure.Temporary {
		t.Errorf("%v: the caller is not told that the same call may succeed soon", err)
	}
}

// The deadline of a driver is not that of the caller, also where the caller has none.
func TestADriversTimeoutIsNotTheCallers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		e.slow.Store(int64(time.Hour)) // the engine's calls end with their own deadlines
		wantOnly(t, p.Release(), sema.ErrEngine, nil)
		_, err := s.Acquire(t.Context())
		wantOnly(t, err, sema.ErrEngine, nil)
		wantOnly(t, operator(t, e).Pause(t.Context()), sema.ErrEngine, nil)
	})
}

// An engine that had not answered when the caller's context ended is away, and not busy.
func TestTheEndOfTheCallersContextIsSeen(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		o := operator(t, e)
		held := acquire(t, s)
		within := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		_, err := s.Acquire(within()) // others have the permit
		wantOnly(t, err, sema.ErrBusy, context.DeadlineExceeded)

		e.slow.Store(int64(time.Hour))
		_, err = s.Acquire(within())
		wantOnly(t, err, sema.ErrEngine, context.DeadlineExceeded)
		wantOnly(t, o.Pause(within()), sema.ErrEngine, context.DeadlineExceeded)
		wantOnly(t, held.Renew(within()), sema.ErrEngine, context.DeadlineExceeded)
		e.slow.Store(0)

		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Acquire(over)
		wantOnly(t, err, sema.ErrBusy, context.Canceled)
		wantOnly(t, o.Pause(over), sema.ErrEngine, context.Canceled)
		_, err = s.Resume(over, held.ID())
		wantOnly(t, err, sema.ErrEngine, context.Canceled)
	})
}

// Why a context ended is told, and is no class of the call's error.
func TestTheCauseOfAContextIsNoClass(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		fault := errors.New("the disk is full")
		weight := &sema.WeightError{Name: "y", Weight: 2, Limit: 1}
		for _, cause := range []error{fault, weight, sema.ErrRevoked, &engine.Error{Op: "state", Err: fault}} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			_, err := s.Acquire(ctx)
			wantOnly(t, err, sema.ErrBusy, context.Canceled)
			if errors.Is(err, cause) != (cause == fault) || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("%v: want the cause %v in it", err, cause)
			}
			if found, ok := errors.AsType[*sema.WeightError](err); ok {
				t.Errorf("%v reads as %v", err, found)
			}
		}
	})
}

// Do returns its function's error as it is, and a loss beside it, on one line.
func TestDoReturnsItsFunctionsError(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		inner := errors.New("inner")
		if err := s.Do(t.Context(), func(context.Context) error { return inner }); err != inner {
			t.Errorf("%v, want it as it is", err)
		}
		fails := func(f func(ctx context.Context) error) error {
			return s.Do(t.Context(), func(ctx context.Context) error {
				o := operator(t, e)
				st, err := o.State(t.Context())
				expect.OK(t, err)
				expect.OK(t, o.Revoke(t.Context(), st.Holders[0].ID))
				<-ctx.Done()
				return f(ctx)
			})
		}
		err := fails(func(context.Context) error { return inner })
		if !errors.Is(err, sema.ErrRevoked) || !errors.Is(err, inner) || err.Error() != `sema: permit lost: revoked by an operator: "x"; inner` {
			t.Errorf("%q", err)
		}
		err = fails(func(ctx context.Context) error { return context.Cause(ctx) })
		if !errors.Is(err, sema.ErrRevoked) || err.Error() != `sema: permit lost: revoked by an operator: "x"` {
			t.Errorf("%q", err)
		}
	})
}
