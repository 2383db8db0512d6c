package ground

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"sema/internal/fixture/redistest"
)

// failover makes a fault after which another node is master: replication is
// asynchronous, so what the old master granted last may be forgotten. It has ended
// when all nodes have their places again.
func (s *servers) failover(f Fault, begin func(ctx context.Context, r *rand.Rand) error, end func(ctx context.Context) error) Fault {
	f.Excuses, f.Alone = forgets, true
	f.Begin = func(ctx context.Context, r *rand.Rand) (Extent, error) {
		return Extent{}, caught(func() error { return begin(ctx, r) })
	}
	f.End = func(ctx context.Context) error {
		if err := caught(func() error { return end(ctx) }); err != nil {
			return err
		}
		return until(ctx, s.whole)
	}
	return f
}

// sentinelFaults are failovers. A master that is cut off goes on granting.
func (s *servers) sentinelFaults() []Fault {
	var old, down *node
	var separate func(on bool)
	// fault is a failover that begins with an action on the old master.
	fault := func(f Fault, begin func(ctx context.Context, r *rand.Rand) error, end func(ctx context.Context) error) Fault {
		return s.failover(f, func(ctx context.Context, r *rand.Rand) (err error) {
			if old, err = s.master(ctx, r); err != nil {
				return err
			}
			return begin(ctx, r)
		}, end)
	}
	// follow starts the old master again as a replica of the next one.
	follow := func(ctx context.Context, next *node) error {
		old.Restart()
		return old.admin.Do(ctx, "REPLICAOF", "127.0.0.1", port(next.known)).Err()
	}
	return []Fault{
		fault(Fault{Name: "sentinel: kill -9 of the master", Note: "it comes back as a replica once another is master", For: time.Second},
			func(context.Context, *rand.Rand) error { old.Kill(); return nil },
			func(ctx context.Context) error {
				next, err := s.replaced(ctx, old)
				if err != nil {
					return err
				}
				return follow(ctx, next)
			}),
		fault(Fault{Name: "sentinel: SIGSTOP, SIGCONT of the master", Note: "it wakes when another is master, and takes itself for the master until a Sentinel tells it", For: time.Second},
			func(context.Context, *rand.Rand) error { old.Stop(); return nil },
			func(ctx context.Context) error {
				_, err := s.replaced(ctx, old)
				old.Continue()
				return err
			}),
		fault(Fault{Name: "sentinel: SENTINEL FAILOVER", Note: "asked for by an operator"},
			func(ctx context.Context, _ *rand.Rand) error { return s.askFailover(ctx, old) },
			func(context.Context) error { return nil }),
		fault(Fault{Name: "sentinel: master cut off, one site with it", Note: "one site reaches the old master only, the others all but it: split brain", For: 2 * time.Second},
			func(_ context.Context, r *rand.Rand) error {
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
			func(ctx context.Context) error {
				_, err := s.replaced(ctx, old)
				separate(false)
				return err
			}),
		fault(Fault{Name: "sentinel: replicas cut off, then a failover", Note: "the master goes on granting, its replicas get nothing of it; then it is killed", For: 2 * time.Second},
			func(context.Context, *rand.Rand) error { old.cutReplicas(); return nil },
			func(ctx context.Context) error {
				old.Kill()
				next, err := s.replaced(ctx, old)
				old.healReplicas()
				if err != nil {
					return err
				}
				return follow(ctx, next)
			}),
		{
			Name: "sentinel: one Sentinel down", Note: "kill -9; the other two suffice", For: time.Second, Alone: true,
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
		},
	}
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
