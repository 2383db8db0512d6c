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

	"sema/redisson"
)

func TestSemaphoreCounts(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")

	expectError(t, "no semaphore yet", s.TryAcquire(ctx, 1), redisson.ErrUnavailable)
	expect(t, "available", 0)(s.AvailablePermits(ctx))
	expect(t, "drain", 0)(s.DrainPermits(ctx))
	expect(t, "exists", false)(s.Exists(ctx))
	if n, err := f.rdb.DBSize(ctx).Result(); n != 0 || err != nil {
		t.Fatalf("%d keys made by calls without effect, %v", n, err)
	}

	expect(t, "create", true)(s.TrySetPermits(ctx, 5, 0))
	expect(t, "create again", false)(s.TrySetPermits(ctx, 9, 0))
	must(t, s.TryAcquire(ctx, 3))
	expectError(t, "3 of 2", s.TryAcquire(ctx, 3), redisson.ErrUnavailable)
	expect(t, "available", 2)(s.AvailablePermits(ctx))
	must(t, s.Release(ctx, 3))
	expect(t, "release", true)(s.ReleaseIfExists(ctx, 1))
	expect(t, "drained", 6)(s.DrainPermits(ctx))
	expect(t, "create at 0", false)(s.TrySetPermits(ctx, 9, 0))
	must(t, s.AddPermits(ctx, -2))
	expect(t, "below 0", -2)(s.AvailablePermits(ctx))
	expect(t, "drained below 0", -2)(s.DrainPermits(ctx))
	must(t, s.AddPermits(ctx, 4))
	expect(t, "available", 4)(s.AvailablePermits(ctx))
	expect(t, "delete", true)(s.Delete(ctx))
	expect(t, "delete again", false)(s.Delete(ctx))
	must(t, s.AddPermits(ctx, 4))
	expect(t, "created by AddPermits", 4)(s.AvailablePermits(ctx))
}

func TestSemaphoreStaysWithinJavasInt(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")
	expect(t, "largest", true)(s.TrySetPermits(ctx, math.MaxInt32, 0))
	expectError(t, "one more", s.Release(ctx, 1), redisson.ErrTooMany)
	expectError(t, "one more", s.AddPermits(ctx, 1), redisson.ErrTooMany)
	expect(t, "unchanged", math.MaxInt32)(s.AvailablePermits(ctx))
	must(t, f.rdb.Set(ctx, "s", math.MinInt32, 0).Err())
	expectError(t, "one less", s.AddPermits(ctx, -1), redisson.ErrTooMany)
}

func TestLifetime(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")

	_, err := s.TTL(ctx)
	expectError(t, "no semaphore", err, redisson.ErrNoSemaphore)
	expect(t, "expire nothing", false)(s.Expire(ctx, time.Hour))
	expect(t, "create", true)(s.TrySetPermits(ctx, 5, time.Hour))
	if d, err := s.TTL(ctx); err != nil || d <= 0 || d > time.Hour {
		t.Fatalf("TTL %v, %v", d, err)
	}
	expect(t, "persist", true)(s.Persist(ctx))
	expect(t, "persist again", false)(s.Persist(ctx))
	expect(t, "TTL", redisson.NoExpiry)(s.TTL(ctx))
	expect(t, "in the past", true)(s.ExpireAt(ctx, time.Unix(1, 0)))
	expect(t, "exists", false)(s.Exists(ctx))

	must(t, e.SetPermits(ctx, 5))
	_, err = e.TryAcquire(ctx, redisson.NoLease)
	must(t, err)
	expect(t, "expire", true)(e.Expire(ctx, time.Hour))
	for _, key := range []string{"e", "{e}:timeout"} {
		if d := f.rdb.PTTL(ctx, key).Val(); d <= 0 || d > time.Hour {
			t.Fatalf("%s lives %v", key, d)
		}
	}
	expect(t, "delete", true)(e.Delete(ctx))
	if n := f.rdb.Exists(ctx, "e", "{e}:timeout").Val(); n != 0 {
		t.Fatalf("%d keys left", n)
	}
}

// The pitfall "SET drops the time to live": Redisson's AddPermits and DrainPermits do.
func TestTimeToLiveSurvivesEveryChange(t *testing.T) {
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
		must(t, f.rdb.Set(ctx, "x", 3, time.Hour).Err())
		must(t, change())
		if d := f.rdb.PTTL(ctx, "x").Val(); d <= 0 {
			t.Errorf("%s: time to live is %v", name, d)
		}
	}
}

// The pitfall "no resurrection of a counter whose key is gone": Redisson's
// release creates the key anew, without limit and time to live.
func TestReleaseDoesNotReviveACounter(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
	expectError(t, "release", s.Release(ctx, 1), redisson.ErrNoSemaphore)
	expect(t, "release if exists", false)(s.ReleaseIfExists(ctx, 1))

	must(t, e.SetPermits(ctx, 3))
	id, err := e.TryAcquire(ctx, time.Hour)
	must(t, err)
	ended, err := e.TryAcquire(ctx, time.Hour)
	must(t, err)
	endLease(t, f, "{e}:timeout", ended)
	must(t, f.rdb.Del(ctx, "e").Err())
	must(t, e.Release(ctx, id)) // held, so no error; there is only nothing to credit
	_, err = e.TryAcquire(ctx, time.Hour)
	expectError(t, "collection", err, redisson.ErrUnavailable)
	if n := f.rdb.Exists(ctx, "s", "e").Val(); n != 0 {
		t.Fatalf("%d counters came back to life", n)
	}
	if n := f.rdb.ZCard(ctx, "{e}:timeout").Val(); n != 0 {
		t.Fatalf("%d permits left without a counter", n)
	}
}

// The pitfall "two primitives use the same key name".
func TestForeignKeysAreRefusedAndKept(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	calls := map[string]func() error{
		"acquire":   func() error { return s.TryAcquire(ctx, 1) },
		"release":   func() error { return s.Release(ctx, 1) },
		"add":       func() error { return s.AddPermits(ctx, 1) },
		"drain":     func() error { _, err := s.DrainPermits(ctx); return err },
		"available": func() error { _, err := s.AvailablePermits(ctx); return err },
		"set":       func() error { return e.SetPermits(ctx, 1) },
		"lease":     func() error { _, err := e.TryAcquire(ctx, time.Hour); return err },
		"counts":    func() error { _, err := e.Permits(ctx); return err },
	}
	for name, call := range calls {
		must(t, f.rdb.Del(ctx, "x", "{x}:timeout").Err())
		must(t, f.rdb.HSet(ctx, "x", "f", "v").Err())
		err := call()
		expectError(t, name+" on a hash", err, redisson.ErrWrongType)
		if !strings.Contains(err.Error(), "(another program uses a key of this name") {
			t.Fatalf("%s: %q does not say what to try", name, err)
		}
		must(t, f.rdb.Set(ctx, "x", "words", 0).Err())
		must(t, f.rdb.ZAdd(ctx, "{x}:timeout", z("ended", 1)).Err())
		expectError(t, name+" on words", call(), redisson.ErrWrongType)
		if v := f.rdb.Get(ctx, "x").Val(); v != "words" || f.rdb.ZCard(ctx, "{x}:timeout").Val() != 1 {
			t.Fatalf("%s changed a foreign key to %q", name, v)
		}
	}
}

// The pitfall "SCRIPT FLUSH".
func TestScriptsComeBack(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, counter(t, f.client, "s")
	expect(t, "create", true)(s.TrySetPermits(ctx, 2, 0))
	for range 2 {
		must(t, f.rdb.ScriptFlush(ctx).Err())
		must(t, s.TryAcquire(ctx, 1))
	}
}

// The pitfall "OOM": a permit must be returnable when the server is full.
func TestReleaseWorksWithoutMemory(t *testing.T) {
	for _, o := range []redisson.Options{{}, {NoReceipts: true}} {
		f := setUp(t, o)
		ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
		expect(t, "create", true)(s.TrySetPermits(ctx, 2, 0))
		must(t, e.SetPermits(ctx, 2))
		must(t, s.TryAcquire(ctx, 1))
		id, err := e.TryAcquire(ctx, time.Hour)
		must(t, err)
		must(t, f.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
		if err := s.TryAcquire(ctx, 1); err == nil || errors.Is(err, redisson.ErrUnavailable) {
			t.Fatalf("acquired on a full server: %v", err)
		}
		must(t, s.Release(ctx, 1))
		must(t, e.Release(ctx, id))
		must(t, f.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
		expect(t, "available", 2)(s.AvailablePermits(ctx))
		expect(t, "available", 2)(e.AvailablePermits(ctx))
	}
}

// Access rules made for Redisson are enough without receipts. With receipts the
// error says what is missing.
func TestAccessRulesOfRedisson(t *testing.T) {
	f := setUp(t, redisson.Options{Poll: slow})
	must(t, f.rdb.ACLSetUser(f.ctx, "java", "on", ">pw", "+@all", "resetchannels", "&redisson_sc:*",
		"~s", "~{s}:timeout", "~redisson_sc:*").Err())
	rdb := redis.NewClient(&redis.Options{Addr: f.server.Addr(), Username: "java", Password: "pw"})
	defer func() { _ = rdb.Close() }()
	s, e := counter(t, newClient(t, rdb, redisson.Options{}), "s"), expirable(t, newClient(t, rdb, redisson.Options{NoReceipts: true}), "s")
	if _, err := s.TrySetPermits(f.ctx, 1, 0); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Fatalf("with receipts: %v", err)
	}
	must(t, e.SetPermits(f.ctx, 1))
	id, err := e.Acquire(f.ctx, time.Hour)
	must(t, err)
	waiting := acquiring(func() error { _, err := e.Acquire(f.ctx, time.Hour); return err })
	await(t, f.ctx, "subscription", func() bool { return subscribers(t, f.ctx, f.rdb, "s") == 1 })
	must(t, e.Release(f.ctx, id))
	must(t, errorOf(t, "waiter", waiting))
}

func TestArgumentsAreChecked(t *testing.T) {
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

// A counter that INCRBY does not take is no counter, even if Lua can read it.
// Nothing may have changed when the error comes, held permits included.
func TestCountersThatAreNotIntegers(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	const held = "16-byte-permit-1"
	calls := map[string]func() error{
		"acquire":    func() error { return s.TryAcquire(ctx, 1) },
		"release":    func() error { return s.Release(ctx, 1) },
		"add":        func() error { return s.AddPermits(ctx, 1) },
		"drain":      func() error { _, err := s.DrainPermits(ctx); return err },
		"create":     func() error { _, err := s.TrySetPermits(ctx, 1, 0); return err },
		"available":  func() error { _, err := s.AvailablePermits(ctx); return err },
		"set":        func() error { return e.SetPermits(ctx, 1) },
		"lease":      func() error { _, err := e.TryAcquire(ctx, time.Hour); return err },
		"release id": func() error { return e.Release(ctx, hex.EncodeToString([]byte(held))) },
		"counts":     func() error { _, err := e.Permits(ctx); return err },
	}
	for _, odd := range []string{
		"3e0", " 3", "3 ", "0x3", "03", "+3", "-0", "3.0", "", "inf", "nan",
		"12345678901234567890", "9007199254740993",
	} {
		for name, call := range calls {
			must(t, f.rdb.Set(ctx, "x", odd, 0).Err())
			must(t, f.rdb.ZAdd(ctx, "{x}:timeout", z("ended", 1), z(held, 9e14)).Err())
			expectError(t, fmt.Sprintf("%s on %q", name, odd), call(), redisson.ErrWrongType)
			if v := f.rdb.Get(ctx, "x").Val(); v != odd || f.rdb.ZCard(ctx, "{x}:timeout").Val() != 2 {
				t.Fatalf("%s changed the counter %q to %q, %d permits are held", name, odd, v, f.rdb.ZCard(ctx, "{x}:timeout").Val())
			}
		}
	}
}

// A counter beyond Java's int, which Redisson's release can make, stays usable:
// permits can be taken, and a release neither raises nor lowers it.
func TestCounterBeyondJavasInt(t *testing.T) {
	f := setUp(t, redisson.Options{})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	must(t, f.rdb.Set(ctx, "x", "3000000000", 0).Err())
	expect(t, "available", int(min(int64(math.MaxInt), 3_000_000_000)))(s.AvailablePermits(ctx))
	id, err := e.TryAcquire(ctx, time.Hour)
	must(t, err)
	must(t, s.TryAcquire(ctx, 1))
	expectError(t, "release", s.Release(ctx, 1), redisson.ErrTooMany)
	must(t, e.Release(ctx, id))
	expect(t, "counter", "2999999998")(f.rdb.Get(ctx, "x").Result())
}

func TestCancelledContextSendsNothingButReleases(t *testing.T) {
	f := setUp(t, redisson.Options{})
	s, e := counter(t, f.client, "s"), expirable(t, f.client, "e")
	expect(t, "create", true)(s.TrySetPermits(f.ctx, 2, 0))
	must(t, e.SetPermits(f.ctx, 2))
	must(t, s.TryAcquire(f.ctx, 1))
	id, err := e.TryAcquire(f.ctx, time.Hour)
	must(t, err)
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	expectError(t, "acquire", s.Acquire(gone, 1), context.Canceled)
	_, err = s.DrainPermits(gone)
	expectError(t, "drain", err, context.Canceled)
	expect(t, "available", 1)(s.AvailablePermits(f.ctx))
	// The pitfall "release on the cancelled request context leaks the permit".
	must(t, s.Release(gone, 1))
	must(t, e.Release(gone, id))
	expect(t, "available", 2)(s.AvailablePermits(f.ctx))
	expect(t, "available", 2)(e.AvailablePermits(f.ctx))
}

func TestClosedClient(t *testing.T) {
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	waiting := acquiring(func() error { return s.Acquire(f.ctx, 1) })
	await(t, f.ctx, "subscription", func() bool { return subscribers(t, f.ctx, f.rdb, "s") == 1 })
	must(t, f.client.Close())
	must(t, f.client.Close())
	expectError(t, "waiter", errorOf(t, "closed waiter", waiting), redisson.ErrClosed)
	expectError(t, "after", s.TryAcquire(f.ctx, 1), redisson.ErrClosed)
}
