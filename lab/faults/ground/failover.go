package ground

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"sema/internal/fixture/redistest"
)

// sentinelFaults are failovers: another node is master then. Replication is asynchronous, so
// what the old master granted last may be forgotten. One that is cut off goes on granting.
func (s *servers) sentinelFaults() []Fault {
	var down *node
	var separate func(on bool)
	// follow starts the old master again as a replica of the next one.
	follow := func(ctx context.Context, old *node) error {
		next, err := s.replaced(ctx, old)
		if err != nil {
			return err
		}
		old.Restart()
		return old.admin.Do(ctx, "REPLICAOF", "127.0.0.1", port(next.known)).Err()
	}
	failovers := s.each(
		serverFault{
			name: "sentinel: kill -9 of the master", note: "it comes back as a replica once another is master", failover: true, excuses: forgets,
			begin: kill, end: follow,
		},
		serverFault{
			name: "sentinel: SIGSTOP, SIGCONT of the master", note: "it wakes when another is master, and takes itself for the master until a Sentinel tells it",
			failover: true, excuses: forgets, begin: freeze,
			end: func(ctx context.Context, old *node) error {
				_, err := s.replaced(ctx, old)
				old.Continue()
				return err
			},
		},
		serverFault{
			name: "sentinel: SENTINEL FAILOVER", note: "asked for by an operator", failover: true, excuses: forgets,
			begin: func(ctx context.Context, old *node, _ *rand.Rand) error { return s.askFailover(ctx, old) }, end: over,
		},
		serverFault{
			name: "sentinel: master cut off, one site with it", note: "one site reaches the old master only, the others all but it: split brain",
			lasts: long, failover: true, excuses: forgets,
			begin: func(_ context.Context, old *node, r *rand.Rand) error {
				site := r.IntN(Sites)
				rest := slices.DeleteFunc(s.all(), func(n *node) bool { return n == old })
				separate = func(on bool) {
					hit := append(s.proxies(site, rest...), old.peers)
					for i := range Sites {
						if i != site {
							hit = append(hit, s.proxies(i, old)...)
						}
					}
					for _, p := range hit {
						p.Change(func(t *redistest.Trouble) { t.Silent = on })
					}
				}
				separate(true)
				return nil
			},
			end: func(ctx context.Context, old *node) error {
				_, err := s.replaced(ctx, old)
				separate(false)
				return err
			},
		},
		serverFault{
			name: "sentinel: replicas cut off, then a failover", note: "the master goes on granting, its replicas get nothing of it; then it is killed",
			lasts: long, failover: true, excuses: forgets,
			begin: func(_ context.Context, old *node, _ *rand.Rand) error { old.cutReplicas(); return nil },
			end: func(ctx context.Context, old *node) error {
				old.Kill()
				_, err := s.replaced(ctx, old)
				old.healReplicas()
				if err != nil {
					return err
				}
				return follow(ctx, old)
			},
		})
	return append(failovers, Fault{
		Name: "sentinel: one Sentinel down", Note: "kill -9; the other two suffice", Alone: true,
		Begin: func(_ context.Context, r *rand.Rand) (Extent, error) {
			down = s.watchers[r.IntN(len(s.watchers))]
			down.Kill()
			return Extent{}, nil
		},
		End: func(ctx context.Context) error {
			return caught(func() error {
				down.Restart()
				hurry(ctx, down)
				return until(ctx, s.whole)
			})
		},
	})
}

// cutReplicas keeps what is written from now on from the node's replicas.
func (n *node) cutReplicas() {
	n.peers.Change(func(t *redistest.Trouble) { t.SilentReplication = true })
}

// healReplicas ends that. What was kept from them they do not hear afterwards.
func (n *node) healReplicas() {
	n.peers.DropAll()
	n.peers.Change(func(t *redistest.Trouble) { t.SilentReplication = false })
}

// replaced waits until another node than old is master by all Sentinels.
func (s *servers) replaced(ctx context.Context, old *node) (next *node, err error) {
	err = until(ctx, func(ctx context.Context) error {
		if next, err = s.agreed(ctx); err == nil && next == old {
			err = errStillMaster
		}
		return err
	})
	return next, err
}

// askFailover asks for another master than old, again where a failover was given
// up: on a busy machine its steps take too long.
func (s *servers) askFailover(ctx context.Context, old *node) error {
	return until(ctx, func(ctx context.Context) error {
		asked := s.watchers[0].admin.Do(ctx, "SENTINEL", "FAILOVER", redistest.MasterName).Err()
		while, cancel := context.WithTimeout(ctx, 4*failoverTime)
		defer cancel()
		_, err := s.replaced(while, old)
		if err != nil {
			err = errors.Join(err, asked)
		}
		return err
	})
}

var errStillMaster = errors.New("no other master yet")
