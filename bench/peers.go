package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
	"sema/engines/httpengine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/measure"
)

// kind says what a contestant is, and so which scenarios it takes part in.
type kind int

const (
	semaphore kind = iota // any limit, among processes
	lock                  // limit 1 only, among processes
	yardstick             // limits nothing: what the round trips alone cost
	inProcess             // any limit, within one process
)

// peer is a contestant: sema, what a user could pick in its place, or a
// yardstick.
type peer struct {
	Name   string
	kind   kind
	driver string // of another language, see drivers
	own    string // what package measure calls it, if that has it
	open   opener // else

	// For the page: the library and the type; what was chosen, where there was
	// a choice; what a user has to know before the figures.
	What, Settings, Lacks string
}

type opener func(ctx context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error)

// What several peers have in common.
const (
	classicPause = "only tries: a caller who has to wait asks again after 1 ms, as the book's own lock does; "
	classicLacks = "the limit, when clocks differ by more than a lease's spare time; waiters have no place in line; renewal by hand, no notice of loss"
	lockLacks    = "fairness, renewal by itself, notice of loss"
	unlimited    = "everything: it limits nothing"
)

// all contestants, in the order of the tables. The first of those on Redis and
// the first within one process are what the others are compared with.
var all = []peer{
	{"sema", semaphore, "", "sema", nil, "`sema` with `engines/redisengine`", "defaults", "–"},
	{"sema-keep", semaphore, "", "sema", nil, "the same", "`Keep: 20ms`", "a permit that a process keeps when it ends without `Close` is taken for a lease"},
	{behindServer, semaphore, "", "sema", nil, "the same through `sema serve`, a process of its own on the same machine, with `engines/httpengine`", "defaults", "–"},
	{"classic-lock", lock, "", "", book(steady, bookLock), "`sema/classic`.`Lock` (*Redis in Action*, 6.2.5 and 11.2.2)", "`Lua`; polls each ms by itself", "no fairness, no renewal, no notice of loss"},
	{"classic-basic", semaphore, "", "", book(steady, classic.NewBasic), "`sema/classic`.`Basic` (6.3.1)", classicPause + "defaults", "the limit, when two callers overlap or clocks differ; fairness, renewal, notice of loss"},
	{"classic-fair", semaphore, "", "", book(steady, classic.NewFair), "`sema/classic`.`Fair` (6.3.2)", classicPause + "defaults", "the limit, when two callers overlap; waiters have no place in line; renewal by hand, no notice of loss"},
	{"classic-locked", semaphore, "", "", book(steady, classic.NewLocked), "`sema/classic`.`Locked` (6.3.4)", classicPause + "`Lua`", classicLacks},
	{"classic-scripted", semaphore, "", "", book(steady, classic.NewScripted), "`sema/classic`.`Scripted` (11.2.3): the book's semaphore in Lua, one EVALSHA to acquire and one ZREM to release on a plain go-redis pool", classicPause + "defaults", classicLacks},
	{"classic-scripted-backoff", semaphore, "", "", book(backoff, classic.NewScripted), "the same", "a caller who has to wait asks again after 1 ms, then 2, 4, 8 and 16 ms, each less a random part of up to half", "as `classic-scripted`"},
	{"classic-clockless", semaphore, "", "", book(steady, classic.NewClockless), "`sema/classic`.`Clockless`", classicPause + "`Lua`", "waiters have no place in line; renewal by hand, no notice of loss"},
	{"redisson-go-semaphore", semaphore, "", "", redissonSemaphore, "`sema/redisson`.`Semaphore`: RSemaphore in Go", "defaults", "leases: the permits of a dead process are gone for good; no fairness among processes"},
	{"redisson-go-permit", semaphore, "", "", redissonPermit, "`sema/redisson`.`ExpirableSemaphore`: RPermitExpirableSemaphore in Go", "defaults", "renewal, notice of loss; no fairness among processes"},
	{"redisson-semaphore", semaphore, "java", "", nil, "Redisson (Java), `RSemaphore`", "defaults, a thread for each worker", "leases: the permits of a dead process are gone for good; fairness"},
	{"redisson-permit", semaphore, "java", "", nil, "Redisson (Java), `RPermitExpirableSemaphore`", "defaults, a thread for each worker", "renewal, notice of loss, fairness; leases go by the callers' clocks"},
	{"redisson-lock", lock, "java", "", nil, "Redisson (Java), `RLock`", "a lease, so without the watchdog that would renew; a thread for each worker", "fairness, notice of loss"},
	{"redisson-fair-lock", lock, "java", "", nil, "Redisson (Java), fair `RLock`", "as `redisson-lock`", "notice of loss"},
	{"node-redis-semaphore", semaphore, "node", "", nil, "npm `redis-semaphore`, `Semaphore` on ioredis", "no end to waiting; else defaults: asks again every 10 ms, renews by itself; one thread, its timers have whole milliseconds", "fairness; the limit, when clocks differ by more than a lease's spare time"},
	{"redislock", lock, "", "", redisLock, "github.com/bsm/redislock", "`LinearBackoff(1 ms)` without an end; its default is not to wait at all", lockLacks},
	{"redsync", lock, "", "", redSync(), "github.com/go-redsync/redsync/v4, one server", "defaults: asks again after 50 to 250 ms, 32 times; then from the start", lockLacks},
	{"redsync-1ms", lock, "", "", redSync(redsyncSteady...), "the same", "`WithRetryDelay(1 ms)`, without an end", "as `redsync`"},
	{"rueidislock", lock, "", "", rueidisLock, "github.com/redis/rueidis/rueidislock, one server, on its own client", "`KeyMajority: 1`, `NoLoopTracking`; else defaults: told of a release by client-side caching", "fairness"},
	{"noop-pool", yardstick, "", "noop-pool", nil, "`EVALSHA` of `return 1` to acquire, another to release, on a plain go-redis pool", "defaults", unlimited},
	{relayed, yardstick, "", "noop-pool", nil, "`noop-pool` by way of a process that passes bytes on, and does nothing else: what a server between costs at least", "defaults", unlimited},
	{"noop-autopipeline", yardstick, "", "noop-autopipeline", nil, "the same through go-redis's automatic pipelining", "unordered, up to 80 batches of 300 at once", unlimited},
	{"sema-memory", inProcess, "", "sema", nil, "`sema` with `engines/memengine`", "defaults", "other processes"},
	{"sema-memory-keep", inProcess, "", "sema", nil, "the same", "`Keep: 20ms`", "other processes"},
	{"x-sync", inProcess, "", "", xSync, "golang.org/x/sync/semaphore, `Weighted`", "–", "leases, notice of loss, names, a view of who holds and waits"},
	{"channel", inProcess, "", "channel", nil, "a buffered channel, with a `select` on the caller's context", "–", "weights, and all that `x-sync` lacks"},
}

// settings are what the contestants of sema have other than defaults.
var settings = map[string]func(*measure.Setup){
	"sema-keep":        func(s *measure.Setup) { s.KeepUS = 20_000 },
	"sema-memory-keep": func(s *measure.Setup) { s.KeepUS = 20_000 },
}

func find(name string) (peer, error) {
	i := slices.IndexFunc(all, func(p peer) bool { return p.Name == name })
	if i < 0 {
		return peer{}, fmt.Errorf("unknown contestant %q", name)
	}
	return all[i], nil
}

// openPeer opens a contestant that is written in Go.
func openPeer(ctx context.Context, s measure.Setup) (g measure.Gate, err error) {
	p, err := find(s.Contestant)
	switch {
	case err != nil:
		return g, err
	case p.driver != "":
		return g, fmt.Errorf("%s has a driver of its own, in %s", p.Name, p.driver)
	case p.kind == lock && s.Limit > 1:
		return g, fmt.Errorf("limit %d: %s has limit 1 only", s.Limit, p.Name)
	}
	closing := func() error { return nil }
	store := measure.Store{Engine: memengine.New()}
	var rdb *redis.Client
	switch {
	case p.Name == behindServer:
		if store.Engine, err = httpengine.New(s.URL, nil); err != nil {
			return g, err
		}
	case p.kind != inProcess:
		if rdb, err = connect(ctx, s.URL); err != nil {
			return g, err
		}
		closing = rdb.Close
		redisEngine, err := redisengine.New(rdb, nil)
		if err != nil {
			return g, err
		}
		store = measure.Store{Engine: redisEngine, Redis: rdb}
	}
	if change := settings[p.Name]; change != nil {
		change(&s)
	}
	if s.Contestant = p.own; p.open == nil {
		g, err = store.Gate(ctx, s)
	} else if g, err = p.open(ctx, rdb, s); s.Units > 1 {
		g = g.Times(s.Units)
	}
	gate := g.Close
	g.Unlimited = p.kind == yardstick
	g.Close = func() error {
		var err error
		if gate != nil {
			err = gate()
		}
		return errors.Join(err, store.Engine.Close(), closing())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.Name, err)
	}
	return g, err
}

// connect makes the go-redis client that all Go contestants use: the library's
// defaults, and calls that end with their context.
func connect(ctx context.Context, url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, fmt.Errorf("no answer from Redis: %w", err)
	}
	return rdb, nil
}

// release gives something back, whatever happened to the caller's context.
type release func(ctx context.Context) error

// waits makes a gate of an acquire that waits by itself.
func waits(acquire func(ctx context.Context) (release, error)) (measure.Gate, error) {
	return measure.Gate{Work: func(ctx context.Context, _ int, held func()) error {
		back, err := acquire(ctx)
		if err != nil {
			return err
		}
		held()
		return back(context.WithoutCancel(ctx))
	}}, nil
}

// polls makes a gate of one that only tries, and gives nil when there is
// nothing to have.
func polls(pause func(try int) time.Duration, acquire func(ctx context.Context) (release, error)) (measure.Gate, error) {
	return waits(func(ctx context.Context) (release, error) {
		for try := 0; ; try++ {
			back, err := acquire(ctx)
			if back != nil || err != nil {
				return back, err
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(pause(try)):
			}
		}
	})
}
