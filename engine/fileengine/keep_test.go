package fileengine_test

import (
	"sync"
	"testing"
	"time"

	"sema"
	"sema/engine/fileengine"
	"sema/internal/fixture/expect"
)

// openTwo are two semaphores of limit 1 as two processes have them, the first of
// which would keep what is released.
func openTwo(t *testing.T, queued chan bool) (one, other *sema.Semaphore) {
	dir := t.TempDir()
	open := func(o *sema.Options) *sema.Semaphore {
		e, err := fileengine.New(dir, nil)
		expect.OK(t, err)
		t.Cleanup(func() { _ = e.Close() })
		o.Observer.Queued = func(sema.Event) { queued <- true }
		s, err := sema.New(e, "x", 1, o)
		expect.OK(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return open(&sema.Options{Keep: 5 * time.Second}), open(&sema.Options{})
}

// A process could not be told that another one wants what it keeps. So it keeps
// nothing, whatever its options.
func TestNothingIsKeptFromOtherProcesses(t *testing.T) {
	one, other := openTwo(t, nil)
	p, err := one.Acquire(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, p.Release())
	p, err = other.TryAcquire(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, p.Release())
}

// Nor does it pass on what another process waits for.
func TestNothingIsPassedOnBeforeOtherProcesses(t *testing.T) {
	queued, served := make(chan bool, 100), make(chan int, 4)
	one, other := openTwo(t, queued)
	p, err := one.Acquire(expect.Within(t))
	expect.OK(t, err)
	callers := []*sema.Semaphore{one, one, other, one}
	var all sync.WaitGroup
	for i, s := range callers {
		all.Go(func() {
			p, err := s.Acquire(expect.Within(t))
			if err != nil {
				t.Error(err)
				return
			}
			served <- i
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		})
		<-queued
	}
	expect.OK(t, p.Release())
	for i := range callers { // in the order in which they came
		if got := <-served; got != i {
			t.Errorf("number %d is served as number %d", got, i)
		}
	}
	all.Wait()
}
