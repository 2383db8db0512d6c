package shares

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/engines/fileengine"
	"sema/engines/pgengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/history"
)

// Role makes this program one whose processes can be started for a world. It is for
// before child.Play.
func Role() { child.Role(role, work) }

// open is an engine on what a URL names: redis://, unix://, file:// or postgres://.
func open(ctx context.Context, url string) (e sema.Engine, close func() error, err error) {
	if dir, ok := strings.CutPrefix(url, "file://"); ok {
		if e, err = fileengine.New(dir, nil); err != nil {
			return nil, nil, err
		}
		return e, e.Close, nil
	}
	if strings.HasPrefix(url, "postgres://") {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		e, err := pgengine.New(pool, nil)
		if err != nil {
			pool.Close()
			return nil, nil, err
		}
		return e, func() error { defer pool.Close(); return e.Close() }, nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	e, err = redisengine.New(rdb, nil)
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return e, func() error { return errors.Join(e.Close(), rdb.Close()) }, nil
}

// operate calls f with an operator of the world's semaphore.
func (w World) operate(ctx context.Context, url string, f func(o *sema.Operator) error) error {
	e, end, err := open(ctx, url)
	if err != nil {
		return err
	}
	operator, err := sema.Operate(e, w.Name)
	if err != nil {
		return errors.Join(err, end())
	}
	return errors.Join(f(operator), operator.Close(), end())
}

// holds waits until a process holds something.
func (w World) holds(ctx context.Context, url string, pid int) error {
	return w.operate(ctx, url, func(o *sema.Operator) error {
		for {
			st, err := o.State(ctx)
			if err != nil || slices.ContainsFunc(st.Holders, func(h engine.Holder) bool { return h.Client.PID == pid }) {
				return err
			}
			sleep(ctx, time.Millisecond)
		}
	})
}

// State is what the engine has of the world's semaphore.
func (w World) State(ctx context.Context, url string) (st sema.State, err error) {
	return st, w.operate(ctx, url, func(o *sema.Operator) error {
		st, err = o.State(ctx)
		return err
	})
}

// rules gives tenants their rules.
func (w World) rules(ctx context.Context, url string) error {
	return w.operate(ctx, url, func(o *sema.Operator) error { return w.set(ctx, o) })
}

func (w World) set(ctx context.Context, operator *sema.Operator) (err error) {
	set := func(r sema.Rule, path ...string) { err = errors.Join(err, operator.Set(ctx, r, path...)) }
	if w.Order == Shares {
		set(sema.Rule{Limit: w.Limit, Caps: w.Caps})
		for _, t := range w.Tenants {
			if t.Share != 0 || t.Cap != 0 {
				set(sema.Rule{Limit: t.Cap, Share: t.Share}, strings.Split(t.Key, "/")...)
			}
		}
	}
	return err
}

// worker is a process of a world.
type worker struct {
	job
	sem   *sema.Semaphore
	group *each.Group                // of TwoLevel
	pools map[string]*sema.Semaphore // of InTurn

	ops    atomic.Int64
	mu     sync.Mutex
	queued map[string]int64 // when a permit was first known to wait, by id
	log    history.Log
}

func work(j job) error {
	e, end, err := open(context.Background(), j.URL)
	if err != nil {
		return err
	}
	w := &worker{job: j, queued: map[string]int64{}, pools: map[string]*sema.Semaphore{}}
	options := &sema.Options{Lease: j.lease(), Observer: sema.Observer{Queued: w.note}}
	switch j.Order {
	case Shares:
		options.Caps = j.Caps
	case AtOnce:
		options.Pools = j.Pools
	case InTurn:
		for pool, n := range j.Pools.All() {
			if w.pools[pool], err = sema.New(e, j.Name+" "+pool, n, nil); err != nil {
				return err
			}
		}
	}
	if w.sem, err = sema.New(e, j.Name, j.Limit, options); err != nil {
		return err
	}
	if w.group, err = each.New(e, j.Name, cmp.Or(j.Caps[0], j.Limit), nil); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := child.Order(); err != nil {
		return err
	}
	err = w.play()
	for _, pool := range w.pools {
		err = errors.Join(err, pool.Close())
	}
	return errors.Join(err, w.group.Close(), w.sem.Close(), end(), w.log.Write(os.Stdout))
}

// note is told that a permit waits.
func (w *worker) note(q sema.Event) {
	at := history.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.Permit != "" && w.queued[q.Permit] == 0 {
		w.queued[q.Permit] = at
	}
}

// waited is since when a permit was known to wait, which is over; 0: never.
func (w *worker) waited(id string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.queued[id]
	delete(w.queued, id)
	return at
}

// play has the callers of this process play until they are through, or are told to stop.
func (w *worker) play() error {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	if w.Rounds == 0 {
		go func() {
			_, err := child.Order()
			stop(err)
		}()
	}
	var all sync.WaitGroup
	for i, t := range w.Tenants {
		for c := range t.Callers {
			if (i+c)%w.Processes != w.Process {
				continue
			}
			r := rand.New(rand.NewPCG(w.Seed, uint64(i)<<32|uint64(c)))
			all.Go(func() {
				if err := w.caller(ctx, t, r); err != nil {
					stop(err)
				}
			})
		}
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// caller acquires, holds and gives back, again and again.
func (w *worker) caller(ctx context.Context, t Tenant, r *rand.Rand) error {
	for round := 0; w.Rounds == 0 || round < w.Rounds; round++ {
		if t.Idle > 0 && !sleep(ctx, time.Duration(r.ExpFloat64()*float64(t.Idle))) {
			return nil
		}
		weight := 1 + r.IntN(max(1, t.Weight))
		op := w.ops.Add(1)
		say := func(e history.Event) {
			e.Worker, e.Op = w.Process, op
			w.log.Note(e)
		}
		called := history.Now()
		say(history.Event{At: called, Kind: history.Call, Key: t.Key, Weight: weight})
		p, release, err := w.acquire(ctx, t, weight)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		got := history.Now()
		say(history.Event{At: got, Kind: history.Got, Permit: p.ID(), Token: p.Token(), Held: got})
		if at := w.waited(p.ID()); at > called { // it may have been another caller's before
			say(history.Event{At: at, Kind: history.Queued})
		}
		sleep(ctx, t.Hold)
		ends := history.Now()
		say(history.Event{At: ends, Kind: history.Release, Held: ends})
		if err := release(); err != nil && !errors.Is(err, sema.ErrEngine) { // it is repeated then, and the hold has ended
			return err
		}
		say(history.Event{At: history.Now(), Kind: history.Released})
	}
	return nil
}

// acquire is one acquisition as the world's order has it.
func (w *worker) acquire(ctx context.Context, t Tenant, weight int) (*sema.Permit, func() error, error) {
	options := []sema.AcquireOption{sema.Weight(weight)}
	release := func() error { return nil }
	switch w.Order {
	case Shares:
		options = append(options, sema.For(strings.Split(t.Key, "/")...))
	case Flat:
		options = append(options, sema.For(t.Key))
	case TwoLevel:
		own, err := w.group.Acquire(ctx, t.Key, options...)
		if err != nil {
			return nil, nil, err
		}
		release = own.Release
	case AtOnce:
		for pool, n := range t.Takes.All() {
			options = append(options, sema.Take(pool, n))
		}
	case InTurn:
		for pool, n := range t.Takes.All() {
			own, err := w.pools[pool].Acquire(ctx, sema.Weight(n))
			if err != nil {
				return nil, nil, errors.Join(err, release())
			}
			before := release
			release = func() error { return errors.Join(own.Release(), before()) }
		}
	}
	p, err := w.sem.Acquire(ctx, options...)
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return p, func() error { return errors.Join(p.Release(), release()) }, nil
}

// sleep reports whether the context lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
