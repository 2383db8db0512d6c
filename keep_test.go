package sema_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

// A heavier caller gets what its own process keeps, also while a call is under way.
func TestAHeavierCallerGetsWhatIsKeptDuringACall(t *testing.T) {
	o := &sema.Options{Keep: 5 * time.Second}
	bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 3}))
		_ = acquire(t, s).Release() // from now on callers come soon after a release
		p, q := acquire(t, s), acquire(t, s)
		if err := q.Release(); err != nil { // it is kept
			t.Fatal(err)
		}
		e.slow.Store(int64(10 * time.Millisecond))
		go func() { _ = p.Renew(t.Context()) }()
		synctest.Wait()
		if _, err := s.Acquire(t.Context(), sema.Weight(2)); err != nil {
			t.Fatal(err)
		}
	})
}

// The permit of a lone caller goes back at once, so a program that ends without Close leaves none behind. Permits are
// kept from the second caller of a row on, until no caller comes for as long as Keep.
func TestOnlyARowOfCallersKeeps(t *testing.T) {
	const keep = 20 * time.Millisecond
	bubble(t, &sema.Options{Keep: keep}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		for _, c := range []struct {
			after time.Duration
			used  int
		}{{0, 0}, {keep / 2, 1}, {keep / 2, 1}, {10 * keep, 0}, {keep, 0}, {keep - 1, 1}} {
			time.Sleep(c.after)
			expect.OK(t, acquire(t, s).Release())
			if st, err := s.State(t.Context()); err != nil || st.Used != c.used {
				t.Errorf("%v after the last release: %d held after the next one, %v; want %d", c.after, st.Used, err, c.used)
			}
		}
	})
}

func TestWhatWaitsIsCarriedAlthoughAnObserverPanics(t *testing.T) {
	panics := true
	o := &sema.Options{Observer: sema.Observer{Queued: func(sema.Event) {
		if panics {
			panics = false
			panic("a test's")
		}
	}}}
	bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		e.slow.Store(int64(10 * time.Millisecond))
		go func() {
			defer func() { _ = recover() }()
			_, _ = s.Acquire(t.Context())
		}()
		synctest.Wait() // its call is on its way
		go func() { _, _ = s.Acquire(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		st, err := s.State(t.Context())
		if err != nil || len(st.Waiters) != 2 {
			t.Errorf("%d wait at the engine, %v; want both", len(st.Waiters), err)
		}
		expect.OK(t, p.Release())
	})
}

// The events and the error of a caller that waits without a ticket have its own
// weight.
func TestWhoWaitsWithoutATicketHasItsWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := make(chan sema.Event, 100)
		e := memengine.New()
		s, err := sema.New(e, "x", 2, &sema.Options{Observer: sema.Observer{Queued: func(q sema.Event) { queued <- q }}})
		expect.OK(t, err)
		held, err := s.Acquire(t.Context(), sema.Weight(2))
		expect.OK(t, err)
		failed := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := s.Acquire(t.Context(), sema.Weight(2))
				failed <- err
			}()
			synctest.Wait()
		}
		for range 20 {
			if q := <-queued; q.Weight != 2 || q.Waited < 0 {
				t.Errorf("told %+v", q)
			}
		}
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 1}))
		expect.OK(t, held.Release())
		for range 20 {
			var heavy *sema.WeightError
			if err := <-failed; !errors.As(err, &heavy) || heavy.Weight != 2 || heavy.Limit != 1 {
				t.Errorf("ended with %v", err)
			}
		}
		expect.OK(t, s.Close())
	})
}
