package redisson_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/redisson"
)

func TestSemaphoreCounts(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")

	fails(t, "no semaphore yet", s.TryAcquire(ctx, 1), redisson.ErrBusy)
	wants(t, "available", 0)(s.AvailablePermits(ctx))
	wants(t, "drain", 0)(s.DrainPermits(ctx))
	wants(t, "exists", false)(s.Exists(ctx))
	if n, err := f.rdb.DBSize(ctx).Result(); n != 0 || err != nil {
		t.Fatalf("%d keys made by calls without effect, %v", n, err)
	}

	wants(t, "create", true)(s.TrySetPermits(ctx, 5, 0))
	wants(t, "create again", false)(s.TrySetPermits(ctx, 9, 0))
	expect.OK(t, s.TryAcquire(ctx, 3))
	fails(t, "3 of 2", s.TryAcquire(ctx, 3), redisson.ErrBusy)
	wants(t, "available", 2)(s.AvailablePermits(ctx))
	expect.OK(t, s.Release(ctx, 3))
	wants(t, "release", true)(s.ReleaseIfExists(ctx, 1))
	wants(t, "drained", 6)(s.DrainPermits(ctx))
	wants(t, "create at 0", false)(s.TrySetPermits(ctx, 9, 0))
	expect.OK(t, s.AddPermits(ctx, -2))
	wants(t, "below 0", -2)(s.AvailablePermits(ctx))
	wants(t, "drained below 0", -2)(s.DrainPermits(ctx))
	expect.OK(t, s.AddPermits(ctx, 4))
	wants(t, "available", 4)(s.AvailablePermits(ctx))
	wants(t, "delete", true)(s.Delete(ctx))
	wants(t, "delete again", false)(s.Delete(ctx))
	expect.OK(t, s.AddPermits(ctx, 4))
	wants(t, "created by AddPermits", 4)(s.AvailablePermits(ctx))
}

func TestSemaphoreStaysWithinJavasInt(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")
	wants(t, "largest", true)(s.TrySetPermits(ctx, math.MaxInt32, 0))
	fails(t, "one more", s.Release(ctx, 1), redisson.ErrTooMany)
	fails(t, "one more", s.AddPermits(ctx, 1), redisson.ErrTooMany)
	wants(t, "unchanged", math.MaxInt32)(s.AvailablePermits(ctx))
	expect.OK(t, f.rdb.Set(ctx, "s", math.MinInt32, 0).Err())
	fails(t, "one less", s.AddPermits(ctx, -1), redisson.ErrTooMany)
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")

	_, err := s.TTL(ctx)
	fails(t, "no semaphore", err, redisson.ErrNoSemaphore)
	wants(t, "expire nothing", false)(s.Expire(ctx, time.Hour))
	wants(t, "create", true)(s.TrySetPermits(ctx, 5, time.Hour))
	if d, err := s.TTL(ctx); err != nil || d <= 0 || d > time.Hour {
		t.Fatalf("TTL %v, %v", d, err)
	}
	wants(t, "persist", true)(s.Persist(ctx))
	wants(t, "persist again", false)(s.Persist(ctx))
	wants(t, "TTL", redisson.NoExpiry)(s.TTL(ctx))
	wants(t, "in the past", true)(s.ExpireAt(ctx, time.Unix(1, 0)))
	wants(t, "exists", false)(s.Exists(ctx))

	expect.OK(t, e.SetPermits(ctx, 5))
	_, err = e.TryAcquire(ctx, redisson.NoLease)
	expect.OK(t, err)
	wants(t, "expire", true)(e.Expire(ctx, time.Hour))
	for _, key := range []string{"e", "{e}:timeout"} {
		if d := f.rdb.PTTL(ctx, key).Val(); d <= 0 || d > time.Hour {
			t.Fatalf("%s lives %v", key, d)
		}
	}
	wants(t, "delete", true)(e.Delete(ctx))
	if n := f.rdb.Exists(ctx, "e", "{e}:timeout").Val(); n != 0 {
		t.Fatalf("%d keys left", n)
	}
}

// The pitfall "SET drops the time to live": Redisson's AddPermits and DrainPermits do.
func TestTimeToLiveSurvivesEveryChange(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	changes := map[string]func() error{
		"add":     func() error { return s.AddPermits(ctx, 2) },
		"remove":  func() error { return s.AddPermits(ctx, -1) },
		"drain":   func() error { _, err := s.DrainPermits(ctx); return err },
		"release": func() error { return s.Release(ctx, 5) },
		"acquire": func() error { return s.TryAcquire(ctx, 1) },
		"set":     func() error { return e.SetPermits(ctx, 7) },
		"lease": func() error {
			id, err := e.TryAcquire(ctx, time.Hour)
			return errors.Join(err, e.Release(ctx, id))
		},
	}
	for name, change := range changes {
		expect.OK(t, f.rdb.Set(ctx, "x", 3, time.Hour).Err())
		expect.OK(t, change())
		if d := f.rdb.PTTL(ctx, "x").Val(); d <= 0 {
			t.Errorf("%s: time to live is %v", name, d)
		}
	}
}

// The pitfall "no resurrection of a counter whose key is gone": Redisson's
// release creates the key anew, without limit and time to live.
func TestReleaseDoesNotReviveACounter(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
	fails(t, "release", s.Release(ctx, 1), redisson.ErrNoSemaphore)
	wants(t, "release if exists", false)(s.ReleaseIfExists(ctx, 1))

	expect.OK(t, e.SetPermits(ctx, 3))
	id, err := e.TryAcquire(ctx, time.Hour)
	expect.OK(t, err)
	ended, err := e.TryAcquire(ctx, time.Hour)
	expect.OK(t, err)
	endLease(t, f, "{e}:timeout", ended)
	expect.OK(t, f.rdb.Del(ctx, "e").Err())
	expect.OK(t, e.Release(ctx, id)) // held, so no error; there is only nothing to credit
	_, err = e.TryAcquire(ctx, time.Hour)
	fails(t, "collection", err, redisson.ErrBusy)
	if n := f.rdb.Exists(ctx, "s", "e").Val(); n != 0 {
		t.Fatalf("%d counters came back to life", n)
	}
	if n := f.rdb.ZCard(ctx, "{e}:timeout").Val(); n != 0 {
		t.Fatalf("%d permits left without a counter", n)
	}
}

// The pitfall "SCRIPT FLUSH".
func TestScriptsComeBack(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")
	wants(t, "create", true)(s.TrySetPermits(ctx, 2, 0))
	for range 2 {
		expect.OK(t, f.rdb.ScriptFlush(ctx).Err())
		expect.OK(t, s.TryAcquire(ctx, 1))
	}
}

// The pitfall "OOM": a permit must be returnable when the server is full.
func TestReleaseWorksWithoutMemory(t *testing.T) {
	t.Parallel()
	for _, o := range []redisson.Options{{}, {NoReceipts: true}} {
		f := setUp(t, o)
		ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
		wants(t, "create", true)(s.TrySetPermits(ctx, 2, 0))
		expect.OK(t, e.SetPermits(ctx, 2))
		expect.OK(t, s.TryAcquire(ctx, 1))
		id, err := e.TryAcquire(ctx, time.Hour)
		expect.OK(t, err)
		expect.OK(t, f.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
		if err := s.TryAcquire(ctx, 1); err == nil || errors.Is(err, redisson.ErrBusy) {
			t.Fatalf("acquired on a full server: %v", err)
		}
		expect.OK(t, s.Release(ctx, 1))
		expect.OK(t, e.Release(ctx, id))
		expect.OK(t, f.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
		wants(t, "available", 2)(s.AvailablePermits(ctx))
		wants(t, "available", 2)(e.AvailablePermits(ctx))
	}
}

// Access rules made for Redisson are enough without receipts. With receipts the
// error says what is missing.
func TestAccessRulesOfRedisson(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	expect.OK(t, f.rdb.ACLSetUser(f.ctx, "java", "on", ">pw", "+@all", "resetchannels", "&redisson_sc:*",
		"~s", "~{s}:timeout", "~redisson_sc:*").Err())
	rdb := redis.NewClient(&redis.Options{Addr: f.server.Addr(), Username: "java", Password: "pw"})
	defer func() { _ = rdb.Close() }()
	s, e := counter(t, newClient(t, rdb, redisson.Options{}), "s"), expirable(t, newClient(t, rdb, redisson.Options{NoReceipts: true}), "s")
	if _, err := s.TrySetPermits(f.ctx, 1, 0); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Fatalf("with receipts: %v", err)
	}
	expect.OK(t, e.SetPermits(f.ctx, 1))
	id, err := e.Acquire(f.ctx, time.Hour)
	expect.OK(t, err)
	waiting := acquiring(func() error { _, err := e.Acquire(f.ctx, time.Hour); return err })
	expect.Until(t, "subscription", func() bool { return subscribers(t, f.ctx, f.rdb, "s") == 1 })
	expect.OK(t, e.Release(f.ctx, id))
	expect.OK(t, errorOf(t, "waiter", waiting))
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
	id := "00112233445566778899aabbccddeeff"
	calls := map[string]func() error{
		"acquire 0":       func() error { return s.TryAcquire(ctx, 0) },
		"acquire -1":      func() error { return s.Acquire(ctx, -1) },
		"release 0":       func() error { return s.Release(ctx, 0) },
		"release -1":      func() error { _, err := s.ReleaseIfExists(ctx, -1); return err },
		"set -1":          func() error { _, err := s.TrySetPermits(ctx, -1, 0); return err },
		"ttl -1":          func() error { _, err := s.TrySetPermits(ctx, 1, -1); return err },
		"expire 0":        func() error { _, err := s.Expire(ctx, 0); return err },
		"expire at zero":  func() error { _, err := s.ExpireAt(ctx, time.Time{}); return err },
		"set total -1":    func() error { return e.SetPermits(ctx, -1) },
		"lease 0":         func() error { _, err := e.TryAcquire(ctx, 0); return err },
		"lease -2":        func() error { _, err := e.Acquire(ctx, -2); return err },
		"acquire 1001":    func() error { _, err := e.TryAcquireN(ctx, 1001, time.Second); return err },
		"acquire none":    func() error { _, err := e.AcquireN(ctx, 0, time.Second); return err },
		"release nothing": func() error { return e.Release(ctx) },
		"not an id":       func() error { return e.Release(ctx, "xyz") },
		"id of 15 bytes":  func() error { _, err := e.LeaseTime(ctx, id[2:]); return err },
		"id twice":        func() error { _, err := e.TryRelease(ctx, id, id); return err },
		"update lease 0":  func() error { _, err := e.UpdateLeaseTime(ctx, id, 0); return err },
		"empty name":      func() error { _, err := f.client.Semaphore(""); return err },
		"not UTF-8":       func() error { _, err := f.client.ExpirableSemaphore("\xff"); return err },
		"long name":       func() error { _, err := f.client.Semaphore(string(make([]byte, 1025))); return err },
		"poll":            func() error { _, err := redisson.New(f.rdb, &redisson.Options{Poll: 1}); return err },
		"timeout":         func() error { _, err := redisson.New(f.rdb, &redisson.Options{Timeout: -1}); return err },
		"channels":        func() error { _, err := redisson.New(f.rdb, &redisson.Options{Channels: 7}); return err },
		"endless reads": func() error {
			rdb := redis.NewClient(&redis.Options{ReadTimeout: -1})
			defer func() { _ = rdb.Close() }()
			_, err := redisson.New(rdb, nil)
			return err
		},
		"no client": func() error { _, err := redisson.New(nil, nil); return err },
	}
	// On a machine of 32 bits there is no int beyond Java's.
	if n := math.MaxInt32; math.MaxInt > n {
		n++
		calls["acquire 2^31"] = func() error { return s.Acquire(ctx, n) }
		calls["add 2^31"] = func() error { return s.AddPermits(ctx, n) }
	}
	for name, call := range calls {
		var wrong *redisson.ArgumentError
		if err := call(); !errors.As(err, &wrong) || wrong.Package != "redisson" || wrong.What == "" || wrong.Want == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.rdb.DBSize(ctx).Val(); n != 0 {
		t.Errorf("wrong arguments made %d keys", n)
	}
}

// Durations read as durations, and a long name is not printed in full.
func TestArgumentErrorsAreReadable(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never asked
	defer func() { _ = rdb.Close() }()
	c := newClient(t, rdb, redisson.Options{})
	_, long := c.Semaphore(strings.Repeat("x", 1025))
	_, poll := redisson.New(rdb, &redisson.Options{Poll: 5 * time.Millisecond})
	_, lease := expirable(t, c, "s").TryAcquire(t.Context(), -90*time.Second)
	_, ttl := counter(t, c, "s").Expire(t.Context(), -time.Minute)
	_, none := redisson.New((*redis.Client)(nil), nil)
	for _, w := range []struct {
		err  error
		want string
	}{
		{long, `redisson: name "` + strings.Repeat("x", 60) + `"…: want 1 to 1024 bytes`},
		{poll, "redisson: Options.Poll 5ms: want at least 10ms"},
		{lease, "redisson: lease -1m30s: want more than 0, or NoLease"},
		{ttl, "redisson: ttl -1m0s: want more than 0"},
		{none, "redisson: client nil: want a *redis.Client or a *redis.ClusterClient"},
	} {
		if w.err == nil || w.err.Error() != w.want {
			t.Errorf("%v; want %s", w.err, w.want)
		}
	}
}

// The pitfall "two primitives use the same key name". A counter that INCRBY does not take is no counter, even if Lua can read it.
// Nothing may have changed when the error comes, held permits included.
func TestForeignKeysAreRefusedAndKept(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	const held = "16-byte-permit-1"
	calls := map[string]func() error{
		"acquire":   func() error { return s.TryAcquire(ctx, 1) },
		"release":   func() error { return s.Release(ctx, 1) },
		"add":       func() error { return s.AddPermits(ctx, 1) },
		"drain":     func() error { _, err := s.DrainPermits(ctx); return err },
		"create":    func() error { _, err := s.TrySetPermits(ctx, 1, 0); return err },
		"available": func() error { _, err := s.AvailablePermits(ctx); return err },
		"set":       func() error { return e.SetPermits(ctx, 1) },
		"lease":     func() error { _, err := e.TryAcquire(ctx, time.Hour); return err },
		"counts":    func() error { _, err := e.Permits(ctx); return err },
	}
	for name, call := range calls {
		expect.OK(t, f.rdb.Del(ctx, "x", "{x}:timeout").Err())
		expect.OK(t, f.rdb.HSet(ctx, "x", "f", "v").Err())
		err := call()
		fails(t, name+" on a hash", err, redisson.ErrWrongType)
		if !strings.Contains(err.Error(), "(another program uses a key of this name") {
			t.Fatalf("%s: %q does not say what to try", name, err)
		}
	}
	calls["release id"] = func() error { return e.Release(ctx, hex.EncodeToString([]byte(held))) }
	for _, odd := range []string{
		"words", "3e0", " 3", "3 ", "0x3", "03", "+3", "-0", "3.0", "", "inf", "nan",
		"12345678901234567890", "9007199254740993",
	} {
		for name, call := range calls {
			expect.OK(t, f.rdb.Set(ctx, "x", odd, 0).Err())
			expect.OK(t, f.rdb.ZAdd(ctx, "{x}:timeout", z("ended", 1), z(held, 9e14)).Err())
			fails(t, fmt.Sprintf("%s on %q", name, odd), call(), redisson.ErrWrongType)
			if v := f.rdb.Get(ctx, "x").Val(); v != odd || f.rdb.ZCard(ctx, "{x}:timeout").Val() != 2 {
				t.Fatalf("%s changed the counter %q to %q, %d permits are held", name, odd, v, f.rdb.ZCard(ctx, "{x}:timeout").Val())
			}
		}
	}
}

// A counter beyond Java's int, which Redisson's release can make, stays usable:
// permits can be taken, and a release neither raises nor lowers it.
func TestCounterBeyondJavasInt(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	expect.OK(t, f.rdb.Set(ctx, "x", "3000000000", 0).Err())
	wants(t, "available", int(min(int64(math.MaxInt), 3_000_000_000)))(s.AvailablePermits(ctx))
	id, err := e.TryAcquire(ctx, time.Hour)
	expect.OK(t, err)
	expect.OK(t, s.TryAcquire(ctx, 1))
	fails(t, "release", s.Release(ctx, 1), redisson.ErrTooMany)
	expect.OK(t, e.Release(ctx, id))
	wants(t, "counter", "2999999998")(f.rdb.Get(ctx, "x").Result())
}

func TestCancelledContextSendsNothingButReleases(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	s, e := counter(t, f.client, "s"), expirable(t, f.client, "e")
	wants(t, "create", true)(s.TrySetPermits(f.ctx, 2, 0))
	expect.OK(t, e.SetPermits(f.ctx, 2))
	expect.OK(t, s.TryAcquire(f.ctx, 1))
	id, err := e.TryAcquire(f.ctx, time.Hour)
	expect.OK(t, err)
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	fails(t, "acquire", s.Acquire(gone, 1), context.Canceled)
	_, err = s.DrainPermits(gone)
	fails(t, "drain", err, context.Canceled)
	wants(t, "available", 1)(s.AvailablePermits(f.ctx))
	// The pitfall "release on the cancelled request context leaks the permit".
	expect.OK(t, s.Release(gone, 1))
	expect.OK(t, e.Release(gone, id))
	wants(t, "available", 2)(s.AvailablePermits(f.ctx))
	wants(t, "available", 2)(e.AvailablePermits(f.ctx))
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	waiting := acquiring(func() error { return s.Acquire(f.ctx, 1) })
	expect.Until(t, "subscription", func() bool { return subscribers(t, f.ctx, f.rdb, "s") == 1 })
	expect.OK(t, f.client.Close())
	expect.OK(t, f.client.Close())
	fails(t, "waiter", errorOf(t, "closed waiter", waiting), redisson.ErrClosed)
	fails(t, "after", s.TryAcquire(f.ctx, 1), redisson.ErrClosed)
}
