package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/each"
	"sema/engines/fileengine"
	"sema/engines/httpengine"
	"sema/engines/memengine"
	"sema/engines/pgengine"
	"sema/engines/redisengine"
)

// contestant is sema, what a user could pick in its place, or a yardstick.
type contestant struct {
	what  string // for the page
	ours  bool   // of this repository: what --beside compares
	serve bool   // it talks to "sema serve" over its scene's store
	open  func(ctx context.Context, j job) (work pair, end func() error, err error)
}

var contestants map[string]contestant

func init() { // it refers to itself by way of drive
	keep := &sema.Options{Lease: lease, Keep: 20 * time.Millisecond}
	contestants = map[string]contestant{
		"sema":             {what: "`sema` on Redis", ours: true, open: plain(onRedis, nil)},
		"sema-keep":        {what: "`sema` on Redis with `Keep: 20ms`", ours: true, open: plain(onRedis, keep)},
		"sema-serve":       {what: "`sema` on Redis through `sema serve`, a process of its own", ours: true, serve: true, open: plain(onServer, nil)},
		"sema-files":       {what: "`sema` on files", ours: true, open: plain(onFiles, nil)},
		"sema-postgres":    {what: "`sema` on PostgreSQL", ours: true, open: plain(onPostgres, nil)},
		"sema-memory":      {what: "`sema` in memory", ours: true, open: plain(inMemory, nil)},
		"sema-memory-keep": {what: "`sema` in memory with `Keep: 20ms`", ours: true, open: plain(inMemory, keep)},
		"shares":           {what: "`sema.For(tenant)`", ours: true, open: shares},
		"one-line":         {what: "`sema` without a key: first come, first served", ours: true, open: plain(onRedis, nil)},
		"two-level":        {what: "`each.New` for a tenant's own limit of 8, then one semaphore for all", ours: true, open: twoLevel},
		"at-once":          {what: "`sema.Take` of both pools in one step", ours: true, open: atOnce},
		"in-turn":          {what: "a semaphore for each pool, one after the other", ours: true, open: inTurn},
		"lua":              {what: "a sorted set and two scripts, as one would write by hand; a caller that has to wait asks again after 1 to 16 ms", open: byHand},
		"redislock":        {what: "github.com/bsm/redislock, `LinearBackoff(1 ms)`", open: redisLock},
		"redsync":          {what: "github.com/go-redsync/redsync, one server, `WithRetryDelay(1 ms)`", open: redSync},
		"rueidislock":      {what: "github.com/redis/rueidis/rueidislock, one server: told of a release by client-side caching", open: rueidisLock},
		"noop":             {what: "a yardstick that limits nothing: `EVALSHA` of `return 1` to acquire, another to release", open: noop},
		"slots":            {what: "a table of slots with leases, one updated `FOR UPDATE SKIP LOCKED`; a caller that has to wait looks again after 10 ms", open: slots},
		"commits":          {what: "a yardstick that limits nothing: a commit to acquire, another to release", open: commits},
		"x-sync":           {what: "golang.org/x/sync/semaphore", open: xSync},
		"channel":          {what: "a buffered channel, with a `select` on the caller's context", open: channel},
	}
}

// connect makes an engine on a job's store, and what closes it.
type connect func(ctx context.Context, store string) (e sema.Engine, end func() error, err error)

// client is a client of Redis as users have it, with calls that end with their context.
func client(store string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: store, ContextTimeoutEnabled: true})
}

func onRedis(_ context.Context, store string) (sema.Engine, func() error, error) {
	rdb := client(store)
	e, err := redisengine.New(rdb, nil)
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return e, func() error { return errors.Join(e.Close(), rdb.Close()) }, nil
}

func onServer(_ context.Context, store string) (sema.Engine, func() error, error) {
	e, err := httpengine.New(store, nil)
	if err != nil {
		return nil, nil, err
	}
	return e, e.Close, nil
}

func onFiles(_ context.Context, store string) (sema.Engine, func() error, error) {
	e, err := fileengine.New(store, nil)
	if err != nil {
		return nil, nil, err
	}
	return e, e.Close, nil
}

func onPostgres(ctx context.Context, store string) (sema.Engine, func() error, error) {
	pool, err := pgxpool.New(ctx, store)
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

func inMemory(context.Context, string) (sema.Engine, func() error, error) {
	e := memengine.New()
	return e, e.Close, nil
}

// plain is acquire and release, as users write it.
func plain(on connect, o *sema.Options) func(context.Context, job) (pair, func() error, error) {
	return func(ctx context.Context, j job) (pair, func() error, error) {
		return one(ctx, j, on, o, func(int) []sema.AcquireOption { return nil })
	}
}

// one is acquire and release of one semaphore, each caller with options of its own.
func one(ctx context.Context, j job, on connect, o *sema.Options, ask func(caller int) []sema.AcquireOption) (pair, func() error, error) {
	if o == nil {
		o = &sema.Options{Lease: lease}
	}
	e, end, err := on(ctx, j.Store)
	if err != nil {
		return nil, nil, err
	}
	sem, err := sema.New(e, j.Name, j.Limit, o)
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	asks := make([][]sema.AcquireOption, j.Callers)
	for caller := range asks {
		asks[caller] = ask(caller)
	}
	return func(ctx context.Context, caller int, held func()) error {
		return pass(ctx, sem, held, asks[caller]...)
	}, func() error { return errors.Join(sem.Close(), end()) }, nil
}

func pass(ctx context.Context, sem *sema.Semaphore, held func(), ask ...sema.AcquireOption) error {
	p, err := sem.Acquire(ctx, ask...)
	if err != nil {
		return err
	}
	held()
	return p.Release()
}

// tenant names the tenant of a job's caller.
func (j job) tenant(caller int) string {
	if caller < j.Light {
		return fmt.Sprint("light-", j.Process, "-", caller)
	}
	return "heavy"
}

func shares(ctx context.Context, j job) (pair, func() error, error) {
	return one(ctx, j, onRedis, nil, func(caller int) []sema.AcquireOption { return []sema.AcquireOption{sema.For(j.tenant(caller))} })
}

func twoLevel(ctx context.Context, j job) (pair, func() error, error) {
	e, end, err := onRedis(ctx, j.Store)
	if err != nil {
		return nil, nil, err
	}
	group, err1 := each.New(e, j.Name+"-each-", j.Limit, nil)
	sem, err2 := sema.New(e, j.Name, j.Limit, &sema.Options{Lease: lease})
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return func(ctx context.Context, caller int, held func()) error {
		p, err := group.Acquire(ctx, j.tenant(caller))
		if err != nil {
			return err
		}
		return errors.Join(pass(ctx, sem, held), p.Release())
	}, func() error { return errors.Join(group.Close(), sem.Close(), end()) }, nil
}

// poolSize is the limit of each of two pools.
const poolSize = 8

func atOnce(ctx context.Context, j job) (pair, func() error, error) {
	o := &sema.Options{Lease: lease, Pools: "cpu=8,gpu=8"}
	return one(ctx, j, onRedis, o, func(int) []sema.AcquireOption { return []sema.AcquireOption{sema.Take("cpu", 1), sema.Take("gpu", 1)} })
}

func inTurn(ctx context.Context, j job) (pair, func() error, error) {
	e, end, err := onRedis(ctx, j.Store)
	if err != nil {
		return nil, nil, err
	}
	all, closing := []*sema.Semaphore{}, end
	for _, limit := range []struct { // in the same order for all, or two would wait for each other
		of string
		n  int
	}{{"", j.Limit}, {"-cpu", poolSize}, {"-gpu", poolSize}} {
		sem, err := sema.New(e, j.Name+limit.of, limit.n, &sema.Options{Lease: lease})
		if err != nil {
			return nil, nil, errors.Join(err, closing())
		}
		all = append(all, sem)
		before := closing
		closing = func() error { return errors.Join(sem.Close(), before()) }
	}
	return func(ctx context.Context, _ int, held func()) (err error) {
		var got []*sema.Permit
		for _, sem := range all {
			var p *sema.Permit
			if p, err = sem.Acquire(ctx); err != nil {
				break
			}
			got = append(got, p)
		}
		if err == nil {
			held()
		}
		for _, p := range got {
			err = errors.Join(err, p.Release())
		}
		return err
	}, closing, nil
}
