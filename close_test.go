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
		if st, err := operator(t, e).State(t.Context()); err == nil && (st.Used > 0 || st.Waiting() > 0) {
			t.Errorf("%+v", st)
		}
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
