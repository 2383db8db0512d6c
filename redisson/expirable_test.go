package redisson_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/redisson"
)

func z(member string, score float64) redis.Z { return redis.Z{Member: member, Score: score} }

// endLease ends a permit's lease now.
func endLease(t testing.TB, f fixture, key, id string) {
	t.Helper()
	raw, err := hex.DecodeString(id)
	expect.OK(t, err)
	if n := f.rdb.ZAddXX(f.ctx, key, z(string(raw), 1)); n.Err() != nil {
		t.Fatal(n.Err())
	}
}

func TestExpirableSemaphoreCounts(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, expirable(t, f.client, "s")

	_, err := s.TryAcquire(ctx, time.Hour)
	fails(t, "no semaphore yet", err, redisson.ErrBusy)
	wants(t, "permits", 0)(s.Permits(ctx))
	wants(t, "create", true)(s.TrySetPermits(ctx, 5))
	wants(t, "create again", false)(s.TrySetPermits(ctx, 9))
	one, err := s.TryAcquire(ctx, time.Hour)
	expect.OK(t, err)
	three, err := s.TryAcquireN(ctx, 3, redisson.NoLease)
	expect.OK(t, err)
	_, err = s.TryAcquireN(ctx, 2, time.Hour)
	fails(t, "2 of 1", err, redisson.ErrBusy)
	wants(t, "available", 1)(s.AvailablePermits(ctx))
	wants(t, "acquired", 4)(s.AcquiredPermits(ctx))
	wants(t, "permits", 5)(s.Permits(ctx))

	wants(t, "lease", redisson.NoLease)(s.LeaseTime(ctx, three[0]))
	if d, err := s.LeaseTime(ctx, one); err != nil || d <= 0 || d > time.Hour {
		t.Fatalf("lease %v, %v", d, err)
	}
	wants(t, "renew", true)(s.UpdateLeaseTime(ctx, one, redisson.NoLease))
	wants(t, "lease", redisson.NoLease)(s.LeaseTime(ctx, one))

	expect.OK(t, s.Release(ctx, three...))
	fails(t, "release again", s.Release(ctx, three...), redisson.ErrNotHeld)
	wants(t, "some not held", false)(s.TryRelease(ctx, one, three[0]))
	wants(t, "acquired", 1)(s.AcquiredPermits(ctx))
	wants(t, "renew released", false)(s.UpdateLeaseTime(ctx, three[0], time.Hour))
	_, err = s.LeaseTime(ctx, three[0])
	fails(t, "lease of released", err, redisson.ErrNotHeld)

	expect.OK(t, s.SetPermits(ctx, 0))
	wants(t, "shrunk", -1)(s.AvailablePermits(ctx))
	wants(t, "held stays", 1)(s.AcquiredPermits(ctx))
	expect.OK(t, s.AddPermits(ctx, 3))
	wants(t, "permits", 3)(s.Permits(ctx))
	expect.OK(t, s.Release(ctx, one))
	wants(t, "available", 3)(s.AvailablePermits(ctx))
	wants(t, "create at any", false)(s.TrySetPermits(ctx, 9))
}

// The data must be what Redisson reads and writes.
func TestLayout(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{NoReceipts: true})
	for _, c := range []struct{ name, timeouts, channel string }{
		{"plain", "{plain}:timeout", "redisson_sc:{plain}"},
		{"a{b}c", "a{b}c:timeout", "redisson_sc:a{b}c"},
		{"a{b", "a{b:timeout", "redisson_sc:a{b"}, // allowed off a cluster, as in Redisson
		{"名字", "{名字}:timeout", "redisson_sc:{名字}"},
		{"a}b", "{a}b}:timeout", "redisson_sc:{a}b}"},
	} {
		ctx, s := f.ctx, expirable(t, f.client, c.name)
		listener := f.rdb.Subscribe(ctx, c.channel)
		_, err := listener.Receive(ctx)
		expect.OK(t, err)
		heard := func(want string) {
			t.Helper()
			m, err := listener.ReceiveMessage(ctx)
			if err != nil || m.Payload != want {
				t.Fatalf("%s: heard %v, %v; want %s", c.name, m, err, want)
			}
		}
		wants(t, "create", true)(s.TrySetPermits(ctx, 4))
		heard("4")
		wants(t, "counter", "4")(f.rdb.Get(ctx, c.name).Result())
		wants(t, "expire", true)(s.Expire(ctx, time.Hour))
		id, err := s.TryAcquire(ctx, redisson.NoLease)
		expect.OK(t, err)
		raw, _ := hex.DecodeString(id)
		if len(id) != 32 || len(raw) != 16 {
			t.Fatalf("id %q", id)
		}
		wants(t, "never", 922337203685477.0)(f.rdb.ZScore(ctx, c.timeouts, string(raw)).Result())
		if d := f.rdb.PTTL(ctx, c.timeouts).Val(); d <= 0 {
			t.Fatalf("held permits live %v; want as long as the counter", d)
		}
		// Redisson compares the score as text.
		text, err := f.rdb.Eval(ctx, "return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]", []string{c.timeouts}).Text()
		if err != nil || text != "922337203685477" {
			t.Fatalf("score %q, %v", text, err)
		}
		wants(t, "renew", true)(s.UpdateLeaseTime(ctx, id, time.Hour))
		now, score := f.rdb.Time(ctx).Val(), f.rdb.ZScore(ctx, c.timeouts, string(raw)).Val()
		if left := time.UnixMilli(int64(score)).Sub(now); left <= 0 || left > time.Hour+time.Millisecond {
			t.Fatalf("lease ends in %v", left)
		}
		expect.OK(t, s.Release(ctx, id))
		heard("4")
		expect.OK(t, s.AddPermits(ctx, -6))
		wants(t, "counter", "-2")(f.rdb.Get(ctx, c.name).Result())
		expect.OK(t, s.AddPermits(ctx, 1)) // an increment that leaves nothing available
		heard("1")
		expect.OK(t, s.SetPermits(ctx, 3))
		heard("3")
		expect.OK(t, listener.Close())
		if keys := f.rdb.Keys(ctx, "*").Val(); len(keys) != 1 {
			t.Fatalf("keys %q; want the counter only", keys)
		}
		expect.OK(t, f.rdb.Del(ctx, c.name).Err())
	}
}

func TestReceiptsAreBounded(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	s := counter(t, f.client, "s")
	wants(t, "create", true)(s.TrySetPermits(f.ctx, 1, 0))
	for range 50 {
		expect.OK(t, s.TryAcquire(f.ctx, 1))
		expect.OK(t, s.Release(f.ctx, 1))
	}
	keys := f.rdb.Keys(f.ctx, "{s}:receipts:*").Val()
	if len(keys) != 1 {
		t.Fatalf("receipts %q; want one key", keys)
	}
	// A lane is free again a moment after its request returned, so there may be
	// more than one, but nowhere near one for each of the 101 requests.
	if n := f.rdb.HLen(f.ctx, keys[0]).Val(); n < 1 || n > 10 {
		t.Fatalf("%d lanes", n)
	}
	// The pitfall "keys that never expire".
	if d := f.rdb.PTTL(f.ctx, keys[0]).Val(); d <= 0 {
		t.Fatalf("receipts live %v", d)
	}
}

// The pitfalls "a renewal puts a reaped holder back" and "releasing twice adds
// permits".
func TestEndedLease(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, expirable(t, f.client, "s")
	expect.OK(t, s.SetPermits(ctx, 2))
	ids, err := s.TryAcquireN(ctx, 2, time.Hour)
	expect.OK(t, err)
	endLease(t, f, "{s}:timeout", ids[0])
	wants(t, "not collected, yet available", 1)(s.AvailablePermits(ctx))
	wants(t, "acquired", 1)(s.AcquiredPermits(ctx))
	wants(t, "permits", 2)(s.Permits(ctx))
	wants(t, "renew", false)(s.UpdateLeaseTime(ctx, ids[0], time.Hour))
	_, err = s.LeaseTime(ctx, ids[0])
	fails(t, "lease", err, redisson.ErrNotHeld)
	wants(t, "release with an ended one", false)(s.TryRelease(ctx, ids...))
	wants(t, "the other is still held", 1)(s.AcquiredPermits(ctx))
	wants(t, "release again", false)(s.TryRelease(ctx, ids[0]))
	wants(t, "available", 1)(s.AvailablePermits(ctx))

	endLease(t, f, "{s}:timeout", ids[1])
	both, err := s.TryAcquireN(ctx, 2, time.Hour)
	expect.OK(t, err)
	fails(t, "ended", s.Release(ctx, ids[1]), redisson.ErrNotHeld)
	wants(t, "acquired", 2)(s.AcquiredPermits(ctx))
	expect.OK(t, s.Release(ctx, both...))
}

// The pitfall "unpack fails at about 8,000 values".
func TestTwelveThousandEndedLeases(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, expirable(t, f.client, "s")
	const ended = 12000
	expect.OK(t, f.rdb.Set(ctx, "s", 1, 0).Err())
	members := make([]redis.Z, ended)
	for i := range members {
		members[i] = z(fmt.Sprintf("%016d", i), float64(i+1))
	}
	expect.OK(t, f.rdb.ZAdd(ctx, "{s}:timeout", members...).Err())
	wants(t, "available", ended+1)(s.AvailablePermits(ctx))
	wants(t, "acquired", 0)(s.AcquiredPermits(ctx))
	wants(t, "permits", ended+1)(s.Permits(ctx))
	ids, err := s.TryAcquireN(ctx, 1000, time.Hour)
	expect.OK(t, err)
	expect.OK(t, s.Release(ctx, ids...))
	// This acquisition needs all of them. They are collected in batches within
	// one call.
	expect.OK(t, s.SetPermits(ctx, 1000))
	ids, err = s.TryAcquireN(ctx, 1000, time.Hour)
	expect.OK(t, err)
	wants(t, "collected", int64(1000))(f.rdb.ZCard(ctx, "{s}:timeout").Result())
	wants(t, "acquired", 1000)(s.AcquiredPermits(ctx))
	expect.OK(t, s.Release(ctx, ids...))
}

// The pitfall "re-initialising while all permits are out doubles the limit".
func TestSettingPermitsCountsHeldOnes(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	ctx, s := f.ctx, expirable(t, f.client, "s")
	wants(t, "create", true)(s.TrySetPermits(ctx, 2))
	ids, err := s.TryAcquireN(ctx, 2, time.Hour)
	expect.OK(t, err)
	wants(t, "all out", false)(s.TrySetPermits(ctx, 2))
	expect.OK(t, f.rdb.Del(ctx, "s").Err())
	wants(t, "counter lost", true)(s.TrySetPermits(ctx, 3))
	wants(t, "available", 1)(s.AvailablePermits(ctx))
	expect.OK(t, s.Release(ctx, ids...))
	wants(t, "permits", 3)(s.Permits(ctx))
}

// A fast clock of a client must not matter: leases are the server's.
func TestLeaseEndsByTheServersClock(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	s := expirable(t, f.client, "s")
	expect.OK(t, s.SetPermits(f.ctx, 1))
	id, err := s.TryAcquire(f.ctx, 1500*time.Microsecond) // rounded up to 2 ms
	expect.OK(t, err)
	expect.Until(t, "end of lease", func() bool {
		_, err := s.LeaseTime(f.ctx, id)
		return errors.Is(err, redisson.ErrNotHeld)
	})
	next, err := s.TryAcquire(f.ctx, time.Hour)
	expect.OK(t, err)
	expect.OK(t, s.Release(f.ctx, next))
	if v := f.rdb.Get(f.ctx, "s").Val(); v != strconv.Itoa(1) {
		t.Fatalf("counter %s", v)
	}
}
