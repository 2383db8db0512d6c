package sema_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sema"
)

func TestDrainTakesWhatItsOwnClientKeepsDuringACall(t *testing.T) {
	o := &sema.Options{Keep: 5 * time.Second}
	bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
		if err := s.SetLimit(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		p, q := acquire(t, s), acquire(t, s)
		if err := q.Release(); err != nil { // it is kept
			t.Fatal(err)
		}
		e.slow.Store(int64(10 * time.Millisecond))
		go func() { _ = p.Renew(t.Context()) }()
		synctest.Wait()
		all, err := s.Drain(t.Context())
		if err != nil || all.Weight() != 2 {
			t.Fatalf("drained %v, %v; want the two that nobody holds", all, err)
		}
	})
}

func TestWhatWaitsIsCarriedAlthoughAnObserverPanics(t *testing.T) {
	panics := true
	o := &sema.Options{Observer: sema.Observer{Queued: func(sema.Queued) {
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
		waiters, err := s.Waiters(t.Context())
		if err != nil || len(waiters) != 2 {
			t.Errorf("%d wait at the engine, %v; want both", len(waiters), err)
		}
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestRemoveGivesBackWhatItsOwnClientKeeps(t *testing.T) {
	bubble(t, &sema.Options{Keep: 5 * time.Second}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		if err := acquire(t, s).Release(); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context()); err != nil {
			t.Errorf("nobody holds a permit, and yet: %v", err)
		}
	})
}
