package sema_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"sema"
	"sema/engine/memengine"
)

// A permit whose contexts nobody has any more is found like one that never had
// any; one whose context is still in use is not.
func TestAbandonedPermitsWithContexts(t *testing.T) {
	found := make(chan string, 2)
	s, err := sema.New(memengine.New(), "x", 2, &sema.Options{
		Lease:    300 * time.Millisecond,
		Observer: sema.Observer{Abandoned: func(o sema.Abandoned) { found <- o.Permit }},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	work := func(parent context.Context) (string, context.Context) {
		p, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.ID(), p.Context(parent)
	}
	request, cancel := context.WithCancel(t.Context())
	left, _ := work(request)
	_, used := work(t.Context())
	child, end := context.WithCancel(used)
	defer end()
	used = nil
	cancel()
	for end := time.Now().Add(10 * time.Second); len(found) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a permit was lost sight of, and not found")
		}
		runtime.GC()
	}
	if id := <-found; id != left {
		t.Error("the permit of work that goes on was taken for abandoned")
	}
	for range 10 {
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	if err := child.Err(); err != nil {
		t.Error(err)
	}
}
