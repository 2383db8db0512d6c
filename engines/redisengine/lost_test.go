package redisengine_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// remote is a client behind a proxy. Its connection is made and its script
// loaded, so the next answer is that of a step.
func remote(t *testing.T) (near, far *sema.Semaphore, proxy *redistest.Proxy) {
	server := redistest.Start(t)
	proxy = redistest.StartProxy(t, server.Addr())
	near = openSem(t, engineAt(t, server.Addr()), "x", 3, nil)
	far = openSem(t, engineAt(t, proxy.Addr()), "x", 3, nil)
	expect.OK(t, acquire(t, far).Release())
	return near, far, proxy
}

// "After a timeout the acquire is sent again and takes a second permit"
// (Redisson #6517; go-redis's own retries left three). Here the client names
// the permit before it asks.
func TestALostAnswerToAnAcquisition(t *testing.T) {
	t.Parallel()
	near, far, proxy := remote(t)
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
