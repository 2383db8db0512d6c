package redisson_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/redisson"
)

// listening waits until one connection listens for a name.
func listening(t *testing.T, f fixture, name string) {
	t.Helper()
	expect.Until(t, "subscription", func() bool { return subscribers(t, f.ctx, f.rdb, name) == 1 })
}

func TestAcquireWaitsForARelease(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	ctx, s, e := f.ctx, counter(t, f.client, "s"), expirable(t, f.client, "e")
	wants(t, "create", true)(s.TrySetPermits(ctx, 3, 0))
	expect.OK(t, s.Acquire(ctx, 2))
	waiting := acquiring(func() error { return s.Acquire(ctx, 3) })
	listening(t, f, "s")
	expect.OK(t, s.Release(ctx, 2))
	expect.OK(t, errorOf(t, "woken by a release", waiting))

	expect.OK(t, e.SetPermits(ctx, 1))
	id, err := e.Acquire(ctx, redisson.NoLease)
	expect.OK(t, err)
	got := make(chan string, 1)
	waiting = acquiring(func() error { id, err := e.Acquire(ctx, redisson.NoLease); got <- id; return err })
	listening(t, f, "e")
	expect.OK(t, e.Release(ctx, id))
	expect.OK(t, errorOf(t, "woken by a release", waiting))
	expect.OK(t, e.Release(ctx, <-got))
}

// The pitfall "an increment without a publish": everything that adds permits wakes.
func TestEveryIncrementWakes(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	ctx, s, e := f.ctx, counter(t, f.client, "x"), expirable(t, f.client, "x")
	for name, increment := range map[string]func() error{
		"create":    func() error { _, err := s.TrySetPermits(ctx, 1, 0); return err },
		"add":       func() error { return s.AddPermits(ctx, 1) },
		"set":       func() error { return e.SetPermits(ctx, 1) },
		"create it": func() error { _, err := e.TrySetPermits(ctx, 1); return err },
	} {
		expect.OK(t, f.rdb.Del(ctx, "x").Err())
		waiting := acquiring(func() error { return s.Acquire(ctx, 1) })
		listening(t, f, "x")
		expect.OK(t, increment())
		expect.OK(t, errorOf(t, name, waiting))
		expect.Until(t, "end of subscription", func() bool { return subscribers(t, ctx, f.rdb, "x") == 0 })
	}
}

func TestContextEndsTheWait(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	ctx, cancel := context.WithCancel(f.ctx)
	waiting := acquiring(func() error { return s.Acquire(ctx, 1) })
	listening(t, f, "s")
	cancel()
	err := errorOf(t, "cancelled", waiting)
	fails(t, "cancelled", err, context.Canceled)
	fails(t, "cancelled", err, redisson.ErrBusy)

	ctx, cancel = context.WithTimeout(f.ctx, 20*time.Millisecond)
	defer cancel()
	err = s.Acquire(ctx, 1)
	fails(t, "wait time", err, context.DeadlineExceeded)
	fails(t, "wait time", err, redisson.ErrBusy)
	if errors.Is(err, context.Canceled) {
		t.Fatalf("%v is two errors", err)
	}
	err = s.Acquire(ctx, 1) // ended before it began
	fails(t, "ended", err, context.DeadlineExceeded)
	fails(t, "ended", err, redisson.ErrBusy)
}

// One subscription per process and name, however many wait; none when all left.
func TestOneSubscriptionPerName(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s, e := counter(t, f.client, "s"), expirable(t, f.client, "s")
	ctx, cancel := context.WithCancel(f.ctx)
	var waiting sync.WaitGroup
	for range 25 {
		waiting.Go(func() { _ = s.Acquire(ctx, 1) })
		waiting.Go(func() { _, _ = e.Acquire(ctx, time.Hour) })
	}
	listening(t, f, "s")
	expect.OK(t, f.rdb.Set(f.ctx, "s", 0, 0).Err())
	// While fifty wait, releases come and go; there is never a second
	// subscription.
	for range 10 {
		expect.OK(t, s.Release(f.ctx, 1))
		if n := subscribers(t, f.ctx, f.rdb, "s"); n != 1 {
			t.Fatalf("%d subscriptions", n)
		}
	}
	cancel()
	waiting.Wait()
	expect.Until(t, "end of subscription", func() bool { return subscribers(t, f.ctx, f.rdb, "s") == 0 })
}

// The pitfall "the wake-up count is in threads, not permits, so a waiter for 1
// sleeps beside a free permit".
func TestWakeUpsFitPermits(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	ctx, s := f.ctx, counter(t, f.client, "s")
	wants(t, "create", true)(s.TrySetPermits(ctx, 0, 0))
	five := acquiring(func() error { return s.Acquire(ctx, 5) })
	listening(t, f, "s")
	var small []<-chan error
	for range 3 {
		small = append(small, acquiring(func() error { return s.Acquire(ctx, 1) }))
	}
	expect.OK(t, s.Release(ctx, 1))
	expect.Until(t, "one for a small waiter", func() bool {
		for i, w := range small {
			select {
			case err := <-w:
				expect.OK(t, err)
				small = append(small[:i], small[i+1:]...)
				return true
			default:
			}
		}
		return false
	})
	// A message can name fewer permits than are available: when Redisson releases
	// a list, it publishes how many it released.
	expect.OK(t, f.rdb.Set(ctx, "s", 7, 0).Err())
	expect.OK(t, f.rdb.Publish(ctx, "redisson_sc:{s}", 1).Err())
	for _, w := range small {
		expect.OK(t, errorOf(t, "small waiter", w))
	}
	expect.OK(t, errorOf(t, "large waiter", five))
	wants(t, "available", 0)(s.AvailablePermits(ctx))
}

// Messages nobody should send must neither wedge nor crash a waiter.
func TestOddMessagesAreHarmless(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	waiting := acquiring(func() error { return s.Acquire(f.ctx, 1) })
	listening(t, f, "s")
	for _, odd := range []string{"", "0", "-5", "3.0", "words", "99999999999999999999"} {
		expect.OK(t, f.rdb.Publish(f.ctx, "redisson_sc:{s}", odd).Err())
	}
	expect.OK(t, s.AddPermits(f.ctx, 1))
	expect.OK(t, errorOf(t, "waiter", waiting))
}

// The pitfall "an abandoned waiter later eats a permit": waiters leave at the
// moment they are woken, and the wake-up must reach those who stay.
func TestWakeUpOfALeaverReachesOthers(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	wants(t, "create", true)(s.TrySetPermits(f.ctx, 0, 0))
	for range 30 {
		ctx, cancel := context.WithCancel(f.ctx)
		leaving := acquiring(func() error { return s.Acquire(ctx, 1) })
		listening(t, f, "s")
		staying := acquiring(func() error { return s.Acquire(f.ctx, 1) })
		go cancel()
		expect.OK(t, s.Release(f.ctx, 1))
		if err := errorOf(t, "leaving", leaving); err == nil {
			expect.OK(t, s.Release(f.ctx, 1))
		}
		expect.OK(t, errorOf(t, "staying", staying))
		settled(t, f, "s", 0)
	}
}

// The pitfall "expiry is swept only on acquire, so idle waiters hang": the end
// of a lease wakes, without message or poll.
func TestEndOfLeaseWakes(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	e := expirable(t, f.client, "e")
	expect.OK(t, e.SetPermits(f.ctx, 2))
	_, err := e.TryAcquireN(f.ctx, 2, 30*time.Millisecond)
	expect.OK(t, err)
	ids, err := e.AcquireN(f.ctx, 2, time.Hour)
	expect.OK(t, err)
	expect.OK(t, e.Release(f.ctx, ids...))
}

// The same when a waiter of the other kind, whose attempts do not look at
// leases, came first under the same name.
func TestEndOfLeaseWakesBehindTheOtherKind(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s, e := counter(t, f.client, "x"), expirable(t, f.client, "x")
	expect.OK(t, e.SetPermits(f.ctx, 1))
	first := acquiring(func() error { return s.Acquire(f.ctx, 2) })
	listening(t, f, "x")
	_, err := e.TryAcquire(f.ctx, 30*time.Millisecond)
	expect.OK(t, err)
	id, err := e.Acquire(f.ctx, time.Hour)
	expect.OK(t, err)
	expect.OK(t, e.Release(f.ctx, id))
	expect.OK(t, s.AddPermits(f.ctx, 1))
	expect.OK(t, errorOf(t, "first", first))
}

// The pitfall "a lost message hangs a waiter for ever".
func TestLostMessageDoesNotHang(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: 50 * time.Millisecond})
	s := counter(t, f.client, "s")
	waiting := acquiring(func() error { return s.Acquire(f.ctx, 1) })
	listening(t, f, "s")
	expect.OK(t, f.rdb.Set(f.ctx, "s", 1, 0).Err()) // an increment without a message
	expect.OK(t, errorOf(t, "poll", waiting))
}

func TestReconnectedSubscriptionTriesAgain(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	s := counter(t, f.client, "s")
	waiting := acquiring(func() error { return s.Acquire(f.ctx, 1) })
	listening(t, f, "s")
	expect.OK(t, f.rdb.Set(f.ctx, "s", 1, 0).Err())
	expect.OK(t, f.rdb.ClientKillByFilter(f.ctx, "TYPE", "pubsub").Err())
	expect.OK(t, errorOf(t, "after the reconnect", waiting))
}

// The pitfall "one blocked connection per waiter exhausts the pool".
func TestManyWaitersNeedOneConnection(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{Poll: slow})
	before := len(clients(t, f))
	ctx, cancel := context.WithCancel(f.ctx)
	var waiting sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		s := counter(t, f.client, name)
		for range 10 {
			waiting.Go(func() { _ = s.Acquire(ctx, 1) })
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		listening(t, f, name)
	}
	pubsub := 0
	for _, line := range clients(t, f)[before-1:] {
		if line == "pubsub" {
			pubsub++
		}
	}
	if pubsub != 1 {
		t.Errorf("%d connections for subscriptions to four names; want 1", pubsub)
	}
	cancel()
	waiting.Wait()
}

// Several clients compete, as several processes would. The permits they hold are
// counted outside of Redis and never exceed the limit.
func TestLimitHolds(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	const limit, clients, workers, rounds = 3, 3, 4, 60
	s, e := counter(t, f.client, "s"), expirable(t, f.client, "e")
	wants(t, "create", true)(s.TrySetPermits(f.ctx, limit, 0))
	expect.OK(t, e.SetPermits(f.ctx, limit))
	var heldS, heldE atomic.Int64
	enter := func(held *atomic.Int64, n int64) {
		if held.Add(n) > limit {
			t.Error("more permits held than there are")
		}
	}
	var all sync.WaitGroup
	for range clients {
		c := newClient(t, f.server.Client(), redisson.Options{})
		s, e := counter(t, c, "s"), expirable(t, c, "e")
		for w := range workers {
			n := 1 + w%limit
			all.Go(func() {
				for range rounds {
					if err := s.Acquire(f.ctx, n); err != nil {
						t.Error(err)
						return
					}
					enter(&heldS, int64(n))
					heldS.Add(-int64(n))
					if err := s.Release(f.ctx, n); err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				for range rounds {
					ids, err := e.AcquireN(f.ctx, n, time.Minute)
					if err != nil {
						t.Error(err)
						return
					}
					enter(&heldE, int64(n))
					heldE.Add(-int64(n))
					if err := e.Release(f.ctx, ids...); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	wants(t, "all back", limit)(s.AvailablePermits(f.ctx))
	wants(t, "all back", limit)(e.AvailablePermits(f.ctx))
	wants(t, "none held", 0)(e.AcquiredPermits(f.ctx))
}

// A user who may not subscribe polls. The subscription is asked for again with
// each poll, so it stands soon after the rights are given.
func TestARefusedSubscription(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	expect.OK(t, f.rdb.ACLSetUser(f.ctx, "deaf", "on", ">pw", "~*", "&*", "+@all", "-subscribe").Err())
	rdb := redis.NewClient(&redis.Options{Addr: f.server.Addr(), Username: "deaf", Password: "pw"})
	t.Cleanup(func() { _ = rdb.Close() })
	s := counter(t, newClient(t, rdb, redisson.Options{Poll: 10 * time.Millisecond}), "s")
	if _, err := s.TrySetPermits(f.ctx, 1, 0); err != nil {
		t.Fatal(err)
	}
	expect.OK(t, s.Acquire(f.ctx, 1))
	granted := make(chan error)
	wait := func() { granted <- s.Acquire(f.ctx, 1) }
	go wait()
	expect.Until(t, "a refusal", func() bool { return len(f.rdb.ACLLog(f.ctx, 10).Val()) > 0 })
	expect.OK(t, s.Release(f.ctx, 1))
	expect.OK(t, <-granted)

	go wait()
	expect.OK(t, f.rdb.ACLSetUser(f.ctx, "deaf", "+subscribe").Err())
	expect.Until(t, "the subscription", func() bool {
		names, err := f.rdb.PubSubChannels(f.ctx, "*").Result()
		return err == nil && len(names) == 1
	})
	expect.OK(t, s.Release(f.ctx, 1))
	expect.OK(t, <-granted)
}
