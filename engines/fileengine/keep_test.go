package fileengine_test

import (
	"sync"
	"testing"
	"time"

	"sema"
	"sema/engines/fileengine"
	"sema/internal/fixture/expect"
)

// openTwo opens a semaphore of limit 1 twice, as in two processes. The first one has an
// option to keep released permits.
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

// This engine cannot recall a kept permit. So no process keeps one, whatever its options.
func TestNothingIsKeptFromOtherProcesses(t *testing.T) {
	one, other := openTwo(t, nil)
	p, err := one.Acquire(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, p.Release())
	p, err = other.TryAcquire(expect.Within(t))
	expect.OK(t, err)
	expect.OK(t, p.Release())
}

// A process does not pass a permit on while another process waits for it.
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
	for i := range callers { // in the order of their calls
		if got := <-served; got != i {
			t.Errorf("caller %d is served as number %d", got, i)
		}
	}
	all.Wait()
}
