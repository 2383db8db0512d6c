package register_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine/register"
	"sema/internal/fixture/expect"
)

// Processes that only look at the row see within a look that it is their turn, though they
// had something, and waited for nothing, when they looked before.
func TestThoseWhoLookTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns, poll = 20, 50 * time.Millisecond
		store := polled()
		began := time.Now()
		var all sync.WaitGroup
		for range 2 {
			e, err := register.New(store, &register.Options{Poll: poll})
			expect.OK(t, err)
			t.Cleanup(func() { _ = e.Close() })
			s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Hour})
			expect.OK(t, err)
			t.Cleanup(func() { _ = s.Close() })
			all.Go(func() {
				for range turns {
					p, err := s.Acquire(t.Context())
					if err == nil {
						time.Sleep(time.Millisecond)
						err = p.Release()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 2*turns*(poll+2*time.Millisecond) {
			t.Errorf("%d turns took %v", 2*turns, took)
		}
	})
}
