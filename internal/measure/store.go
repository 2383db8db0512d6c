package measure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

// Store is where semaphores live: what the contestants that this package knows
// are made of.
type Store struct {
	Engine sema.Engine
	Redis  redis.UniversalClient // below the engine, or nil

	// Commit is what a database below the engine has to do at least to keep something: a transaction
	// that writes, and waits for the disk. Nil: there is none.
	Commit func(context.Context) error
}

// Gate opens a contestant.
func (s Store) Gate(ctx context.Context, o Setup) (g Gate, err error) {
	open := map[string]func(context.Context, Setup) (Gate, error){
		"sema":              s.sema,
		"channel":           s.channel,
		"commits":           s.commits,
		"noop-pool":         s.noop,
		"noop-autopipeline": s.noop,
		"message":           s.message,
		"queue":             s.queue,
		"hold":              s.holding,
		"idle":              s.idle,
		"newcomer":          s.newcomer,
	}[o.Contestant]
	if open == nil {
		return g, fmt.Errorf("unknown contestant %q", o.Contestant)
	}
	if g, err = open(ctx, o); err == nil && o.Units > 1 {
		g = g.Times(o.Units)
	}
	return g, err
}

// semaphores makes n semaphores; closing gives back all that they hold, and is
// never nil.
func (s Store) semaphores(n, limit int, options *sema.Options, name func(i int) string) (all []*sema.Semaphore, closing func() error, err error) {
	closing = func() error {
		// A closed engine refuses at once what a server that is gone would keep
		// waiting.
		forced := time.AfterFunc(quitTimeout/2, func() { _ = s.Engine.Close() })
		defer forced.Stop()
		var group sync.WaitGroup
		for _, one := range all {
			group.Go(func() { _ = one.Close() }) // the run removes what is left
		}
		group.Wait()
		return nil
	}
	for i := range n {
		one, err := sema.New(s.Engine, name(i), limit, options)
		if err != nil {
			return nil, closing, err
		}
		all = append(all, one)
	}
	return all, closing, nil
}

// options are those of a contestant's semaphores.
func (s Setup) options() *sema.Options {
	return &sema.Options{Lease: s.Lease(), Keep: time.Duration(s.KeepUS) * time.Microsecond}
}

// sema is acquire and release, as users do it.
func (s Store) sema(_ context.Context, o Setup) (Gate, error) {
	all, closing, err := s.semaphores(max(1, o.Names), o.Limit, o.options(), func(i int) string { return nth(o, i) })
	return Gate{Close: closing, Work: func(ctx context.Context, worker int, held func()) error {
		p, err := all[worker%len(all)].Acquire(ctx)
		if err != nil {
			return err
		}
		held()
		return p.Release()
	}}, err
}

// nth is the name of one of the semaphores that workers are spread over.
func nth(o Setup, i int) string {
	if o.Names < 2 {
		return o.Name
	}
	return fmt.Sprint(o.Name, "-", i)
}

// channel is a semaphore as Go programs have it: a buffered channel for each
// name, with a select that lets a wait end with its context.
func (Store) channel(_ context.Context, o Setup) (Gate, error) {
	all := make([]chan struct{}, max(1, o.Names))
	for i := range all {
		all[i] = make(chan struct{}, o.Limit)
	}
	return Gate{Work: func(ctx context.Context, worker int, held func()) error {
		c := all[worker%len(all)]
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		held()
		<-c
		return nil
	}}, nil
}

// commits is one transaction to acquire, and another to release.
func (s Store) commits(context.Context, Setup) (Gate, error) {
	return Gate{Unlimited: true, Work: func(ctx context.Context, _ int, held func()) error {
		if err := s.Commit(ctx); err != nil {
			return err
		}
		held()
		return s.Commit(ctx)
	}}, nil
}

// noop is what a semaphore in Lua has to pay at least: a call of a script to
// acquire, another to release, here of one that does nothing.
func (s Store) noop(_ context.Context, o Setup) (Gate, error) {
	nothing := redis.NewScript("return 1")
	var rdb redis.Scripter = s.Redis
	g := Gate{Unlimited: true}
	if o.Contestant == "noop-autopipeline" {
		// Of the forms that go-redis has, the one that was never slower than the
		// others with 8 to 1,000 goroutines that each wait for their call.
		pipe, err := s.Redis.AutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 80, Unordered: true})
		if err != nil {
			return g, err
		}
		rdb, g.Close = pipe, pipe.Close
	}
	keys := make([][]string, max(1, o.Names))
	for i := range keys {
		keys[i] = []string{"{" + nth(o, i) + "}"}
	}
	g.Work = func(ctx context.Context, worker int, held func()) error {
		key := keys[worker%len(keys)]
		if err := nothing.Run(ctx, rdb, key).Err(); err != nil {
			return err
		}
		held()
		return nothing.Run(ctx, rdb, key).Err()
	}
	return g, nil
}
