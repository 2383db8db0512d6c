package classic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// TestRoundTrips counts the writes of each operation to its connections. A
// request is one write, and so is a transaction or pipeline of several; no
// operation writes again before it has read the answer. The figures must be those
// of the comparison page; -update puts them there.
func TestRoundTrips(t *testing.T) {
	var got []roundTrips
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		c := newCounter(t, srv)
		const limit = 3
		sem := v.new(t, c.rdb, limit, Options{})
		// Each operation once, so that there are connections, scripts and
		// other holders.
		id := must(t, sem)
		if v.refresh {
			refresh(t, sem, id, true)
		}
		if v.limit == 1 {
			mustNot(t, sem)
		}
		release(t, sem, id, true)
		for range limit - 1 {
			if v.limit != 1 {
				must(t, sem)
			}
		}
		r := roundTrips{Type: v.name}
		r.Acquire = c.count(func() { id = must(t, sem) })
		r.Refused = c.count(func() { mustNot(t, sem) })
		if v.refresh {
			r.Refresh = c.count(func() { refresh(t, sem, id, true) })
		}
		r.Release = c.count(func() { release(t, sem, id, true) })
		got = append(got, r)
	})
	t.Run("sema", func(t *testing.T) { got = append(got, semaRoundTrips(t)) })

	s := fmt.Sprintf("%-14s %8s %8s %8s %8s", "", "acquire", "refused", "refresh", "release")
	for _, r := range got {
		s += fmt.Sprintf("\n%-14s %8d %8d %8d %8d", r.Type, r.Acquire, r.Refused, r.Refresh, r.Release)
	}
	t.Logf("round trips, without contention:\n%s", s)

	if *update {
		publish(t, roundTripsFile, got)
		return
	}
	if want := committed[[]roundTrips](t, roundTripsFile); !slices.Equal(got, want) {
		t.Errorf("measured %v, committed %v; try: go test ./classic -run TestRoundTrips -update", got, want)
	}
}

// semaRoundTrips measures package sema for the comparison, without renewals,
// which it does by itself.
func semaRoundTrips(t *testing.T) roundTrips {
	c := newCounter(t, redistest.Start(t))
	store, err := redisengine.New(c.rdb, nil)
	expect.OK(t, err)
	sem, err := sema.New(store, "sem", 1, nil)
	expect.OK(t, err)
	defer func() { _, _ = sem.Close(), store.Close() }()
	acquire := func() *sema.Permit {
		p, err := sem.TryAcquire(t.Context())
		expect.OK(t, err)
		return p
	}
	giveBack := func(p *sema.Permit) {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
	giveBack(acquire())
	// The first grant subscribes, which nobody waits for.
	expect.Until(t, "the subscription", func() bool { return len(c.rdb.PubSubChannels(t.Context(), "*").Val()) == 1 })
	var p *sema.Permit
	return roundTrips{
		Type:    "sema",
		Acquire: c.count(func() { p = acquire() }),
		Refused: c.count(func() {
			if _, err := sem.TryAcquire(t.Context()); !errors.Is(err, sema.ErrBusy) {
				t.Errorf("TryAcquire of a full semaphore: %v", err)
			}
		}),
		Release: c.count(func() { giveBack(p) }),
	}
}

// counter is a client whose writes are counted.
type counter struct {
	rdb    *redis.Client
	writes atomic.Int64
}

func newCounter(t *testing.T, srv *redistest.Server) *counter {
	c := &counter{}
	c.rdb = redis.NewClient(&redis.Options{
		Addr: srv.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &countedConn{conn, c}, err
		},
	})
	t.Cleanup(func() { _ = c.rdb.Close() })
	return c
}

// count returns how many writes f made.
func (c *counter) count(f func()) int {
	before := c.writes.Load()
	f()
	return int(c.writes.Load() - before)
}

type countedConn struct {
	net.Conn
	c *counter
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.c.writes.Add(1)
	return c.Conn.Write(b)
}
