package redisengine_test

import (
	"context"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// No script can prevent the effect of a server that forgets everything: it
// admits new holders beside the forgotten ones, until those ask again. This
// test measures how many, and for how long.
func TestOverAdmissionAfterForgetting(t *testing.T) {
	t.Parallel()
	const holders, lease = 5, 3 * time.Second
	restart := func(s *redistest.Server) { s.Restart() }
	flush := func(s *redistest.Server) { expect.OK(t, s.Client().FlushAll(context.Background()).Err()) }
	for what, of := range map[string]struct {
		forget func(*redistest.Server)
		renew  time.Duration
	}{
		"restart without data": {restart, 0},
		"FLUSHALL":             {flush, 0},
		"FLUSHALL, NoRenewal":  {flush, sema.NoRenewal}, // the holders learn of the loss only from their clocks
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) {
				server := redistest.Start(t)
				o := &sema.Options{Lease: lease, Renew: of.renew}
				var old []*sema.Permit
				for range holders {
					old = append(old, acquire(t, openSem(t, engineAt(t, server.Addr()), "x", holders, o)))
				}
				known := make(chan time.Time, holders)
				for _, p := range old {
					go func() { <-p.Context(context.Background()).Done(); known <- time.Now() }()
				}
				of.forget(server)
				began := time.Now()
				extra := 0
				for range holders {
					acquire(t, openSem(t, engineAt(t, server.Addr()), "x", holders, o))
				}
				for _, p := range old {
					if p.Err() == nil {
						extra++
					}
				}
				var last time.Time
				for range old {
					last = <-known
				}
				took := last.Sub(began)
				t.Logf("%s under %d holders with leases of %v: %d held beside %d new ones; the last of them knew after %v",
					what, holders, lease, extra, holders, took.Round(10*time.Millisecond))
				if took > lease {
					t.Errorf("a holder did not know within its lease, but after %v", took)
				}
			})
		})
	}
}
