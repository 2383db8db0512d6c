package sema_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

// What another process keeps is asked back, and meanwhile the engine has answered: nobody may take that
// for an engine that is away.
func TestAnEngineThatRecallsHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		var both []*sema.Semaphore
		for range 2 {
			s, err := sema.New(e, "x", 1, &sema.Options{Keep: 10 * time.Millisecond})
			expect.OK(t, err)
			defer func() { expect.OK(t, s.Close()) }()
			both = append(both, s)
		}
		p := acquire(t, both[0])
		time.Sleep(10 * time.Millisecond)
		for what, option := range map[string]sema.AcquireOption{
			"the engine's answer bounded": sema.AnswerWithin(100 * time.Millisecond),
			"the wait bounded":            sema.WaitAtMost(50 * time.Millisecond),
		} {
			if _, err := both[1].TryAcquire(t.Context(), option); !errors.Is(err, sema.ErrBusy) || errors.Is(err, sema.ErrEngine) {
				t.Errorf("%s: %v", what, err)
			}
		}
		expect.OK(t, p.Release())
	})
}

// A wait under a permit of the same semaphore ends with its bound, and the semaphore goes on.
func TestABoundedWaitUnderAPermitOfTheSame(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 2}))
		a := acquire(t, s)
		b, err := s.TryAcquire(t.Context())
		expect.OK(t, err)
		_, err = s.Acquire(a.Context(t.Context()), sema.WaitAtMost(time.Second))
		wantOnly(t, err, sema.ErrBusy, nil)
		expect.OK(t, errors.Join(a.Release(), b.Release()))
	})
}

// Bounds as short as the engine's answers: each caller has a permit, or is told that none was free in time.
func TestAShortBoundOfTheWait(t *testing.T) {
	s, err := sema.New(memengine.New(), "x", 1, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, s.Close()) }()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 300 {
				p, err := s.Acquire(t.Context(), sema.WaitAtMost(100*time.Microsecond))
				if err == nil {
					expect.OK(t, p.Release())
				} else if !errors.Is(err, sema.ErrBusy) || strings.Contains(err.Error(), "%!") {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A bound of three seconds or more for the engine's answer changes nothing, also where a patient caller waits
// longer; nor does one of 0 in front of a shorter one.
func TestALongBoundOfTheAnswerChangesNothing(t *testing.T) {
	bubble(t, &sema.Options{Patient: true}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(time.Hour))
		for _, c := range []struct {
			options []sema.AcquireOption
			want    time.Duration
		}{
			{[]sema.AcquireOption{sema.AnswerWithin(10 * time.Second)}, time.Minute},
			{[]sema.AcquireOption{sema.AnswerWithin(time.Second), sema.AnswerWithin(0)}, time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			_, err := s.Acquire(ctx, c.options...)
			cancel()
			if took := time.Since(began); !errors.Is(err, sema.ErrEngine) || took != c.want {
				t.Errorf("%v after %v, want %v", err, took, c.want)
			}
		}
	})
}

// A caller that goes before those who wait is not refused because of them.
func TestAHeadStartIsNotRefusedForThoseBehindIt(t *testing.T) {
	bubble(t, &sema.Options{MaxWaiting: 2}, func(t *testing.T, _ *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _, _ = s.Acquire(ctx) })
			synctest.Wait()
		}
		var busy *sema.BusyError
		if _, err := s.Acquire(t.Context(), sema.WaitAtMost(time.Second)); !errors.As(err, &busy) {
			t.Errorf("a third caller: %v", err)
		}
		quick := make(chan error, 1)
		go func() {
			p, err := s.Acquire(t.Context(), sema.HeadStart(time.Hour))
			if err == nil {
				err = p.Release()
			}
			quick <- err
		}()
		synctest.Wait()
		expect.OK(t, p.Release())
		expect.OK(t, <-quick)
		cancel()
		all.Wait()
	})
}

// A permit that was lost is lost, also when its Semaphore has been closed since.
func TestALossOutlivesItsSemaphore(t *testing.T) {
	bubble(t, &sema.Options{MaxHold: time.Second}, func(t *testing.T, _ *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		<-p.Context(t.Context()).Done()
		expect.OK(t, s.Close())
		if err := p.Release(); !errors.Is(err, sema.ErrHeldTooLong) {
			t.Errorf("the first release: %v", err)
		}
		if err := p.Release(); !errors.Is(err, sema.ErrReleased) {
			t.Errorf("the second: %v", err)
		}
	})
}
