package fileengine_test

import (
	"sync"
	"testing"
	"time"

	"sema"
	"sema/engines/fileengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

func open(tb testing.TB) enginetest.Store {
	dir := tb.TempDir()
	return enginetest.Store{
		URL: "file://" + dir,
		Client: func(tb testing.TB) sema.Engine {
			e, err := fileengine.New(dir, nil)
			expect.OK(tb, err)
			tb.Cleanup(func() { _ = e.Close() })
			return e
		},
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, open)
}

// A process does not pass a permit on while another process waits for it, though it may keep permits.
func TestNothingIsPassedOnBeforeOtherProcesses(t *testing.T) {
	queued, served := make(chan bool, 100), make(chan int, 4)
	dir := t.TempDir()
	open := func(keep time.Duration) *sema.Semaphore {
		e, err := fileengine.New(dir, nil)
		expect.OK(t, err)
		t.Cleanup(func() { _ = e.Close() })
		return opened.Semaphore(t, e, "x", 1, &sema.Options{Keep: keep, Observer: sema.Observer{Queued: func(sema.Event) { queued <- true }}})
	}
	one, other := open(5*time.Second), open(0)
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
