package ground

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
)

// clusterFaults are failovers of one master, and slots that move.
func (s *servers) clusterFaults() []Fault {
	var replica *node
	// of begins a failover of a master with a replica.
	of := func(begin func(ctx context.Context, old *node) error) func(context.Context, *node, *rand.Rand) error {
		return func(ctx context.Context, old *node, _ *rand.Rand) (err error) {
			if replica, err = s.replicaOf(ctx, old); err != nil {
				return err
			}
			return begin(ctx, old)
		}
	}
	// promoted waits until the replica is master, and takes writes.
	promoted := func(ctx context.Context, _ *node) error {
		return until(ctx, func(ctx context.Context) error {
			m, err := replica.myself(ctx)
			if err == nil && !m.is("master") {
				err = errStillMaster
			}
			if err == nil {
				err = write(ctx, replica.admin)
			}
			return err
		})
	}
	failovers := s.each(
		serverFault{
			name: "cluster: kill -9 of a master", note: "its replica takes over; it comes back as a replica", failover: true, excuses: forgets,
			begin: of(func(_ context.Context, old *node) error { old.Kill(); return nil }),
			end: func(ctx context.Context, old *node) error {
				if err := promoted(ctx, old); err != nil {
					return err
				}
				old.Restart()
				return nil
			},
		},
		serverFault{
			name: "cluster: SIGSTOP, SIGCONT of a master", note: "it wakes when its replica has taken over", failover: true, excuses: forgets,
			begin: of(func(_ context.Context, old *node) error { old.Stop(); return nil }),
			end: func(ctx context.Context, old *node) error {
				err := promoted(ctx, old)
				old.Continue()
				return err
			},
		},
		serverFault{
			name: "cluster: CLUSTER FAILOVER", note: "asked for by an operator: the replica waits until it has everything", failover: true,
			begin: of(func(ctx context.Context, _ *node) error { return replica.admin.ClusterFailover(ctx).Err() }), end: promoted,
		},
		serverFault{
			name: "cluster: replica cut off, then it takes over", note: "the master goes on granting, its replica gets nothing of it; then CLUSTER FAILOVER TAKEOVER",
			lasts: long, failover: true, excuses: forgets,
			begin: of(func(_ context.Context, old *node) error { old.cutReplicas(); return nil }),
			end: func(ctx context.Context, old *node) error {
				err := replica.admin.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err()
				if err == nil {
					err = promoted(ctx, old)
				}
				old.healReplicas()
				return err
			},
		})
	var m migration
	return append(failovers, Fault{
		Name: "cluster: slot moves", Note: "of a semaphore, key by key to another master, and stays half moved for a while", Alone: true,
		Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) { return Extent{}, m.begin(ctx, s, r) },
		End: func(ctx context.Context) error {
			if err := m.end(ctx, s); err != nil {
				return err
			}
			return until(ctx, s.whole)
		},
	})
}

// replicaOf is a replica of a master.
func (s *servers) replicaOf(ctx context.Context, master *node) (*node, error) {
	of, err := master.myself(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		if m, err := n.myself(ctx); err == nil && m.master == of.id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s has no replica", master.known)
}

// migration is one slot on its way.
type migration struct {
	slot     int
	from, to *node
}

// begin moves the first half of a slot's keys.
func (m *migration) begin(ctx context.Context, s *servers, r *rand.Rand) error {
	var err error
	if m.from, err = s.master(ctx, r); err != nil {
		return err
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return err
	}
	masters = slices.DeleteFunc(masters, func(n *node) bool { return n == m.from })
	m.to = masters[r.IntN(len(masters))]
	keys, err := scan(ctx, m.from.admin, "sema:{*}:state")
	if err != nil {
		return err
	}
	if len(keys) == 0 { // no semaphore there: any slot of its own
		own, err := writeKey(ctx, m.from.admin)
		if err != nil {
			return err
		}
		keys = []string{own}
	}
	slot, err := m.from.admin.ClusterKeySlot(ctx, keys[r.IntN(len(keys))]).Result()
	if err != nil {
		return err
	}
	m.slot = int(slot)
	from, err := m.from.myself(ctx)
	if err != nil {
		return err
	}
	to, err := m.to.myself(ctx)
	if err != nil {
		return err
	}
	if err := m.to.admin.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", from.id).Err(); err != nil {
		return err
	}
	if err := m.from.admin.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", to.id).Err(); err != nil {
		return err
	}
	return m.move(ctx, true)
}

// move moves the slot's keys, or half of them.
func (m *migration) move(ctx context.Context, half bool) error {
	keys, err := m.from.admin.ClusterGetKeysInSlot(ctx, m.slot, 10_000).Result()
	if err != nil {
		return err
	}
	if half {
		keys = keys[:(len(keys)+1)/2]
	}
	for _, key := range keys {
		// A key that has ended meanwhile is NOKEY, which is no error.
		if err := m.from.admin.Do(ctx, "MIGRATE", "127.0.0.1", m.to.Port(), key, 0, 1000).Err(); err != nil {
			return fmt.Errorf("MIGRATE: %w", err)
		}
	}
	return nil
}

// end moves the rest, and tells all masters. While keys are moved no new ones come
// to the old master: it sends clients on.
func (m *migration) end(ctx context.Context, s *servers) error {
	if err := m.move(ctx, false); err != nil {
		return err
	}
	to, err := m.to.myself(ctx)
	if err != nil {
		return err
	}
	for _, n := range append([]*node{m.to, m.from}, s.nodes...) {
		of, err := n.myself(ctx)
		if err != nil {
			return err
		}
		if !of.is("master") {
			continue
		}
		if err := n.admin.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", to.id).Err(); err != nil {
			return fmt.Errorf("SETSLOT: %w", err)
		}
	}
	return nil
}
