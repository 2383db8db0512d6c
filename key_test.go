package sema_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// A tenant with very many callers delays another one's first caller by one hold at most.
func TestABusyKeyDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		s, err := sema.New(e, "api", 3, &sema.Options{Caps: sema.Caps{2}})
		expect.OK(t, err)
		var callers sync.WaitGroup
		work := func(key string, n int) {
			for range n {
				callers.Go(func() {
					if err := s.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil }, sema.For(key)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		work("busy", 200)
		work("also busy", 200)
		e.AwaitWaiting(t.Context(), "api", 1)
		time.Sleep(5*time.Second + 500*time.Millisecond)
		began := time.Now()
		p, err := s.Acquire(t.Context(), sema.For("quiet"))
		expect.OK(t, err)
		expect.OK(t, p.Release())
		if d := time.Since(began); d > time.Second {
			t.Errorf("the quiet tenant waited %v, want no more than one hold", d)
		}
		callers.Wait()
		expect.OK(t, s.Close())
	})
}
