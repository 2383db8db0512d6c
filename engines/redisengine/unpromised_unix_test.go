//go:build unix

package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// These tests measure what is not promised. Their figures are in
// docs/promises.md.

// unpromisedLease is short, so that tests are quick. The measured times are
// proportional to it.
const unpromisedLease = 3 * time.Second

func tenths(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// A replica takes its master's place while the master lives on and some clients
// still reach it: both grant, independently.
func TestAnOldMasterLivesOn(t *testing.T) {
	for _, c := range []struct {
		what     string
		settings []string
	}{
		{"by default", nil},
		{"with min-replicas-to-write 1 and min-replicas-max-lag 1", []string{"min-replicas-to-write", "1", "min-replicas-max-lag", "1"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) {
				const limit = 2
				p := startPair(t)
				ctx := expect.Within(t)
				for pair := range slices.Chunk(c.settings, 2) {
					expect.OK(t, p.master.Client().ConfigSet(ctx, pair[0], pair[1]).Err())
				}
				o := &sema.Options{Lease: unpromisedLease}
				old := openSem(t, engineAt(t, p.master.Addr()), "x", limit, o)
				held := []*sema.Permit{acquire(t, old), acquire(t, old)}
				p.inStep(t)
				master := p.master.Client() // which renews nothing between the cut and the moment in which it knows of the cut
				expect.OK(t, master.Do(ctx, "CLIENT", "PAUSE", 60_000, "WRITE").Err())
				p.link.Refuse()
				p.link.DropAll()
				expect.Until(t, "the master misses its replica", func() bool {
					return strings.Contains(master.Info(ctx, "replication").Val(), "connected_slaves:0")
				})
				expect.OK(t, master.ClientUnpause(ctx).Err())
				expect.OK(t, p.replica.Client().Do(ctx, "REPLICAOF", "NO", "ONE").Err())
				began := time.Now()
				other := openSem(t, engineAt(t, p.replica.Addr()), "x", limit, o)
				acquire(t, other)
				acquire(t, other)
				both := time.Since(began)
				extra := 0
				for _, permit := range held {
					if permit.Err() == nil {
						extra++
					}
				}
				t.Logf("an old master lives on, %s: %v after the replica took its place %d hold there beside %d at the new one", c.what, tenths(both), extra, limit)
				if c.settings != nil && extra > 0 {
					t.Error("the old master went on renewing, which it may not without a replica")
				}
			})
		})
	}
}

// A server that evicts keys forgets a semaphore as FLUSHALL does.
func TestEviction(t *testing.T) {
	for _, policy := range []string{"allkeys-random", "volatile-lru", "noeviction"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			const limit = 2
			server := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", policy)
			rdb := server.Client()
			ctx := expect.Within(t)
			o := &sema.Options{Lease: 30 * time.Second}
			s := openSem(t, engineAt(t, server.Addr()), "x", limit, o)
			held := []*sema.Permit{acquire(t, s), acquire(t, s)}
			var refused error
			for n := 0; refused == nil && rdb.Exists(ctx, "sema:{x}:state").Val() == 1; n++ {
				refused = rdb.Set(ctx, fmt.Sprint("other-", n), strings.Repeat("v", 10_000), 0).Err()
			}
			expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "100mb").Err()) // the pressure is over
			other := openSem(t, engineAt(t, server.Addr()), "x", limit, o)
			extra := 0
			for range limit {
				if _, err := other.TryAcquire(ctx); err == nil {
					extra++
				} else if !errors.Is(err, sema.ErrBusy) {
					t.Error(err)
				}
			}
			alive := 0
			for _, p := range held {
				if p.Err() == nil {
					alive++
				}
			}
			t.Logf("%s: %d newcomers were admitted beside %d holders, a limit of %d; the server refuses data: %v", policy, extra, alive, limit, refused != nil)
			if policy == "noeviction" && extra > 0 {
				t.Error("over the limit without eviction")
			}
		})
	}
}

// Release waits for the answer for a sixth of the lease, up to half as long
// again. Then it returns an error; the release is still sent when the server is
// back.
func TestReleaseDuringAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near := openSem(t, engineAt(t, server.Addr()), "x", 1, &sema.Options{Lease: 2 * unpromisedLease})
	p := acquire(t, near)
	server.Stop()
	began := time.Now()
	err := p.Release()
	took := time.Since(began)
	expect.Is(t, err, sema.ErrEngine)
	server.Continue()
	began = time.Now()
	w := start(t, openSem(t, engineAt(t, server.Addr()), "x", 1, nil))
	next := w.permit(t)
	t.Logf("the server stands still, lease %v: Release returned after %v; %v after the server went on another had the permit",
		2*unpromisedLease, tenths(took), tenths(time.Since(began)))
	expect.OK(t, next.Release())
}

// A process that keeps a permit, and ends without Close, leaves it to its lease.
func TestAKeeperThatEndsWithoutClose(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		server := redistest.Start(t)
		proxy := redistest.StartProxy(t, server.Addr())
		o := &sema.Options{Lease: unpromisedLease, Keep: unpromisedLease / 6}
		before := time.Now()
		keeper := openSem(t, engineAt(t, proxy.Addr()), "x", 1, o)
		for range 2 { // a permit is kept in a row of callers
			expect.OK(t, acquire(t, keeper).Release())
		}
		proxy.Refuse() // as the end of the process does
		proxy.DropAll()
		other := openSem(t, engineAt(t, server.Addr()), "x", 1, o)
		began := time.Now()
		p := acquire(t, other)
		if waited := time.Since(before); waited < unpromisedLease {
			t.Errorf("another has the permit %v before the lease of the one that kept it can have ended", unpromisedLease-waited)
		}
		t.Logf("a process that keeps, lease %v, ends without Close: another has the permit after %v", unpromisedLease, tenths(time.Since(began)))
		expect.OK(t, p.Release())
	})
}

// A client that is not told of a smaller limit passes permits on among its own
// callers until its next call, which comes within a sixth of the lease.
func TestWhoHearsNothingPassesOnForAWhile(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		server := redistest.Start(t)
		proxy := redistest.StartProxy(t, server.Addr())
		s := openSem(t, engineAt(t, proxy.Addr()), "x", 1, &sema.Options{Lease: unpromisedLease, Keep: unpromisedLease / 6})
		for range 10 {
			expect.OK(t, acquire(t, s).Release())
		}
		ctx, cancel := context.WithTimeout(expect.Within(t), unpromisedLease)
		defer cancel()
		proxy.Silence()
		expect.OK(t, operator(t, engineAt(t, server.Addr()), "x").Pause(ctx))
		began := time.Now()
		var last time.Duration
		n := 0
		for {
			p, err := s.Acquire(ctx)
			if err != nil {
				break
			}
			last = time.Since(began)
			n++
			if p.Release() != nil {
				break
			}
		}
		t.Logf("paused by another, lease %v: a process that keeps and hears nothing passed its permit on %d times, the last %v later", unpromisedLease, n, tenths(last))
		if last > unpromisedLease/3 {
			t.Errorf("it went on for %v", last)
		}
	})
}

// A permit keeps its id when it is passed on: a revocation by an id that was
// read earlier hits the holder of now. With Detached no permit is passed on.
func TestTheIDOfAPermitThatPassesOn(t *testing.T) {
	t.Parallel()
	for _, detached := range []bool{false, true} {
		const callers, each = 4, 100
		s := openSem(t, engineAt(t, redistest.Start(t).Addr()), "x", 1, &sema.Options{Detached: detached})
		ids := map[string]bool{} // guarded by the permit
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					p, err := s.Acquire(expect.Within(t))
					if err != nil {
						t.Error(err)
						return
					}
					ids[p.ID()] = true
					if err := p.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		t.Logf("Detached %v: %d acquisitions, one after the other, had %d ids", detached, callers*each, len(ids))
		if detached && len(ids) < callers*each {
			t.Error("two of them had one id")
		}
	}
}
