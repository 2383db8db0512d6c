package redisengine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// "One blocked connection per waiter exhausts the pool": here thousands of
// waiters of one process are served with two tickets, a few connections and one
// channel. They leave nothing behind.
func TestThousandsOfWaiters(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
	gate := acquire(t, s)
	var served atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range manyWaiters {
		all.Go(func() {
			p, err := s.Acquire(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			served.Add(1)
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	var st sema.State
	expect.Until(t, "queueing", func() bool { st = stateOf(t, s); return st.Waiting() == manyWaiters })
	queued := time.Since(began)
	if len(st.Waiters) > 2 { // twice the limit
		t.Errorf("%d waiters of one process have %d tickets", manyWaiters, len(st.Waiters))
	}
	if list := connections(t, rdb); len(list) > 6 {
		t.Errorf("%d waiters use %d connections:\n%s", manyWaiters, len(list), strings.Join(list, ""))
	} else {
		t.Logf("%d waiters of one process use %d connections", manyWaiters, len(list))
	}
	if channels := rdb.PubSubChannels(ctx, "*").Val(); len(channels) != 1 {
		t.Errorf("channels: %v", channels)
	}
	began = time.Now()
	expect.OK(t, gate.Release())
	all.Wait()
	t.Logf("queued in %v, served in %v", queued.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if n := served.Load(); n != manyWaiters {
		t.Errorf("%d of %d served", n, manyWaiters)
	}
	expect.Until(t, "what was asked for and not needed is given back", func() bool {
		held, waiters, known := rdb.ZRange(ctx, "sema:{x}:holders", 0, -1).Val(), rdb.ZCard(ctx, "sema:{x}:waiters").Val(), rdb.HKeys(ctx, "sema:{x}:state").Val()
		return len(held) == 1 && strings.HasPrefix(held[0], "This member") && waiters == 0 && len(known) == 1 && known[0] == ""
	})
	if list := eternal(t, rdb); len(list) > 0 {
		t.Errorf("left for ever: %v", list)
	}
	wholeLimit(t, s, 1)
}

// "Every release wakes every waiter" (Consul, Redisson): here one release
// notifies one client, whatever the number of waiters.
func TestNoHerd(t *testing.T) {
	t.Parallel()
	const clients = 50
	server := redistest.Start(t)
	rdb := server.Client()
	o := &sema.Options{Lease: 10 * time.Minute} // no waiter asks again during the test
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, o)
	p := acquire(t, s)
	got := make(chan *sema.Permit, clients)
	ctx := expect.Within(t)
	for range clients {
		other := openSem(t, engineAt(t, server.Addr()), "x", 1, o)
		go func() {
			p, err := other.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
	}
	expect.Until(t, "queueing", func() bool { return len(stateOf(t, s).Waiters) == clients })
	for range 10 {
		before := calls(t, rdb, "publish")
		expect.OK(t, p.Release())
		p = <-got
		// The grant, and perhaps a message to the client that must ask when the
		// next lease ends.
		if n := calls(t, rdb, "publish") - before; n > 2 {
			t.Fatalf("one release published %d messages to %d waiting clients", n, clients)
		}
	}
	published := calls(t, rdb, "publish")
	t.Logf("with %d waiting clients: %d messages published in all", clients, published)
	expect.OK(t, p.Release())
	for range clients - 10 {
		expect.OK(t, (<-got).Release())
	}
	wholeLimit(t, s, 1)
}

// A waiter sends only a few commands in a lease.
func TestCommandsOfAWaiter(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		const lease, leases = 2 * time.Second, 2
		server := redistest.Start(t)
		rdb := server.Client()
		o := &sema.Options{Lease: lease}
		p := acquire(t, openSem(t, engineAt(t, server.Addr()), "x", 1, o))
		first := p.Deadline()
		before := calls(t, rdb, "evalsha")
		expect.Until(t, "the holder's leases", func() bool { return p.Err() != nil || p.Deadline().After(first.Add(leases*lease)) })
		expect.OK(t, p.Err())
		holder := float64(calls(t, rdb, "evalsha")-before) / leases

		w := queue(t, openSem(t, engineAt(t, server.Addr()), "x", 1, o))
		first, before = p.Deadline(), calls(t, rdb, "evalsha")
		expect.Until(t, "the waiter's leases", func() bool { return p.Err() != nil || p.Deadline().After(first.Add(leases*lease)) })
		expect.OK(t, p.Err())
		both := float64(calls(t, rdb, "evalsha")-before) / leases
		t.Logf("in a lease of %v the server carries out %.1f script calls for a holder, and %.1f for a holder and a waiter: %.1f for the waiter", lease, holder, both, both-holder)
		if both-holder > 12 {
			t.Error("the waiter polls")
		}
		expect.OK(t, p.Release())
		expect.OK(t, w.permit(t).Release())
	})
}

// Connections for subscriptions are cut in bursts while waiters queue and
// holders release (go-redis lost 126 of 4849 messages so), or those that carry the
// calls, or the server stops answering for a short part of the lease. Nobody hangs,
// no permit is lost, and the limit holds.
func TestConnectionsAreCut(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string][]any{
		"subscriptions": {"CLIENT", "KILL", "TYPE", "pubsub"},
		"calls":         {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"},
		"a pause":       {"CLIENT", "PAUSE", "100", "ALL"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cutWhileWorking(t, server, func() {
				expect.OK(t, server.Client().Do(expect.Within(t), fault...).Err())
			})
		})
	}
}

// cutWhileWorking makes clients acquire and release while fault is called again
// and again, and checks that all of them are served.
func cutWhileWorking(t *testing.T, server *redistest.Server, fault func()) {
	const limit, clients, each, faults = 2, 6, 60, 12
	ctx := expect.Within(t)
	var all sync.WaitGroup
	var held atomic.Int64
	for range clients {
		s := openSem(t, engineAt(t, server.Addr()), "x", limit, &sema.Options{Lease: time.Minute})
		for range 2 {
			all.Go(func() {
				for range each {
					p, err := s.Acquire(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if n := held.Add(1); n > limit {
						t.Errorf("%d held at once; the limit is %d", n, limit)
					}
					time.Sleep(time.Millisecond) // the work
					held.Add(-1)
					var e *engine.Error
					if err := p.Release(); err != nil && (!errors.As(err, &e) || !e.Busy) { // else it had no answer in time, and is sent again
						t.Error(err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for range faults {
		fault()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // the faults' rhythm
		}
	}
	<-done
	wholeLimit(t, openSem(t, engineAt(t, server.Addr()), "x", limit, nil), limit)
}
