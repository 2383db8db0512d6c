package register_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/register"
	"sema/internal/fixture/expect"
)

// Processes that only poll notice a grant within one poll, also if they held a permit and
// did not wait at the poll before.
func TestPollingProcessesAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds, poll = 20, 50 * time.Millisecond
		store := newPolledStore()
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
				for range rounds {
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
		if took := time.Since(began); took > 2*rounds*(poll+2*time.Millisecond) {
			t.Errorf("%d rounds took %v", 2*rounds, took)
		}
	})
}
