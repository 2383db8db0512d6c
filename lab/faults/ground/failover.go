package ground

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"sema/lab/redistest"
)

// sentinelFaults are failovers. Replication is asynchronous: what the old master
// granted last may be forgotten, and one that is cut off goes on granting.
func (s *servers) sentinelFaults() []Fault {
	var old, down *node
	var separate func(on bool)
	stale := func(ctx context.Context, r *rand.Rand) (err error) {
		old, err = s.master(ctx, r)
		return err
	}
	restored := func(ctx context.Context) error { return until(ctx, s.whole) }
	return []Fault{
		{
			Name: "sentinel: kill -9 of the master", Note: "it comes back as a replica once another is master", For: time.Second,
			Excuses: forgets, Alone: true,
			Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
				err := stale(ctx, r)
				if err == nil {
					old.Kill()
				}
				return Extent{}, err
			},
			End: func(ctx context.Context) error {
				next, err := s.replaced(ctx, old)
				if err != nil {
					return err
				}
				return caught(func() error {
					old.Restart()
					if err := old.admin.Do(ctx, "REPLICAOF", "127.0.0.1", port(next.known)).Err(); err != nil {
						return err
					}
					return restored(ctx)
				})
			},
		},
		{
			Name: "sentinel: SIGSTOP, SIGCONT of the master", Note: "it wakes when another is master, and takes itself for the master until a Sentinel tells it", For: time.Second,
			Excuses: forgets, Alone: true,
			Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
				if err := stale(ctx, r); err != nil {
					return Extent{}, err
				}
				return Extent{}, caught(func() error { old.Stop(); return nil })
			},
			End: func(ctx context.Context) error {
				_, err := s.replaced(ctx, old)
				return caught(func() error {
					old.Continue()
					if err != nil {
						return err
					}
					return restored(ctx)
				})
			},
		},
		{
			Name: "sentinel: SENTINEL FAILOVER", Note: "asked for by an operator", Excuses: forgets, Alone: true,
			Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
				if err := stale(ctx, r); err != nil {
					return Extent{}, err
				}
				return Extent{}, s.askFailover(ctx, old)
			},
			End: func(ctx context.Context) error {
				return restored(ctx)
			},
		},
		{
			Name: "sentinel: master cut off, one site with it", For: 2 * time.Second,
			Note:    "one site reaches the old master only, the others all but it: split brain",
			Excuses: forgets, Alone: true,
			Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
				if err := stale(ctx, r); err != nil {
					return Extent{}, err
				}
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
				return Extent{}, nil
			},
			End: func(ctx context.Context) error {
				_, err := s.replaced(ctx, old)
				separate(false)
				if err != nil {
					return err
				}
				return restored(ctx)
			},
		},
		{
			Name: "sentinel: replicas cut off, then a failover", For: 2 * time.Second,
			Note:    "the master goes on granting, its replicas get nothing of it; then it is killed",
			Excuses: forgets, Alone: true,
			Begin: func(ctx context.Context, r *rand.Rand) (Extent, error) {
				err := stale(ctx, r)
				if err == nil {
					old.peers.Change(func(t *redistest.Trouble) { t.SilentReplication = true })
				}
				return Extent{}, err
			},
			End: func(ctx context.Context) error {
				old.Kill()
				next, err := s.replaced(ctx, old)
				old.peers.DropAll() // the replicas shall not hear afterwards what they missed
				old.peers.Change(func(t *redistest.Trouble) { t.SilentReplication = false })
				if err != nil {
					return err
				}
				return caught(func() error {
					old.Restart()
					if err := old.admin.Do(ctx, "REPLICAOF", "127.0.0.1", port(next.known)).Err(); err != nil {
						return err
					}
					return restored(ctx)
				})
			},
		},
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
					return restored(ctx)
				})
			},
		},
	}
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
