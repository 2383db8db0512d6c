package sema_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/client"
	"sema/internal/fixture/expect"
	"sema/sematest"
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

// Close waits for an engine that is away only if the engine has, or may have, something of this process, and
// then for three seconds, not for a lease.
func TestCloseWithTheEngineAway(t *testing.T) {
	failed := func(t *testing.T, s *sema.Semaphore) {
		if _, err := s.Acquire(t.Context()); !errors.Is(err, sema.ErrEngine) {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		what          string
		before, since func(t *testing.T, s *sema.Semaphore) // the engine went away
		most          time.Duration                         // that Close takes
	}{
		{"nothing was ever held", func(*testing.T, *sema.Semaphore) {}, failed, 0},
		{"nothing is held any more", func(t *testing.T, s *sema.Semaphore) { expect.OK(t, acquire(t, s).Release()) }, failed, 0},
		{"a permit is held", func(t *testing.T, s *sema.Semaphore) { acquire(t, s) }, failed, client.Patience},
		{"a permit is held, and nobody has called since", func(t *testing.T, s *sema.Semaphore) { acquire(t, s) }, func(*testing.T, *sema.Semaphore) {}, client.Patience},
		{"a caller waits", func(t *testing.T, s *sema.Semaphore) {
			acquire(t, s)
			go func() {
				if _, err := s.Acquire(context.Background()); !errors.Is(err, sema.ErrClosed) {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}, func(t *testing.T, s *sema.Semaphore) { synctest.Wait() }, client.Patience},
	} {
		for name, fault := range map[string]sematest.Fault{
			"it cannot be reached": {Err: sematest.Unreachable()},
			"its answers are lost": {Err: sematest.NoAnswer()},
			"it says nothing":      {Delay: time.Hour},
		} {
			for _, adapt := range []*sema.Adapt{nil, {Min: 1, Max: 3}} {
				t.Run(c.what+", "+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						e := sematest.New(t)
						s, err := sema.New(e, "x", 1, &sema.Options{Lease: 8 * time.Second, Adapt: adapt})
						expect.OK(t, err)
						c.before(t, s)
						time.Sleep(10 * time.Second) // what there is to report has been reported
						fault.Times = sematest.Always
						e.Inject(fault)
						c.since(t, s)
						most := c.most
						if fault.Err == nil || !fault.Err.NotExecuted { // an ask may have been carried out
							most = client.Patience
						}
						if adapt != nil { // the process that decides has a permit for that
							most = client.Patience
						}
						began := time.Now()
						expect.OK(t, s.Close())
						if took := time.Since(began); took > most { // in virtual time
							t.Errorf("Close took %v, want %v at the most", took, most)
						}
					})
				})
			}
		}
	}
}

// What a failed acquisition may hold is given back, once the engine answers again.
func TestCloseGivesBackWhatMayHaveBeenGranted(t *testing.T) {
	bubbled := func(name string, end func(s *sema.Semaphore) error) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := sematest.New(t)
				s, err := sema.New(e, "x", 1, nil)
				expect.OK(t, err)
				heal := e.Inject(sematest.Fault{Err: sematest.NoAnswer(), Times: sematest.Always})
				_, err = s.Acquire(t.Context())
				expect.Is(t, err, sema.ErrEngine)
				time.AfterFunc(2*time.Second, heal)
				expect.OK(t, end(s))
				if held := e.Held("x"); len(held) > 0 {
					t.Errorf("%v is held after it", held)
				}
			})
		})
	}
	bubbled("Close", (*sema.Semaphore).Close)
	bubbled("Shutdown", func(s *sema.Semaphore) error { return s.Shutdown(context.Background()) })
}

// An answer that is slow is waited for: what it brings is given back.
func TestCloseWaitsForASlowEngine(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := s.Acquire(ctx); !errors.Is(err, sema.ErrEngine) {
			t.Error(err)
		}
		expect.OK(t, s.Close())
		unused(t, e)
	})
}

// A call whose answer Close does not wait for any longer is answered.
func TestCloseAnswersWhoeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		o := operator(t, e)
		e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		ended := make(chan error)
		go func() { ended <- o.Pause(context.Background()) }()
		synctest.Wait()
		expect.OK(t, o.Close())
		var failure *engine.Error
		if err := <-ended; !errors.As(err, &failure) || failure.Name != "x" {
			t.Error(err)
		}
	})
}
