package sema_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

// collect returns when the garbage collector has found, several times, what
// nobody had any more, and has told of it.
func collect(t *testing.T) {
	t.Helper()
	for range 5 {
		told := make(chan struct{})
		runtime.AddCleanup(new(*int), func(told chan struct{}) { close(told) }, told)
		expect.Until(t, "the garbage collector tells", func() bool {
			runtime.GC()
			select {
			case <-told:
				return true
			default:
				return false
			}
		})
	}
}

// The garbage collector finds an abandoned permit, also if it had contexts, but
// not while a context is in use.
func TestAbandonedPermitsWithContexts(t *testing.T) {
	found := make(chan string, 2)
	s, err := sema.New(memengine.New(), "x", 2, &sema.Options{
		Renew:    20 * time.Millisecond, // a permit is watched from its first renewal on
		Observer: sema.Observer{Abandoned: func(o sema.Event) { found <- o.Permit }},
		Pools:    "tpm=100/24h",
	})
	expect.OK(t, err)
	defer func() { _ = s.Close() }()
	work := func(parent context.Context) (string, context.Context) {
		p, err := s.Acquire(t.Context(), sema.Take("tpm", 1))
		expect.OK(t, err)
		p.Used("tpm", 50)
		return p.ID(), p.Context(parent)
	}
	request, cancel := context.WithCancel(t.Context())
	left, _ := work(request)
	_, used := work(t.Context())
	child, end := context.WithCancel(used)
	defer end()
	cancel()
	expect.Until(t, "a permit that was lost sight of is found", func() bool { runtime.GC(); return len(found) > 0 })
	if id := <-found; id != left {
		t.Error("the permit of work that goes on was taken for abandoned")
	}
	expect.Until(t, "what it has used counts", func() bool { st, err := s.State(t.Context()); return err == nil && st.Pools[0].Used == 51 })
	collect(t)
	if err := child.Err(); err != nil || len(found) > 0 {
		t.Error(err, context.Cause(child))
	}
}

// An observer that takes its time does not hold up the end of another permit's
// context.
func TestContextsEndBeforeObserversAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New()}
		var works []context.Context
		told := make(chan int, 3)
		s, err := sema.New(e, "x", 3, &sema.Options{Observer: sema.Observer{Lost: func(sema.Event) {
			ended := 0
			for _, w := range works {
				select {
				case <-w.Done():
					ended++
				default:
				}
			}
			told <- ended
		}}})
		expect.OK(t, err)
		for range 3 {
			works = append(works, acquire(t, s).Context(t.Context()))
		}
		e.broken.Store(true)
		for range 3 {
			if n := <-told; n != 3 {
				t.Errorf("%d of 3 contexts had ended", n)
			}
		}
		e.broken.Store(false)
		expect.OK(t, s.Close())
	})
}

// Err of a context and of its permit agree at once, also while another goroutine
// is still ending the contexts.
func TestErrOfAContextIsExact(t *testing.T) {
	s, err := sema.New(memengine.New(), "x", 1, nil)
	expect.OK(t, err)
	p := acquire(t, s)
	var last context.Context
	for range 5_000 {
		last = p.Context(t.Context())
	}
	go func() { _ = p.Release() }()
	for p.Err() == nil {
		runtime.Gosched()
	}
	if last.Err() == nil || !errors.Is(context.Cause(last), sema.ErrReleased) {
		t.Errorf("%v, cause %v", last.Err(), context.Cause(last))
	}
	expect.OK(t, s.Close())
}
