package classic

import (
	"context"
	"errors"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestLockLeaseIsRoundedUpToSeconds(t *testing.T) {
	t.Parallel()
	const lease, want = time.Hour + 200*time.Millisecond, time.Hour + time.Second
	rdb := redistest.Start(t).Client()
	for _, lua := range []bool{false, true} {
		lock := newLock(t, rdb, Options{Lease: lease, Lua: lua})
		before := rdb.Time(t.Context()).Val().UnixMilli()
		id := must(t, lock)
		after := rdb.Time(t.Context()).Val().UnixMilli()
		end := rdb.PExpireTime(t.Context(), "lock:sem").Val().Milliseconds() - want.Milliseconds()
		if end < before || end > after {
			t.Errorf("Lua %v: of a lock from %d to %d the lease of %v began at %d", lua, before, after, want, end)
		}
		release(t, lock, id, true)
	}
}

func TestLockWaitsUntilItIsFree(t *testing.T) {
	t.Parallel()
	for _, lua := range []bool{false, true} {
		srv := redistest.Start(t)
		holder := newLock(t, srv.Client(), Options{Lua: lua})
		id := must(t, holder)
		tries := 0
		rdb := srv.Client()
		rdb.AddHook(redistest.Around(func(commands ...string) func(error) {
			if commands[0] == "set" || commands[0] == "evalsha" {
				if tries++; tries == 5 {
					release(t, holder, id, true)
				}
			}
			return nil
		}))
		must(t, newLock(t, rdb, Options{Lua: lua}))
		if tries < 5 {
			t.Errorf("Lua %v: acquired at try %d, while it was held", lua, tries)
		}
	}
}

func TestLockGivesUp(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	must(t, newLock(t, rdb, Options{Lease: time.Hour})) // a thousand tries may take a busy machine ten seconds
	lock := newLock(t, rdb, Options{Wait: time.Second})

	now := time.Now()
	pauses := 0
	lock.timer.now = func() time.Time { return now }
	lock.timer.pause = func(_ context.Context, d time.Duration) error {
		pauses++
		now = now.Add(d)
		return nil
	}
	mustNot(t, lock)
	if pauses != 1000 {
		t.Errorf("%d pauses in a second, want one each millisecond", pauses)
	}

	ctx, cancel := context.WithCancel(t.Context())
	lock.timer.pause = func(ctx context.Context, d time.Duration) error {
		cancel()
		return pause(ctx, d)
	}
	if _, ok, err := lock.Acquire(ctx); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire = %v, %v", ok, err)
	}
}

func TestLockReleasesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	for _, lua := range []bool{false, true} {
		srv := redistest.Start(t)
		admin := srv.Client()
		first := newLock(t, srv.Client(), Options{Lua: lua})
		id := must(t, first)
		if err := admin.Del(t.Context(), "lock:sem").Err(); err != nil { // its lease ends
			t.Fatal(err)
		}
		second := must(t, newLock(t, admin, Options{Lua: lua}))
		release(t, first, id, false)
		if got := admin.Get(t.Context(), "lock:sem").Val(); got != second {
			t.Errorf("Lua %v: the lock is %q's, want %q", lua, got, second)
		}
	}
}

// TestLockChangesHandsDuringRelease shows why Release uses WATCH: between GET
// and EXEC the lease ends and another caller takes the lock.
func TestLockChangesHandsDuringRelease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client()
	rdb := interrupted(srv, "del", func() {
		if err := admin.Set(t.Context(), "lock:sem", "another", time.Minute).Err(); err != nil {
			t.Error(err)
		}
	})
	lock := newLock(t, rdb, Options{})
	release(t, lock, must(t, lock), false)
	if got := admin.Get(t.Context(), "lock:sem").Val(); got != "another" {
		t.Errorf("the lock is %q's", got)
	}
}

// TestLockWithoutAnEnd has the lock of a process that died between SETNX and
// EXPIRE, or of a client of the book's acquire_lock that died with the lock.
func TestLockWithoutAnEnd(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	dead := func() {
		expect.OK(t, rdb.Set(t.Context(), "lock:sem", "a dead client", 0).Err())
	}
	ttl := func() time.Duration { return rdb.TTL(t.Context(), "lock:sem").Val() }

	dead()
	mustNot(t, newLock(t, rdb, Options{Wait: 1, Lua: true}))
	if ttl() != -1 {
		t.Errorf("with Lua: TTL %v, want none", ttl())
	}
	mustNot(t, newLock(t, rdb, Options{Wait: 1, Lease: 7 * time.Minute}))
	if ttl() <= 0 || ttl() > 7*time.Minute {
		t.Errorf("TTL %v, want 7m", ttl())
	}
	dead()
	sem := made(t, NewLocked, rdb, 1, Options{LockLease: 3 * time.Minute})
	mustNot(t, sem)
	if ttl() <= 0 || ttl() > 3*time.Minute {
		t.Errorf("Locked: TTL %v, want 3m", ttl())
	}
	expect.OK(t, rdb.PExpire(t.Context(), "lock:sem", 5*time.Millisecond).Err())
	expect.Until(t, "the end of the dead client's lock", func() bool {
		_, ok, err := sem.Acquire(t.Context())
		return ok && err == nil
	})
}
