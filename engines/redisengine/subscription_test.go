package redisengine_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/internal/protocol"
)

// detour is a dialer whose address can be changed.
type detour struct{ addr atomic.Value }

func (d *detour) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, d.addr.Load().(string))
}

// After a failover the old master may run on, and answer pings: subscriptions
// that stay there receive no messages. The new master tells a client that asks
// again, and its subscription follows.
func TestSubscriptionsFollowTheServer(t *testing.T) {
	t.Parallel()
	before, after := redistest.Start(t), redistest.Start(t)
	ctx := expect.Within(t)
	var to detour
	to.addr.Store(before.Addr())
	e := closing(t, connect(t, redis.Options{Addr: before.Addr(), Dialer: to.dial}))
	s := openSem(t, e, "x", 1, &sema.Options{Lease: 6 * time.Second})
	gate := acquire(t, openSem(t, engineAt(t, before.Addr()), "x", 1, nil))
	w := queue(t, s)
	client, _, _ := strings.Cut(stateOf(t, s).Waiters[0].ID, "-")
	inbox := "sema:{x}:inbox:" + client

	gateAfter := acquire(t, openSem(t, engineAt(t, after.Addr()), "x", 1, nil))
	to.addr.Store(after.Addr())
	there, here := before.Client(), after.Client()
	expect.OK(t, there.ClientKillByFilter(ctx, "TYPE", "normal").Err())
	listens := func(at *redis.Client) bool { return at.PubSubNumSub(ctx, inbox).Val()[inbox] > 0 }
	expect.Until(t, "listening to the new server", func() bool { return listens(here) })
	expect.Until(t, "leaving the old server", func() bool { return !listens(there) })
	if n := calls(t, there, "subscribe"); n > 10 {
		t.Errorf("the old server was asked %d times: it confirms all of them, and tells nothing", n)
	}
	expect.OK(t, gateAfter.Release())
	expect.OK(t, w.permit(t).Release())
	_ = gate.Release() // the server may have closed the connection
}

// The client notices that its connection for subscriptions delivers nothing any
// more. Neither end has closed the connection, and the waiter's next ask is far
// away.
func TestAHalfOpenSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	var to detour
	to.addr.Store(server.Addr())
	e := closing(t, connect(t, redis.Options{Addr: server.Addr(), Dialer: to.dial}))
	s := openSem(t, e, "x", 1, &sema.Options{Lease: 10 * time.Minute})
	_ = stateOf(t, s) // makes the connection for calls
	gate := acquire(t, openSem(t, engineAt(t, server.Addr()), "x", 1, nil))
	to.addr.Store(proxy.Addr())
	w := queue(t, s)
	proxy.Silence()
	t.Cleanup(proxy.Resume)
	to.addr.Store(server.Addr())
	expect.OK(t, gate.Release()) // its message is lost
	expect.OK(t, w.permit(t).Release())
}

// New connections are accepted and never answered, for an hour. Waiters, each
// with a semaphore of its own, return when their contexts end, and Close
// returns.
func TestSubscriptionsAreNeverAnswered(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	var to detour
	to.addr.Store(server.Addr())
	rdb := connect(t, redis.Options{Addr: server.Addr(), Dialer: to.dial, ReadTimeout: time.Hour, WriteTimeout: time.Hour, PoolSize: 1})
	e := closing(t, rdb)
	gates := engineAt(t, server.Addr())
	var all []*sema.Semaphore
	for _, name := range []string{"a", "b", "c", "d"} {
		acquire(t, openSem(t, gates, name, 1, nil))
		s := openSem(t, e, name, 1, &sema.Options{Lease: 2 * time.Second}) // Close waits at most so long for an answer
		_ = stateOf(t, s)
		all = append(all, s)
	}
	proxy.Silence()
	t.Cleanup(proxy.DropAll)
	t.Cleanup(proxy.Resume)
	to.addr.Store(proxy.Addr())
	for range 2 {
		var waiters sync.WaitGroup
		for _, s := range all {
			waiters.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("waited for 300 ms: %v", err)
				}
			})
		}
		waiters.Wait()
	}
	for _, s := range all {
		expect.OK(t, s.Close())
	}
	expect.OK(t, e.Close())
}

// A server with full memory refuses new waiters. Older waiters keep their
// places by asking again, and are served in order.
func TestWaitersStayWithMemoryFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	s := session(t, patientAt(t, server.Addr()), "x")
	s.do(s.request(protocol.Ask, 1, time.Minute))
	ask := func(number uint64, again bool) protocol.Request {
		r := s.request(protocol.Ask, number, time.Minute)
		r.Wait, r.Again = true, again
		return r
	}
	for n := range uint64(3) {
		s.do(ask(n+2, false))
	}
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := s.try(whole, ask(5, false))
	engineError(t, err, "OOM", "maxmemory", true)
	if n := rdb.HLen(ctx, "sema:{x}:state").Val() + rdb.ZCard(ctx, "sema:{x}:waiters").Val(); n != 1+4+3 {
		t.Errorf("after a refused acquisition there are %d entries; want those of before", n)
	}
	for n := range uint64(3) {
		first := s.do(ask(n+2, true))[0]
		time.Sleep(time.Millisecond) // so that the server's clock moves on
		if a := s.do(ask(n+2, true))[0]; a.Status != protocol.Queued || a.Ahead != int(n) || a.Ticket <= first.Ticket {
			t.Errorf("ticket %d again: %+v after %+v", n+2, a, first)
		}
	}
	for n := range uint64(3) {
		s.do(s.request(protocol.Release, n+1, 0))
		if a := s.do(ask(n+2, true))[0]; a.Status != protocol.Granted {
			t.Errorf("ticket %d in its turn: %+v", n+2, a)
		}
	}
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	s.do(s.request(protocol.Release, 4, 0))
}

// "After a timeout the acquire is sent again and takes a second permit"
// (Redisson #6517; go-redis's own retries left three). Here the client names
// the permit before it asks.
func TestALostAnswerToAnAcquisition(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	near, far := openSem(t, engineAt(t, server.Addr()), "x", 3, nil), openSem(t, engineAt(t, proxy.Addr()), "x", 3, nil)
	expect.OK(t, acquire(t, far).Release()) // its connection is made and its script loaded: the next answer is that of a step
	proxy.LoseReplies()
	w := start(t, far)
	expect.Until(t, "the acquisition", func() bool { return stateOf(t, near).Used > 0 })
	proxy.Resume()
	p := w.permit(t)
	if st := stateOf(t, near); len(st.Holders) != 1 || st.Holders[0].ID != p.ID() {
		t.Fatalf("asked once, and %+v", st.Holders)
	}
	expect.OK(t, p.Release())
	wholeLimit(t, near, 3)
}

// holeConn is a connection that can be made to discard all data, like one that
// a firewall has forgotten.
type holeConn struct {
	net.Conn
	hole chan struct{} // closed: written data is discarded, so no answer comes
}

func (c *holeConn) swallows() bool {
	select {
	case <-c.hole:
		return true
	default:
		return false
	}
}

func (c *holeConn) Write(b []byte) (int, error) {
	if c.swallows() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A connection that discards all data costs no permit: the next renewal uses
// another connection, within the lease.
func TestADeadConnectionIsLeftInTime(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		server := redistest.Start(t)
		hole := make(chan struct{})
		first := true
		var mu sync.Mutex
		rdb := connect(t, redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !first {
				return conn, err
			}
			first = false
			return &holeConn{Conn: conn, hole: hole}, nil
		}})
		s := openSem(t, closing(t, rdb), "x", 1, &sema.Options{Lease: 3 * time.Second})
		p := acquire(t, s)
		expect.Until(t, "idling", func() bool { return rdb.PoolStats().IdleConns > 0 })
		close(hole)
		before := p.Deadline()
		expect.Until(t, "a renewal", func() bool { return p.Err() != nil || p.Deadline().After(before) })
		expect.OK(t, p.Err())
		expect.OK(t, p.Release())
	})
}
