package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

func clusterEngine(t *testing.T, c *redistest.Cluster) sema.Engine {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return closing(t, rdb)
}

// shardChannels counts the inboxes with subscriptions, on one node or all.
func shardChannels(t *testing.T, nodes ...*redistest.Server) int {
	t.Helper()
	n := 0
	for _, node := range nodes {
		c := node.Client()
		list, err := c.PubSubShardChannels(expect.Within(t), "*").Result()
		expect.OK(t, err)
		expect.OK(t, c.Close())
		n += len(list)
	}
	return n
}

// A semaphore's slot moves to another node during a wait: the waiter's
// subscription follows, and it is served.
func TestTheSlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	ctx := expect.Within(t)
	o := &sema.Options{Lease: time.Minute, Patient: true} // starved nodes are no reason to give up
	s := openSem(t, clusterEngine(t, c), "x", 1, o)
	p := acquire(t, s)
	w := queue(t, openSem(t, clusterEngine(t, c), "x", 1, o))
	slot := c.Nodes[0].Client().ClusterKeySlot(ctx, "sema:{x}:state").Val()
	from := slotOwner(c, slot)
	for i := range 2 { // twice: after the first move, the connection to the first node has ended
		to := (from + 1) % 3
		c.MoveSlot(slot, c.Nodes[from], c.Nodes[to])
		expect.Until(t, "the inbox's move", func() bool { return shardChannels(t, c.Nodes[to]) > 0 })
		expect.Until(t, fmt.Sprintf("move %d: no subscription at the old node", i), func() bool { return shardChannels(t, c.Nodes[from]) == 0 })
		from = to
	}
	if err := p.Err(); err != nil {
		t.Fatalf("the holder lost its permit: %v", err)
	}
	expect.OK(t, p.Release())
	expect.OK(t, w.permit(t).Release())
	wholeLimit(t, s, 1)
}

// slotOwner is the node that StartCluster gave the slot to.
func slotOwner(c *redistest.Cluster, slot int64) int {
	n := len(c.Nodes)
	for i := range n {
		if slot < int64((i+1)*16384/n) {
			return i
		}
	}
	return n - 1
}

// Subscriptions to channels of several slots come back after their connections
// were cut. One command for all of them would be refused (CROSSSLOT), and the
// waiters would receive no messages from then on.
func TestClusterSubscriptionsAreCut(t *testing.T) {
	t.Parallel()
	const semaphores = 12
	c := redistest.StartCluster(t, 3)
	ctx := expect.Within(t)
	o := &sema.Options{Lease: 10 * time.Minute} // no waiter asks again in time
	holder, waiter := clusterEngine(t, c), clusterEngine(t, c)
	var held []*sema.Permit
	var line []*waiting
	for i := range semaphores {
		name := fmt.Sprint("job ", i)
		held = append(held, acquire(t, openSem(t, holder, name, 1, o)))
		line = append(line, queue(t, openSem(t, waiter, name, 1, o)))
	}
	listening := func() bool { return shardChannels(t, c.Nodes...) == 2*semaphores } // each holder, and each waiter
	expect.Until(t, "listening to each", listening)
	for range 3 {
		for _, node := range c.Nodes {
			expect.OK(t, node.Client().ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
		}
		expect.Until(t, "listening to each again", listening)
	}
	for i, p := range held {
		expect.OK(t, p.Release())
		expect.OK(t, line[i].permit(t).Release())
	}
}

// All parts of a state are read from one server, also if the client may read
// from several.
func TestClusterStateInParts(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true, RouteRandomly: true})
	t.Cleanup(func() { _ = rdb.Close() })
	e := readBy(closing(t, rdb), 5)
	for i := range 5 {
		s := session(t, e, fmt.Sprint("x", i))
		s.do(s.many(protocol.Ask, 1, 110, time.Hour)...)
		if st := timeless(t, s); len(st.Holders) != 100 || len(st.Waiters) != 10 || st.Used != 100 {
			t.Errorf("%d hold %d, %d wait", len(st.Holders), st.Used, len(st.Waiters))
		}
	}
}

func cluster(tb testing.TB) enginetest.Store {
	c := redistest.StartCluster(tb, 3)
	return enginetest.Store{
		Client: func(tb testing.TB) sema.Engine {
			return closing(tb, redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: c.Addrs(), ContextTimeoutEnabled: true, ReadBufferSize: buffer, WriteBufferSize: buffer,
				MaintNotificationsConfig: noNews(), DisableRoutingPolicies: true, // otherwise each client asks for the list of all commands
			}))
		},
	}
}

func closing(tb testing.TB, rdb redis.UniversalClient) sema.Engine {
	e, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
		e, rdb = nil, nil // package testing keeps this function until all tests have ended, and with it e and rdb
	})
	return e
}

func TestPromisesOnCluster(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, cluster)
}
