package sema_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/internal/fixture/expect"
)

// shutdown runs Shutdown until ctx ends or nobody holds a permit.
func shutdown(ctx context.Context, s *sema.Semaphore) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	synctest.Wait()
	return ended
}

// unused checks that nobody holds anything of the bubble's semaphore, or waits for it.
func unused(t *testing.T, e sema.Engine) {
	t.Helper()
	if st, err := operator(t, e).State(t.Context()); err == nil && (st.Used > 0 || st.Waiting() > 0) {
		t.Errorf("%+v", st)
	}
}

func TestShutdownLetsHoldersEndAndRefusesWaiters(t *testing.T) {
	for name, o := range map[string]*sema.Options{"default": nil, "Keep": {Keep: time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
				p := acquire(t, s)
				waited := make(chan error)
				go func() {
					_, err := s.Acquire(context.Background())
					waited <- err
				}()
				synctest.Wait()
				work := p.Context(context.Background())
				ended := shutdown(t.Context(), s)
				expect.Is(t, <-waited, sema.ErrClosed)
				_, err := s.Acquire(t.Context())
				expect.Is(t, err, sema.ErrClosed)
				_, err = s.TryAcquire(t.Context())
				expect.Is(t, err, sema.ErrClosed)
				time.Sleep(10 * time.Minute) // twenty leases
				select {
				case <-work.Done():
					t.Error(context.Cause(work))
				case err := <-ended:
					t.Error("it did not wait:", err)
				default:
				}
				second := shutdown(t.Context(), s)
				expect.OK(t, p.Release())
				expect.OK(t, <-ended)
				expect.OK(t, <-second)
				expect.OK(t, s.Close())
				expect.OK(t, s.Shutdown(t.Context()))
				unused(t, e)
			})
		})
	}
}

// A permit that is lost is held no longer.
func TestShutdownWaitsForNoPermitThatIsLost(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		ended := shutdown(t.Context(), s)
		expect.OK(t, operator(t, e).Release(t.Context(), p.ID()))
		expect.OK(t, <-ended)
		expect.Is(t, p.Err(), sema.ErrLost)
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		work := p.Context(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		expect.Is(t, s.Shutdown(ctx), context.DeadlineExceeded)
		if took := time.Since(began); took != time.Minute { // in virtual time
			t.Errorf("it took %v", took)
		}
		expect.Is(t, context.Cause(work), sema.ErrLost)
		expect.Is(t, context.Cause(work), sema.ErrLost)
		unused(t, e)
	})
}

// With the engine away, it has a moment for its last call.
func TestShutdownEndsSoonAfterItsContext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		acquire(t, s)
		e.slow.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		expect.Is(t, s.Shutdown(ctx), context.DeadlineExceeded)
		if took := time.Since(began); took > 1250*time.Millisecond { // in virtual time
			t.Errorf("it took %v", took)
		}
	})
}

func TestCloseEndsAShutdown(t *testing.T) {
	for name, o := range map[string]*sema.Options{"default": nil, "detached": {Detached: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
				p := acquire(t, s)
				ended := shutdown(t.Context(), s)
				expect.OK(t, s.Close())
				expect.OK(t, <-ended)
				expect.Is(t, p.Err(), sema.ErrLost)
			})
		})
	}
}

func TestShutdownWithNothingHeld(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		expect.OK(t, s.Shutdown(over))
		if _, err := s.Acquire(t.Context()); !errors.Is(err, sema.ErrClosed) {
			t.Error(err)
		}
	})
}
