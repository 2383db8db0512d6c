package ground

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

func merged[S any](all ...map[string]S) map[string]S {
	m := map[string]S{}
	for _, one := range all {
		maps.Copy(m, one)
	}
	return m
}

func TestFaultsOfStandalone(t *testing.T) {
	tryAll(t, "standalone", 2, merged(network, subscriptions, anyServer, aloneServer,
		map[string]sight{"server: kill -9, nothing on disk": dead}))
}

func TestFaultsOfStandaloneWithFile(t *testing.T) {
	tryAll(t, "standalone-aof", 2, merged(network, subscriptions, anyServer, aloneServer, map[string]sight{
		"server: kill -9, append-only file":     dead,
		"server: kill -9, append-only file cut": dead,
	}))
}

func TestFaultsOfStandaloneWithTLS(t *testing.T) {
	tryAll(t, "standalone-tls", 2, merged(network, anyServer, aloneServer,
		map[string]sight{"server: kill -9, nothing on disk": dead}))
}

func TestFaultsOfSentinel(t *testing.T) {
	tryAll(t, "sentinel", 3, merged(network, subscriptions, anyServer, map[string]sight{
		"sentinel: kill -9 of the master":             dead,
		"sentinel: SIGSTOP, SIGCONT of the master":    mute,
		"sentinel: SENTINEL FAILOVER":                 replacedMaster,
		"sentinel: master cut off, one site with it":  replacedMaster,
		"sentinel: replicas cut off, then a failover": replicasBehind,
		"sentinel: one Sentinel down":                 dead,
	}))
}

// The faults are those of Sentinel, and a failover is no excuse for the limit.
func TestSentinelWithReplicas(t *testing.T) {
	t.Parallel()
	g := start(t, "sentinel-replicas")
	for site := range Sites {
		if n := g.Link(site).Replicas; n != 2 {
			t.Errorf("site %d: %d replicas", site, n)
		}
	}
	failovers := 0
	for _, f := range g.Faults() {
		if strings.HasPrefix(f.Name, "sentinel:") {
			failovers++
			if f.Excuses.Limit {
				t.Errorf("%s excuses the limit", f.Name)
			}
		}
	}
	if failovers != 6 {
		t.Errorf("%d faults of Sentinel", failovers)
	}
}

// replacedMaster is another master than before.
var replacedMaster = changed(func(ctx context.Context, s *servers) (*node, error) { return s.agreed(ctx) })

// replicasBehind are replicas that do not get what the master gets.
func replicasBehind(t *testing.T, s *servers) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		n, err := s.agreed(ctx)
		if err != nil {
			return err
		}
		if n.inSync(ctx, len(s.nodes)-1) == nil {
			return errNotSeen
		}
		return nil
	}
}

func TestFaultsOfCluster(t *testing.T) {
	tryAll(t, "cluster", 3, merged(network, subscriptions, anyServer, map[string]sight{
		"cluster: kill -9 of a master":                 dead,
		"cluster: SIGSTOP, SIGCONT of a master":        mute,
		"cluster: CLUSTER FAILOVER":                    otherMasters,
		"cluster: replica cut off, then it takes over": replicaBehind,
		"cluster: slot moves":                          halfMoved,
	}))
}

// otherMasters are others than before.
var otherMasters = changed(func(ctx context.Context, s *servers) (string, error) {
	masters, err := s.masters(ctx)
	return fmt.Sprint(masters), err // which nodes they are
})

// replicaBehind is a replica that does not get what its master gets.
func replicaBehind(t *testing.T, s *servers) func(context.Context, Extent) error {
	return eachMaster(t, s, func(n *node) func(context.Context) error {
		return func(ctx context.Context) error {
			if n.inSync(ctx, 1) == nil {
				return errNotSeen
			}
			return nil
		}
	})
}

// halfMoved is a slot that is on its way: its master says where to.
func halfMoved(t *testing.T, s *servers) func(context.Context, Extent) error {
	expect.OK(t, s.clients[0].Set(expect.Within(t), "sema:{moved}:state", "x", time.Minute).Err())
	return eachMaster(t, s, func(n *node) func(context.Context) error {
		return func(ctx context.Context) error {
			m, err := n.myself(ctx)
			if err == nil && !strings.Contains(strings.Join(m.slots, " "), "->-") {
				err = errNotSeen
			}
			return err
		}
	})
}

// masterDown is a server that does not even read.
func masterDown(_ *testing.T, s *servers) func(context.Context, Extent) error {
	return func(ctx context.Context, _ Extent) error {
		if err := s.nodes[0].admin.Get(ctx, "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "MASTERDOWN") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	}
}
