//go:build interop

// Package interop holds the tests of package redisson against Redisson itself:
// a small Java program (src/) does with Redisson what the tests, behind the
// build tag interop, tell it. Run them with run.sh, which builds the program.
package interop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// world is one Redis with a Redisson and a client of ours on it.
type world struct {
	t   *testing.T
	ctx context.Context
	rdb redis.UniversalClient
	j   *java
	c   *redisson.Client
}

// slow is a poll interval longer than any test, so that only messages and ends
// of leases wake waiters.
const slow = time.Hour

func standalone(t *testing.T) world {
	s := redistest.Start(t)
	rdb := s.Client()
	w := newWorld(t, rdb, redisson.Options{Poll: slow}, "single", s.Addr())
	server, err := rdb.InfoMap(w.ctx, "server").Result()
	expect.OK(t, err)
	report.header = fmt.Sprintf("Redisson %s, Redis %s", w.j.version, server["Server"]["redis_version"])
	return w
}

func newWorld(t *testing.T, rdb redis.UniversalClient, o redisson.Options, topology string, addrs ...string) world {
	t.Helper()
	c, err := redisson.New(rdb, &o)
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, c.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return world{t, ctx, rdb, startJava(t, topology, addrs...), c}
}

func (w world) counter(name string) *redisson.Semaphore {
	w.t.Helper()
	s, err := w.c.Semaphore(name)
	expect.OK(w.t, err)
	return s
}

func (w world) expirable(name string) *redisson.ExpirableSemaphore {
	w.t.Helper()
	s, err := w.c.ExpirableSemaphore(name)
	expect.OK(w.t, err)
	return s
}

// java calls Redisson and expects a value; "*" for any.
func (w world) java(want, kind, name, method string, args ...string) string {
	w.t.Helper()
	got, err := w.j.call(w.ctx, kind, name, method, args...)
	if err != nil || want != "*" && got != want {
		w.t.Fatalf("java: %s.%s%v: %q, %v; want %q", name, method, args, got, err, want)
	}
	return got
}

// javaFails calls Redisson and expects an exception that says so.
func (w world) javaFails(words, kind, name, method string, args ...string) {
	w.t.Helper()
	_, err := w.j.call(w.ctx, kind, name, method, args...)
	var thrown errJava
	if !errors.As(err, &thrown) || !strings.Contains(thrown.text, words) {
		w.t.Fatalf("java: %s.%s%v: %v; want %s", name, method, args, err, words)
	}
}

func is[T comparable](t testing.TB, what string, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("go: %s: %v, %v; want %v", what, got, err, want)
		}
	}
}

func TestCounter(t *testing.T) {
	w := standalone(t)
	ctx, s := w.ctx, w.counter("s")

	w.java("true", "s", "s", "trySetPermits", "i5")
	is(t, "set", false)(s.TrySetPermits(ctx, 9, 0))
	is(t, "available", 5)(s.AvailablePermits(ctx))
	report.did("permits set by one are there for the other", byJava, 1)
	is(t, "delete", true)(s.Delete(ctx))
	w.java("0", "s", "s", "availablePermits")
	w.java("false", "s", "s", "releaseIfExists", "i1")
	report.did("a semaphore deleted by one is gone for the other", byGo, 1)
	is(t, "set", true)(s.TrySetPermits(ctx, 5, time.Hour))
	w.java("false", "s", "s", "trySetPermits", "i9")
	w.java("false", "s", "s", "trySetPermits", "i9", "d1000")
	w.java("5", "s", "s", "availablePermits")
	report.did("permits set by one are there for the other", byGo, 1)
	if ms, _ := strconv.Atoi(w.java("*", "s", "s", "remainTimeToLive")); ms <= 0 {
		t.Fatalf("time to live %d", ms)
	}

	for range 20 {
		expect.OK(t, s.TryAcquire(ctx, 2))
		w.java("3", "s", "s", "availablePermits")
		w.java("true", "s", "s", "releaseIfExists", "i1")
		w.java("null", "s", "s", "release")
		is(t, "available", 5)(s.AvailablePermits(ctx))
		report.did("each acquires what the other releases (counter)", byJava, 2)
		w.java("true", "s", "s", "tryAcquire", "i4")
		w.java("false", "s", "s", "tryAcquire", "i2")
		expect.Is(t, s.TryAcquire(ctx, 2), redisson.ErrBusy)
		expect.OK(t, s.Release(ctx, 4))
		w.java("true", "s", "s", "tryAcquire")
		w.java("null", "s", "s", "acquire")
		w.java("null", "s", "s", "release", "i2")
		report.did("each acquires what the other releases (counter)", byGo, 4)
	}

	w.java("null", "s", "s", "addPermits", "i-7")
	is(t, "below 0", -2)(s.AvailablePermits(ctx))
	w.java("null", "s", "s", "addPermits", "i3")
	is(t, "available", 1)(s.AvailablePermits(ctx))
	report.did("addPermits, also negative", byJava, 2)
	expect.OK(t, s.AddPermits(ctx, -4))
	w.java("-3", "s", "s", "availablePermits")
	expect.OK(t, s.AddPermits(ctx, 10))
	w.java("7", "s", "s", "availablePermits")
	report.did("addPermits, also negative", byGo, 2)
	w.java("7", "s", "s", "drainPermits")
	is(t, "drained", 0)(s.DrainPermits(ctx))
	report.did("drainPermits", byJava, 1)
	expect.OK(t, s.Release(ctx, 6))
	is(t, "drained", 6)(s.DrainPermits(ctx))
	w.java("0", "s", "s", "drainPermits")
	report.did("drainPermits", byGo, 1)
	w.java("true", "s", "s", "delete")
	is(t, "exists", false)(s.Exists(ctx))
	report.did("a semaphore deleted by one is gone for the other", byJava, 1)
}

func TestExpirable(t *testing.T) {
	w := standalone(t)
	ctx, s := w.ctx, w.expirable("e")

	w.java("true", "e", "e", "trySetPermits", "i5")
	is(t, "set", false)(s.TrySetPermits(ctx, 9))
	is(t, "permits", 5)(s.Permits(ctx))
	report.did("permits set by one are there for the other", byJava, 1)
	is(t, "delete", true)(s.Delete(ctx))
	is(t, "set", true)(s.TrySetPermits(ctx, 5))
	w.java("false", "e", "e", "trySetPermits", "i9")
	w.java("5", "e", "e", "getPermits")
	report.did("permits set by one are there for the other", byGo, 1)

	for range 20 {
		id := w.java("*", "e", "e", "tryAcquire")
		ids := w.java("*", "e", "e", "tryAcquire", "i3")
		is(t, "available", 1)(s.AvailablePermits(ctx))
		is(t, "acquired", 4)(s.AcquiredPermits(ctx))
		expect.OK(t, s.Release(ctx, id))
		expect.OK(t, s.Release(ctx, strings.Split(ids, ",")...))
		w.java("false", "e", "e", "tryRelease", "t"+id)
		w.javaFails("IllegalArgumentException", "e", "e", "release", "t"+id)
		w.java("5", "e", "e", "availablePermits")
		report.did("ids acquired by the other are released", byGo, 4)

		id, err := s.TryAcquire(ctx, redisson.NoLease)
		expect.OK(t, err)
		three, err := s.TryAcquireN(ctx, 3, time.Hour)
		expect.OK(t, err)
		w.java("4", "e", "e", "acquiredPermits")
		w.java("", "e", "e", "tryAcquire", "i2") // an empty list
		w.java("true", "e", "e", "tryRelease", "t"+id)
		w.java("null", "e", "e", "release", "t"+three[0])
		w.java("2", "e", "e", "tryRelease", "j"+three[1]+","+three[2])
		w.java("0", "e", "e", "tryRelease", "j"+three[1]+","+three[2])
		expect.Is(t, s.Release(ctx, three...), redisson.ErrNotHeld)
		is(t, "available", 5)(s.AvailablePermits(ctx))
		report.did("ids acquired by the other are released", byJava, 4)
	}

	w.java("null", "e", "e", "setPermits", "i8")
	is(t, "permits", 8)(s.Permits(ctx))
	w.java("null", "e", "e", "addPermits", "i-2")
	is(t, "permits", 6)(s.Permits(ctx))
	report.did("setPermits and addPermits", byJava, 2)
	ids, err := s.TryAcquireN(ctx, 4, time.Hour)
	expect.OK(t, err)
	expect.OK(t, s.SetPermits(ctx, 3))
	w.java("-1", "e", "e", "availablePermits")
	w.java("3", "e", "e", "getPermits")
	expect.OK(t, s.AddPermits(ctx, 4))
	w.java("7", "e", "e", "getPermits")
	w.java("null", "e", "e", "setPermits", "i2")
	is(t, "available", -2)(s.AvailablePermits(ctx))
	w.java("null", "e", "e", "release", "j"+strings.Join(ids, ","))
	w.java("2", "e", "e", "availablePermits")
	report.did("setPermits and addPermits", byGo, 3)
}

func TestLeases(t *testing.T) {
	w := standalone(t)
	ctx, s := w.ctx, w.expirable("e")
	expect.OK(t, s.SetPermits(ctx, 1))

	for range 5 {
		id := w.java("*", "e", "e", "tryAcquire", "l0", "l150", "u")
		mine, err := s.Acquire(ctx, 150*time.Millisecond) // waits for Java's lease to end
		expect.OK(t, err)
		w.java("false", "e", "e", "tryRelease", "t"+id)
		report.did("a lease ends and the other's waiter gets the permit", byJava, 1)
		id = w.java("*", "e", "e", "acquire", "l3600000", "u") // waits for ours
		expect.Is(t, s.Release(ctx, mine), redisson.ErrNotHeld)
		report.did("a lease ends and the other's waiter gets the permit", byGo, 1)

		if d, err := s.LeaseTime(ctx, id); err != nil || d <= 0 || d > time.Hour {
			t.Fatalf("Java's lease: %v, %v", d, err)
		}
		is(t, "update", true)(s.UpdateLeaseTime(ctx, id, redisson.NoLease))
		w.java("-1", "e", "e", "getLeaseTime", "t"+id)
		report.did("updateLeaseTime and getLeaseTime", byGo, 1)
		w.java("true", "e", "e", "updateLeaseTime", "t"+id, "l60000", "u")
		if d, err := s.LeaseTime(ctx, id); err != nil || d <= 0 || d > time.Minute {
			t.Fatalf("Java's lease: %v, %v", d, err)
		}
		w.java("true", "e", "e", "updateLeaseTime", "t"+id, "l-1", "u")
		is(t, "no lease", redisson.NoLease)(s.LeaseTime(ctx, id))
		report.did("updateLeaseTime and getLeaseTime", byJava, 2)
		is(t, "update", true)(s.UpdateLeaseTime(ctx, id, time.Millisecond))
		id = w.java("*", "e", "e", "acquire")
		expect.OK(t, s.Release(ctx, id))
	}
	is(t, "permits", 1)(s.Permits(ctx))
	w.java("1", "e", "e", "availablePermits")
}

// 8,000 ended leases and more are too many for Redisson's own collection. Each
// acquisition of ours collects 1,000, so of 12,000 the fifth brings Redisson back.
func TestCollectionRescuesJava(t *testing.T) {
	w := standalone(t)
	ctx, s := w.ctx, w.expirable("e")
	const ended = 12000
	expect.OK(t, w.rdb.Set(ctx, "e", 1, 0).Err())
	members := make([]redis.Z, ended)
	for i := range members {
		members[i] = redis.Z{Member: fmt.Sprintf("%016d", i), Score: float64(i + 1)}
	}
	expect.OK(t, w.rdb.ZAdd(ctx, "{e}:timeout", members...).Err())
	w.javaFails("too many results to unpack", "e", "e", "availablePermits")
	is(t, "available", ended+1)(s.AvailablePermits(ctx))
	for range 5 {
		w.javaFails("too many results to unpack", "e", "e", "availablePermits")
		id, err := s.TryAcquire(ctx, time.Hour)
		expect.OK(t, err)
		expect.OK(t, s.Release(ctx, id))
	}
	w.java(strconv.Itoa(ended+1), "e", "e", "availablePermits")
	report.did("12,000 ended leases that stop Redisson are collected", byGo, 1)
}
