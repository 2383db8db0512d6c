package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelMark as first argument makes launch start a Sentinel; the second is
// its configuration, which Sentinel rewrites as it goes.
const sentinelMark = "sentinel"

// settleTimeout bounds how long a cluster or a replica may take to be ready.
// A Sentinel does nothing for 30 s after its machine stood still.
const settleTimeout = 3 * time.Minute

// Cluster is a Redis Cluster of masters without replicas.
type Cluster struct {
	Nodes []*Server
	tb    TB
}

// StartCluster runs n masters (at least 3) that share the slots evenly.
func StartCluster(tb TB, n int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range n {
		c.Nodes = append(c.Nodes, StartClusterNode(tb, nil))
	}
	FormCluster(tb, c.Nodes, nil)
	return c
}

// StartClusterNode runs a server that can be part of a cluster.
func StartClusterNode(tb TB, env []string, args ...string) *Server {
	tb.Helper()
	// The bus would sit 10,000 above the port, which may not exist.
	return StartEnv(tb, env, append([]string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(FreePort(tb)), "--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0",
	}, args...)...)
}

// FormCluster makes a cluster of nodes: the masters share the slots evenly, and
// replica i follows master i.
func FormCluster(tb TB, masters, replicas []*Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	const slots = 16384
	all := slices.Concat(masters, replicas)
	clients := make([]*redis.Client, len(all))
	for i, s := range all {
		clients[i] = s.Client()
		bus, err := clients[i].ConfigGet(ctx, "cluster-port").Result()
		if err == nil {
			err = clients[0].Do(ctx, "CLUSTER", "MEET", "127.0.0.1", s.port, bus["cluster-port"]).Err()
		}
		if err == nil && i < len(masters) {
			n := len(masters)
			err = clients[i].ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err()
		}
		if err != nil {
			tb.Fatalf("redistest: cluster: %v", err)
		}
	}
	agree := func() {
		for _, cl := range clients {
			await(ctx, tb, "cluster", func() bool {
				info, err := cl.ClusterInfo(ctx).Result()
				return err == nil && strings.Contains(info, "cluster_state:ok") &&
					strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(all)))
			})
		}
	}
	agree()
	for i := range replicas {
		id, err := clients[i].ClusterMyID(ctx).Result()
		if err != nil {
			tb.Fatalf("redistest: cluster: %v", err)
		}
		replica := clients[len(masters)+i]
		await(ctx, tb, "cluster replica", func() bool { return replica.ClusterReplicate(ctx, id).Err() == nil })
		await(ctx, tb, "cluster replica", func() bool {
			info, err := replica.InfoMap(ctx, "replication").Result()
			return err == nil && info["Replication"]["master_link_status"] == "up"
		})
	}
	agree()
}

// Addrs lists host:port of every node.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// URL is the redis+cluster:// address of the cluster.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Client connects to the cluster; it is closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	cl := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: patience, WriteTimeout: patience})
	c.tb.Cleanup(func() { _ = cl.Close() })
	return cl
}

// MoveSlot does what resharding does.
func (c *Cluster) MoveSlot(slot int64, from, to *Server) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	must := func(s *Server, words ...any) any {
		reply, err := s.Client().Do(ctx, words...).Result()
		if err != nil {
			c.tb.Fatalf("redistest: moving slot %d: %v", slot, err)
		}
		return reply
	}
	owner := must(to, "CLUSTER", "MYID")
	must(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", must(from, "CLUSTER", "MYID"))
	must(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", owner)
	for {
		keys := must(from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
		if len(keys) == 0 {
			break
		}
		must(from, append([]any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 5000, "KEYS"}, keys...)...)
	}
	for _, node := range append([]*Server{to, from}, c.Nodes...) {
		must(node, "CLUSTER", "SETSLOT", slot, "NODE", owner)
	}
}

// Sentinel is a master with one replica, watched by three Sentinels.
type Sentinel struct {
	Master    *Server // the master at the start
	Replica   *Server
	Sentinels []*Server
	tb        TB
}

// MasterName is the name the Sentinels know the master by.
const MasterName = "sema-test"

// StartSentinel runs a master, a replica in sync with it, and three Sentinels
// that call the master down after 500 ms of silence.
func StartSentinel(tb TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{tb: tb}
	s.Master = Start(tb, "--repl-diskless-sync-delay", "0")
	s.Replica = Start(tb, "--replicaof", "127.0.0.1 "+strconv.Itoa(s.Master.port), "--repl-diskless-sync-delay", "0")
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	// "Link up" is not enough: a write must arrive.
	cl := s.Master.Client()
	await(ctx, tb, "replica", func() bool {
		conn := cl.Conn()
		defer func() { _ = conn.Close() }()
		if conn.Set(ctx, "redistest:ready", 1, time.Minute).Err() != nil {
			return false
		}
		n, err := conn.Wait(ctx, 1, 200*time.Millisecond).Result()
		return err == nil && n == 1
	})
	for range 3 {
		s.Sentinels = append(s.Sentinels, StartWatcher(tb, s.Master.Addr(), 5*time.Second))
	}
	for _, w := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: w.Addr()})
		await(ctx, tb, "sentinel", func() bool {
			m, err := c.Master(ctx, MasterName).Result()
			return err == nil && m["num-slaves"] == "1" && m["num-other-sentinels"] == "2"
		})
		_ = c.Close()
	}
	return s
}

// StartWatcher runs one Sentinel of three, for the master at addr. It calls it
// down after 500 ms of silence, and tries a failover anew after twice the timeout.
func StartWatcher(tb TB, addr string, failover time.Duration) *Server {
	tb.Helper()
	conf := fmt.Sprintf("bind 127.0.0.1\nsentinel monitor %[1]s %[2]s 2\n"+
		"sentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s %[3]d\n",
		MasterName, strings.ReplaceAll(addr, ":", " "), failover.Milliseconds())
	return start(tb, nil, []string{sentinelMark, conf})
}

// Addrs lists host:port of every Sentinel.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, w := range s.Sentinels {
		addrs[i] = w.Addr()
	}
	return addrs
}

// URL is the redis+sentinel:// address of the master.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/" + MasterName
}

// Client follows the master; it is closed when the test ends.
func (s *Sentinel) Client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs()})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// AwaitMaster waits until the Sentinels agree that srv is the master and it
// takes writes.
func (s *Sentinel) AwaitMaster(srv *Server) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	cl := srv.Client()
	await(ctx, s.tb, "failover", func() bool {
		for _, w := range s.Sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: w.Addr()})
			addr, err := c.GetMasterAddrByName(ctx, MasterName).Result()
			_ = c.Close()
			if err != nil || len(addr) != 2 || addr[1] != strconv.Itoa(srv.port) {
				return false
			}
		}
		return cl.Set(ctx, "redistest:ready", 1, time.Minute).Err() == nil
	})
}

// await asks until ok says yes; the test fails when ctx ends first.
func await(ctx context.Context, tb TB, what string, ok func() bool) {
	tb.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			tb.Fatalf("redistest: %s not ready in time", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
