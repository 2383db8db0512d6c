package redisson_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// listeners is how many connections listen on a channel. Each node knows only its
// own.
func listeners(ctx context.Context, rdb *redis.ClusterClient, channel string, sharded bool) int64 {
	var sum atomic.Int64
	_ = rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		ask := node.PubSubNumSub
		if sharded {
			ask = node.PubSubShardNumSub
		}
		sum.Add(ask(ctx, channel).Val()[channel])
		return nil
	})
	return sum.Load()
}

// A client for one server works with some names at a node of a cluster. So it fails with all of them, at once.
func TestAClientOfOneServerAtANodeOfACluster(t *testing.T) {
	t.Parallel()
	cluster, one := redistest.StartCluster(t, 2), redistest.StartClusterNode(t, nil)
	redistest.FormCluster(t, []*redistest.Server{one}, nil)
	ctx := expect.Within(t)
	use := func(addr, name string) error {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		_, err := counter(t, newClient(t, rdb, redisson.Options{}), name).TrySetPermits(ctx, 1, 0)
		return err
	}
	for i := range 6 {
		name, began := strconv.Itoa(i), time.Now()
		if err := use(cluster.Nodes[0].Addr(), name); err == nil || !strings.Contains(err.Error(), "NewClusterClient") || time.Since(began) > 2*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
		expect.OK(t, use(one.Addr(), name)) // the cluster has no other node
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	rdb, ctx := cluster.Client(), expect.Within(t)

	for _, mode := range []redisson.Channels{redisson.AutoChannels, redisson.PlainChannels, redisson.ShardedChannels} {
		sharded := mode != redisson.PlainChannels
		c := newClient(t, rdb, redisson.Options{Poll: slow, Channels: mode})
		for _, name := range []string{"a", "b", "c", "x{y}z"} {
			channel := "redisson_sc:{" + name + "}"
			if name == "x{y}z" {
				channel = "redisson_sc:" + name
			}
			s, e := counter(t, c, name), expirable(t, c, name)
			_, err := s.Delete(ctx)
			expect.OK(t, err)
			wants(t, "create", true)(s.TrySetPermits(ctx, 0, 0))
			for range 2 {
				waiting := acquiring(func() error { return s.Acquire(ctx, 2) })
				expect.Until(t, "subscription", func() bool { return listeners(ctx, rdb, channel, sharded) == 1 })
				expect.OK(t, e.AddPermits(ctx, 2))
				expect.OK(t, errorOf(t, "woken", waiting))
				expect.Until(t, "end of subscription", func() bool { return listeners(ctx, rdb, channel, sharded) == 0 })
			}
			expect.OK(t, s.Release(ctx, 1))
			id, err := e.TryAcquire(ctx, time.Hour)
			expect.OK(t, err)
			expect.OK(t, e.Release(ctx, id))
			wants(t, "available", 1)(e.AvailablePermits(ctx))
		}
		var wrong *redisson.ArgumentError
		if _, err := c.Semaphore("a{b"); !errors.As(err, &wrong) || wrong.What != "name" {
			t.Fatalf("a name of two slots: %v", err)
		}
	}

	// When a slot moves away, the server ends its sharded subscriptions. Waiters
	// must find the new node, with the next poll at the latest, and be woken by
	// messages there.
	c := newClient(t, rdb, redisson.Options{Poll: 50 * time.Millisecond})
	s := counter(t, c, "moving")
	wants(t, "create", true)(s.TrySetPermits(ctx, 0, 0))
	const channel = "redisson_sc:{moving}"
	waiting := acquiring(func() error { return s.Acquire(ctx, 1) })
	expect.Until(t, "subscription", func() bool { return listeners(ctx, rdb, channel, true) == 1 })
	slot := cluster.Nodes[0].Client().ClusterKeySlot(ctx, "moving").Val()
	owner := int(slot) * len(cluster.Nodes) / 16384
	cluster.MoveSlot(slot, cluster.Nodes[owner], cluster.Nodes[(owner+1)%len(cluster.Nodes)])
	expect.Until(t, "subscription on the new node", func() bool { return listeners(ctx, rdb, channel, true) == 1 })
	expect.OK(t, s.Release(ctx, 1))
	expect.OK(t, errorOf(t, "waiter", waiting))
}

// A cluster client sends requests again in a way of its own. It must not do so
// with ours.
func TestClusterSendsOnceWithoutReceipts(t *testing.T) {
	t.Parallel()
	cluster, ctx := redistest.StartCluster(t, 3), expect.Within(t)
	var proxies []*redistest.Proxy
	way := map[string]string{}
	for _, addr := range cluster.Addrs() {
		p := redistest.StartProxy(t, addr)
		proxies = append(proxies, p)
		way[addr] = p.Addr()
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), MaxRedirects: 5, MaxRetries: 3,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, way[addr])
		},
	})
	defer func() { _ = rdb.Close() }()
	for _, o := range []redisson.Options{{NoReceipts: true}, {}} {
		s := counter(t, newClient(t, rdb, o), "s")
		_, err := s.Delete(ctx)
		expect.OK(t, err)
		wants(t, "create", true)(s.TrySetPermits(ctx, 9, 0))
		expect.OK(t, s.TryAcquire(ctx, 1))
		for _, p := range proxies {
			p.LoseReplies()
		}
		result := acquiring(func() error { return s.TryAcquire(ctx, 1) })
		var unknown *redisson.UnknownError
		if o.NoReceipts {
			if err := errorOf(t, "acquire", result); !errors.As(err, &unknown) {
				t.Fatalf("acquire: %v", err)
			}
		}
		plain := cluster.Client()
		expect.Until(t, "execution", func() bool { return plain.Get(ctx, "s").Val() == "7" })
		for _, p := range proxies {
			p.Resume()
		}
		if !o.NoReceipts {
			expect.OK(t, errorOf(t, "acquire", result))
		}
		wants(t, "executed once", 7)(s.AvailablePermits(ctx))
	}
}

func TestRingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	var wrong *redisson.ArgumentError
	if _, err := redisson.New(ring, nil); !errors.As(err, &wrong) || wrong.What != "client" {
		t.Fatal(err)
	}
}
