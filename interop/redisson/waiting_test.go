//go:build interop

package interop

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// listeners waits until n connections listen on a channel, on all nodes together.
func (w world) listeners(n int64, channel string, sharded bool) {
	w.t.Helper()
	for {
		sum, err := w.count(channel, sharded)
		if err == nil && sum == n {
			return
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("%d of %d listen on %s, %v", sum, n, channel, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// count is how many connections listen on a channel. Each node knows only its own.
func (w world) count(channel string, sharded bool) (int64, error) {
	var sum atomic.Int64
	one := func(ctx context.Context, node *redis.Client) error {
		ask := node.PubSubNumSub
		if sharded {
			ask = node.PubSubShardNumSub
		}
		counts, err := ask(ctx, channel).Result()
		sum.Add(counts[channel])
		return err
	}
	var err error
	switch rdb := w.rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(w.ctx, one)
	case *redis.Client:
		err = one(w.ctx, rdb)
	}
	return sum.Load(), err
}

// later runs f. Its error arrives on the channel.
func later(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func (w world) join(what string, done <-chan error) {
	w.t.Helper()
	select {
	case err := <-done:
		if err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
	case <-w.ctx.Done():
		w.t.Fatalf("%s: nobody woke it", what)
	}
}

// blocked starts a Java thread that waits, and returns when it does.
func (w world) blocked(kind, name, channel, method string, args ...string) <-chan error {
	w.t.Helper()
	done := later(func() error {
		value, err := w.j.call(w.ctx, kind, name, method, args...)
		if err == nil && value == "false" {
			err = errors.New("returned false")
		}
		return err
	})
	w.listeners(1, channel, false)
	return done
}

const rounds = 10

// Our poll is slow, and Redisson does not poll for a counter. So only a message
// can wake anybody.
func TestWakingEachOther(t *testing.T) {
	w := standalone(t)
	ctx, s, e := w.ctx, w.counter("x"), w.expirable("x")
	const channel = "redisson_sc:{x}"

	goWakesJava := []struct {
		what   string
		method string
		args   []string
		wake   func() error
	}{
		{"a blocked acquire() wakes", "acquire", nil,
			func() error { return s.Release(ctx, 1) }},
		{"a blocked acquire(3) wakes when the last of 3 comes", "acquire", []string{"i3"},
			func() error { return errors.Join(s.Release(ctx, 1), s.Release(ctx, 1), s.Release(ctx, 1)) }},
		{"a blocked tryAcquire(n, wait) wakes", "tryAcquire", []string{"i2", "l60000", "u"},
			func() error { return s.AddPermits(ctx, 2) }},
		{"setPermits wakes", "acquire", nil, func() error { return e.SetPermits(ctx, 1) }},
	}
	expect.OK(t, w.rdb.Set(ctx, "x", 0, 0).Err())
	for range rounds {
		for _, c := range goWakesJava {
			done := w.blocked("s", "x", channel, c.method, c.args...)
			expect.OK(t, c.wake())
			w.join(c.what, done)
			report.did(c.what, byGo, 1)
			w.listeners(0, channel, false)
		}
	}
	javaWakesGo := []struct {
		what   string
		n      int
		kind   string
		method string
		args   []string
		times  int
	}{
		{"a blocked acquire() wakes", 1, "s", "release", nil, 1},
		{"a blocked acquire(3) wakes when the last of 3 comes", 3, "s", "release", []string{"i1"}, 3},
		{"a blocked tryAcquire(n, wait) wakes", 2, "s", "addPermits", []string{"i2"}, 1},
		{"a blocked acquire() wakes", 1, "s", "releaseIfExists", []string{"i1"}, 1},
		{"setPermits wakes", 1, "e", "setPermits", []string{"i1"}, 1},
	}
	for range rounds {
		for _, c := range javaWakesGo {
			if !w.j.knows(c.kind, c.method, c.args...) {
				continue
			}
			done := later(func() error { return s.Acquire(ctx, c.n) })
			w.listeners(1, channel, false)
			for range c.times {
				w.java("*", c.kind, "x", c.method, c.args...)
			}
			w.join(c.what, done)
			report.did(c.what, byJava, 1)
			w.listeners(0, channel, false)
		}
	}
	is(t, "all taken", 0)(s.AvailablePermits(ctx))
}

func TestWakingEachOtherWithIDs(t *testing.T) {
	w := standalone(t)
	ctx, e := w.ctx, w.expirable("e")
	const channel, what = "redisson_sc:{e}", "a blocked acquire of an id wakes"
	expect.OK(t, e.SetPermits(ctx, 2))
	for range rounds {
		ids, err := e.TryAcquireN(ctx, 2, redisson.NoLease)
		expect.OK(t, err)
		done := w.blocked("e", "e", channel, "tryAcquire", "l60000", "l200", "u")
		expect.OK(t, e.Release(ctx, ids[0]))
		w.join(what, done)
		report.did(what, byGo, 1)
		w.listeners(0, channel, false)

		// Java's permit ends by its lease, ours by a release; we need both.
		expect.OK(t, e.Release(ctx, ids[1]))
		ids, err = e.AcquireN(ctx, 2, redisson.NoLease)
		expect.OK(t, err)
		expect.OK(t, e.Release(ctx, ids...))

		held := w.java("*", "e", "e", "tryAcquire", "i2")
		done = later(func() error { ids, err = e.AcquireN(ctx, 2, redisson.NoLease); return err })
		w.listeners(1, channel, false)
		w.java("2", "e", "e", "tryRelease", "j"+held)
		w.join(what, done)
		report.did(what, byJava, 1)
		expect.OK(t, e.Release(ctx, ids...))
		w.listeners(0, channel, false)
	}
}

// Redisson derives keys and channel from odd names too; so do we.
func TestNames(t *testing.T) {
	w := standalone(t)
	for _, name := range []string{"plain", "a{b}c", "a{b", "}{", "a:b", "名字", "ключ"} {
		e := w.expirable(name)
		channel := "redisson_sc:{" + name + "}"
		if name == "a{b}c" || name == "a{b" || name == "}{" {
			channel = "redisson_sc:" + name
		}
		w.java("null", "e", name, "setPermits", "i1")
		id, err := e.TryAcquire(w.ctx, time.Hour)
		expect.OK(t, err)
		done := w.blocked("e", name, channel, "tryAcquire", "l60000", "l3600000", "u")
		expect.OK(t, e.Release(w.ctx, id))
		w.join(name, done)
		is(t, "acquired", 1)(e.AcquiredPermits(w.ctx))
		report.did("names with and without braces mean the same keys", byGo, 1)
	}
}

// truth counts what is held, outside of Redis.
type truth struct {
	limit, held, over, rounds atomic.Int64
}

func (h *truth) hold(ctx context.Context) {
	if h.held.Add(1) > h.limit.Load() {
		h.over.Add(1)
	}
	select { // long enough for others to try to get in
	case <-time.After(200 * time.Microsecond):
	case <-ctx.Done():
	}
	h.held.Add(-1)
	h.rounds.Add(1)
}

// compete has 8 Java and 8 Go workers take and return single permits.
func (w world) compete(what string, h *truth, total int64, java, golang func() error) {
	w.t.Helper()
	var workers sync.WaitGroup
	var taken atomic.Int64
	for i := range 16 {
		work, who := golang, byGo
		if i%2 == 0 {
			work, who = java, byJava
		}
		workers.Go(func() {
			for taken.Add(1) <= total {
				if err := work(); err != nil {
					w.t.Error(err)
					return
				}
				report.did(what, who, 1)
			}
		})
	}
	workers.Wait()
}

func TestWorkersOnACounter(t *testing.T) {
	w := standalone(t)
	s := w.counter("s")
	const limit, total = 3, 4000
	is(t, "set", true)(s.TrySetPermits(w.ctx, limit, 0))
	h := &truth{}
	h.limit.Store(limit)
	java := func() error {
		if _, err := w.j.call(w.ctx, "s", "s", "acquire"); err != nil {
			return err
		}
		h.hold(w.ctx)
		_, err := w.j.call(w.ctx, "s", "s", "release")
		return err
	}
	golang := func() error {
		if err := s.Acquire(w.ctx, 1); err != nil {
			return err
		}
		h.hold(w.ctx)
		return s.Release(w.ctx, 1)
	}
	w.compete("rounds of 8 workers each side on a counter, never above the limit", h, total, java, golang)
	if h.over.Load() != 0 || h.rounds.Load() != total {
		t.Fatalf("%d of %d rounds above the limit", h.over.Load(), h.rounds.Load())
	}
	w.java("3", "s", "s", "availablePermits")
	is(t, "all back", limit)(s.AvailablePermits(w.ctx))

	// The count outside of Redis has to notice a semaphore that admits one too many.
	expect.OK(t, s.AddPermits(w.ctx, 1))
	w.compete("rounds with one permit too many, which the test noticed", h, 200, java, golang)
	if h.over.Load() == 0 {
		t.Fatal("an extra permit went unnoticed: this test proves nothing")
	}
}

func TestWorkersWithIDs(t *testing.T) {
	w := standalone(t)
	e := w.expirable("e")
	const limit, total = 4, 4000
	expect.OK(t, e.SetPermits(w.ctx, limit))
	h := &truth{}
	h.limit.Store(limit)
	w.compete("rounds of 8 workers each side with ids, never above the limit", h, total, func() error {
		id, err := w.j.call(w.ctx, "e", "e", "acquire", "l600000", "u")
		if err != nil {
			return err
		}
		h.hold(w.ctx)
		_, err = w.j.call(w.ctx, "e", "e", "release", "t"+id)
		return err
	}, func() error {
		id, err := e.Acquire(w.ctx, time.Hour)
		if err != nil {
			return err
		}
		h.hold(w.ctx)
		return e.Release(w.ctx, id)
	})
	if h.over.Load() != 0 || h.rounds.Load() != total {
		t.Fatalf("%d of %d rounds above the limit", h.over.Load(), h.rounds.Load())
	}
	w.java("4", "e", "e", "availablePermits")
	w.java("0", "e", "e", "acquiredPermits")
	is(t, "all back", limit)(e.AvailablePermits(w.ctx))
}

// On a cluster wake-ups travel over sharded channels, or over plain ones if
// Redisson is told so; names of several slots put it on several nodes.
func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	for _, c := range []struct {
		topology string
		options  redisson.Options
		sharded  bool
	}{
		{"cluster", redisson.Options{Poll: slow}, true},
		{"cluster-plain", redisson.Options{Poll: slow, Channels: redisson.PlainChannels}, false},
	} {
		t.Run(c.topology, func(t *testing.T) {
			w := newWorld(t, cluster.Client(), c.options, c.topology, cluster.Addrs()...)
			for _, name := range []string{"a", "b", "c", "d{e}f"} {
				w.wakeOnCluster(name+c.topology, c.sharded)
			}
		})
	}
}

func (w world) wakeOnCluster(name string, sharded bool) {
	w.t.Helper()
	ctx, s, e := w.ctx, w.counter(name), w.expirable(name)
	what, channel := "cluster, plain channels: a blocked acquire wakes", "redisson_sc:{"+name+"}"
	if sharded {
		what = "cluster, sharded channels: a blocked acquire wakes"
	}
	if strings.Contains(name, "{") {
		channel = "redisson_sc:" + name
	}
	// step has waiter wait, lets wake wake it, and counts who did.
	step := func(by side, waiter, wake func() error) {
		w.t.Helper()
		done := later(waiter)
		w.listeners(1, channel, sharded)
		expect.OK(w.t, wake())
		w.join(what, done)
		w.listeners(0, channel, sharded)
		report.did(what, by, 1)
	}
	java := func(kind, method string, args ...string) error {
		_, err := w.j.call(ctx, kind, name, method, args...)
		return err
	}
	is(w.t, "set", true)(s.TrySetPermits(ctx, 0, 0))
	for range 5 {
		step(byGo, func() error { return java("s", "acquire") }, func() error { return s.Release(ctx, 1) })
		step(byJava, func() error { return s.Acquire(ctx, 1) }, func() error { return java("s", "release") })
	}
	w.java("null", "e", name, "setPermits", "i1")
	mine, err := e.Acquire(ctx, time.Hour)
	expect.OK(w.t, err)
	for range 5 {
		var theirs string
		step(byGo, func() (err error) { theirs, err = w.j.call(ctx, "e", name, "acquire"); return },
			func() error { return e.Release(ctx, mine) })
		step(byJava, func() (err error) { mine, err = e.Acquire(ctx, time.Hour); return },
			func() error { return java("e", "release", "t"+theirs) })
	}
}
