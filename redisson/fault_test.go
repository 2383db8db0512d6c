package redisson_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// clients returns the kind of each connection to the server.
func clients(t *testing.T, f fixture) []string {
	t.Helper()
	list, err := f.rdb.ClientList(f.ctx).Result()
	expect.OK(t, err)
	var kinds []string
	for line := range strings.Lines(list) {
		kind := "normal"
		if strings.Contains(line, " sub=1 ") || strings.Contains(line, " sub=4 ") || strings.Contains(line, "flags=P") {
			kind = "pubsub"
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// broken has a second client of ours, behind a proxy. Its go-redis client would
// send requests again by itself. What must not fail goes through the first one.
type broken struct {
	fixture
	proxy  *redistest.Proxy
	remote *redisson.Client
}

func setUpBroken(t *testing.T, o redisson.Options) broken {
	t.Helper()
	f := setUp(t, redisson.Options{})
	p := redistest.StartProxy(t, f.server.Addr())
	patience := 100 * time.Millisecond // for an answer that does not come
	if o.NoReceipts {
		patience = expect.Patience // what is sent once must not fail because it is slow
	}
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: 3, ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { _ = rdb.Close() })
	warm(t, f)
	b := broken{f, p, newClient(t, rdb, o)}
	b.connect(t)
	return b
}

// connect makes sure that there is a connection. Without one, the answer that gets
// lost would be that to the handshake.
func (b broken) connect(t *testing.T) {
	t.Helper()
	b.proxy.Resume()
	s := counter(t, b.remote, "connect")
	expect.Until(t, "a connection", func() bool { _, err := s.AvailablePermits(b.ctx); return err == nil })
}

// counters is a counter as both clients see it, created with so many permits.
func (b broken) counters(t *testing.T, name string, permits int) (far, near *redisson.Semaphore) {
	t.Helper()
	near = counter(t, b.client, name)
	wants(t, "create", true)(near.TrySetPermits(b.ctx, permits, 0))
	return counter(t, b.remote, name), near
}

// warm makes the server know the scripts. Otherwise the first answer that gets
// lost would be that it does not know one.
func warm(t *testing.T, f fixture) {
	t.Helper()
	s, e := counter(t, f.client, "warm"), expirable(t, f.client, "warm")
	wants(t, "create", true)(s.TrySetPermits(f.ctx, 2, 0))
	expect.OK(t, s.TryAcquire(f.ctx, 1))
	expect.OK(t, s.Release(f.ctx, 1))
	expect.OK(t, s.AddPermits(f.ctx, 1))
	expect.OK(t, e.SetPermits(f.ctx, 2))
	id, err := e.TryAcquire(f.ctx, time.Hour)
	expect.OK(t, err)
	wants(t, "renew", true)(e.UpdateLeaseTime(f.ctx, id, time.Hour))
	expect.OK(t, e.Release(f.ctx, id))
	wants(t, "drain", 2)(s.DrainPermits(f.ctx))
	wants(t, "delete", true)(s.Delete(f.ctx))
}

// The pitfall "after a timeout the acquire is sent again and takes a second
// permit", with retries on in the user's client: every request is executed once
// although the answers to its first copies are lost.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{})
	ctx, s, e := b.ctx, counter(t, b.remote, "s"), expirable(t, b.remote, "e")
	wants(t, "create", true)(s.TrySetPermits(ctx, 10, 0))
	expect.OK(t, e.SetPermits(ctx, 10))
	var ids []string
	steps := []struct {
		what      string
		do        func() error
		available string // key whose value tells that the first copy was executed
		want      string
	}{
		{"acquire", func() error { return s.TryAcquire(ctx, 3) }, "s", "7"},
		{"release", func() error { return s.Release(ctx, 1) }, "s", "8"},
		{"add", func() error { return s.AddPermits(ctx, 5) }, "s", "13"},
		{"acquire by id", func() (err error) { ids, err = e.TryAcquireN(ctx, 4, time.Hour); return }, "e", "6"},
		{"renew", func() error { _, err := e.UpdateLeaseTime(ctx, ids[0], time.Hour); return err }, "e", "6"},
		{"release by id", func() error { return e.Release(ctx, ids...) }, "e", "10"},
		{"set", func() error { return e.SetPermits(ctx, 12) }, "e", "12"},
		{"drain", func() error {
			n, err := s.DrainPermits(ctx)
			if n != 13 {
				t.Errorf("drained %d", n)
			}
			return err
		}, "s", "0"},
		{"delete", func() error {
			ok, err := s.Delete(ctx)
			if !ok {
				t.Error("delete found nothing")
			}
			return err
		}, "s", ""},
		{"create", func() error {
			ok, err := s.TrySetPermits(ctx, 2, 0)
			if !ok {
				t.Error("create found a semaphore: its own")
			}
			return err
		}, "s", "2"},
	}
	for _, step := range steps {
		b.connect(t)
		b.proxy.LoseReplies()
		result := acquiring(step.do)
		expect.Until(t, step.what+" executed", func() bool {
			return b.rdb.Get(ctx, step.available).Val() == step.want
		})
		b.proxy.Resume()
		if err := errorOf(t, step.what, result); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if v := b.rdb.Get(ctx, step.available).Val(); v != step.want {
			t.Fatalf("%s was executed more than once: %s; want %s", step.what, v, step.want)
		}
	}
}

// Without receipts a counter's request goes out once, and the error says so.
func TestWithoutReceiptsTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{NoReceipts: true})
	ctx, s := b.ctx, counter(t, b.remote, "s")
	wants(t, "create", true)(s.TrySetPermits(ctx, 10, 0))
	expect.OK(t, s.TryAcquire(ctx, 1))
	expect.OK(t, s.Release(ctx, 1)) // both scripts are known to the server by now
	b.proxy.LoseReplies()
	var unknown *redisson.UnknownError
	if err := s.TryAcquire(ctx, 1); !errors.As(err, &unknown) || unknown.Settling || unknown.Op != "acquire" || unknown.Name != "s" {
		t.Fatalf("acquire: %v", err)
	}
	b.connect(t)
	b.proxy.LoseReplies()
	if err := s.Release(ctx, 3); !errors.As(err, &unknown) || unknown.Settling || unknown.Op != "release" {
		t.Fatalf("release: %v", err)
	}
	wants(t, "each executed once", "12")(b.rdb.Get(ctx, "s").Result())
	b.connect(t)

	// With ids the outcome gets known without receipts too.
	e := expirable(t, b.remote, "e")
	expect.OK(t, e.SetPermits(ctx, 10))
	b.proxy.LoseReplies()
	var ids []string
	acquired := acquiring(func() (err error) { ids, err = e.TryAcquireN(ctx, 2, time.Hour); return })
	expect.Until(t, "execution", func() bool { return b.rdb.Get(ctx, "e").Val() == "8" })
	b.proxy.Resume()
	expect.OK(t, errorOf(t, "acquire", acquired))
	b.proxy.LoseReplies()
	released := acquiring(func() error { return e.Release(ctx, ids...) })
	expect.Until(t, "execution", func() bool { return b.rdb.Get(ctx, "e").Val() == "10" })
	b.proxy.Resume()
	expect.OK(t, errorOf(t, "release", released))
	wants(t, "available", "10")(b.rdb.Get(ctx, "e").Result())
}

// A caller who gives up while the answer is on its way keeps nothing.
func TestGivingUpUndoesTheAcquisition(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{})
	s, e := counter(t, b.remote, "s"), expirable(t, b.remote, "e")
	wants(t, "create", true)(s.TrySetPermits(b.ctx, 2, 0))
	expect.OK(t, e.SetPermits(b.ctx, 2))
	for key, acquire := range map[string]func(context.Context) error{
		"s": func(ctx context.Context) error { return s.Acquire(ctx, 2) },
		"e": func(ctx context.Context) error { _, err := e.AcquireN(ctx, 2, redisson.NoLease); return err },
	} {
		ctx, cancel := context.WithCancel(b.ctx)
		b.connect(t)
		b.proxy.LoseReplies()
		result := acquiring(func() error { return acquire(ctx) })
		expect.Until(t, "execution", func() bool { return b.rdb.Get(b.ctx, key).Val() == "0" })
		cancel()
		err := errorOf(t, "given up", result)
		fails(t, "given up", err, context.Canceled)
		fails(t, "given up", err, redisson.ErrBusy)
		b.proxy.Resume()
		settled(t, b.fixture, key, 2)
	}
}

// The same without receipts, for an answer that comes late.
func TestGivingUpUndoesTheAcquisitionWithoutReceipts(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	warm(t, f)
	expect.OK(t, f.rdb.Set(f.ctx, "s", 2, 0).Err())
	expect.OK(t, f.rdb.Set(f.ctx, "e", 2, 0).Err())
	for _, key := range []string{"s", "e"} {
		p := redistest.StartProxy(t, f.server.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: expect.Patience})
		defer func() { _ = rdb.Close() }()
		expect.OK(t, rdb.Ping(f.ctx).Err())
		c := newClient(t, rdb, redisson.Options{NoReceipts: true, Timeout: expect.Patience})
		s, e := counter(t, c, key), expirable(t, c, key)
		wants(t, "available", 2)(s.AvailablePermits(f.ctx)) // a Client's first request asks what the server is
		sent := make(chan struct{}, 1)
		rdb.AddHook(redistest.Around(func(commands ...string) func(error) {
			if commands[0] == "evalsha" {
				select {
				case sent <- struct{}{}:
				default:
				}
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(f.ctx)
		executed := evalshas(t, f)
		p.Silence()
		result := acquiring(func() error {
			if key == "s" {
				return s.Acquire(ctx, 2)
			}
			_, err := e.AcquireN(ctx, 2, redisson.NoLease)
			return err
		})
		<-sent
		cancel()
		fails(t, "given up", errorOf(t, "given up", result), context.Canceled)
		p.Resume()
		expect.OK(t, c.Close()) // waits for the answer, and for what it entails
		if n := evalshas(t, f) - executed; n != 2 {
			t.Fatalf("%d scripts ran; want the acquisition and its undoing", n)
		}
		wants(t, "available", "2")(f.rdb.Get(f.ctx, key).Result())
	}
}

// A request can be held up somewhere and executed long after its caller got an
// error. It must not take a permit that nobody knows of.
func TestLateRequestTakesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"s", "e"} {
		b := setUpBroken(t, redisson.Options{Timeout: 300 * time.Millisecond})
		s, _ := b.counters(t, "s", 2)
		e := expirable(t, b.remote, "e")
		expect.OK(t, expirable(t, b.client, "e").SetPermits(b.ctx, 2))
		executed := evalshas(t, b.fixture)
		b.proxy.Silence()
		var err error
		if kind == "s" {
			err = s.TryAcquire(b.ctx, 2)
		} else {
			_, err = e.TryAcquireN(b.ctx, 2, redisson.NoLease)
		}
		var unknown *redisson.UnknownError
		if !errors.As(err, &unknown) || !unknown.Settling {
			t.Fatalf("acquire: %v", err)
		}
		b.proxy.Resume() // now the acquisition and what takes it back arrive, in either order
		expect.Until(t, "both executed", func() bool { return evalshas(t, b.fixture) >= executed+2 })
		settled(t, b.fixture, kind, 2)
		if n := b.rdb.ZCard(b.ctx, "{e}:timeout").Val(); n != 0 {
			t.Fatalf("%d permits taken by nobody", n)
		}
	}
}

// evalshas is how many scripts the server has run.
func evalshas(t *testing.T, f fixture) int {
	t.Helper()
	stats, err := f.rdb.InfoMap(f.ctx, "commandstats").Result()
	expect.OK(t, err)
	for name, values := range stats["Commandstats"] {
		if name == "cmdstat_evalsha" {
			var calls int
			_, err := fmt.Sscanf(values, "calls=%d", &calls)
			expect.OK(t, err)
			return calls
		}
	}
	return 0
}

// A release that is not confirmed in time is completed in the background. It is
// executed once, whether its first copy was executed or got lost.
func TestUnconfirmedReleaseIsCompleted(t *testing.T) {
	t.Parallel()
	for _, executed := range []bool{true, false} {
		b := setUpBroken(t, redisson.Options{Timeout: 200 * time.Millisecond})
		s, near := b.counters(t, "s", 2)
		expect.OK(t, near.TryAcquire(b.ctx, 2))
		if executed {
			b.proxy.LoseReplies()
		} else {
			b.proxy.Silence()
		}
		var unknown *redisson.UnknownError
		if err := s.Release(b.ctx, 2); !errors.As(err, &unknown) || !unknown.Settling {
			t.Fatalf("release: %v", err)
		}
		if executed {
			settled(t, b.fixture, "s", 2)
		} else {
			wants(t, "before any copy has arrived", "0")(b.rdb.Get(b.ctx, "s").Result())
		}
		b.proxy.DropAll() // and the data that it held up
		b.proxy.Resume()
		settled(t, b.fixture, "s", 2)
		if err := b.remote.Close(); err != nil && !errors.Is(err, redisson.ErrUnsettled) {
			t.Fatal(err)
		}
		wants(t, "available when all is quiet", "2")(b.rdb.Get(b.ctx, "s").Result())
	}
}

func TestCloseTellsWhatItCouldNotSettle(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{Timeout: 100 * time.Millisecond})
	s, _ := b.counters(t, "s", 2)
	b.proxy.LoseReplies()
	var unknown *redisson.UnknownError
	if err := s.TryAcquire(b.ctx, 1); !errors.As(err, &unknown) {
		t.Fatalf("acquire: %v", err)
	}
	fails(t, "close", b.remote.Close(), redisson.ErrUnsettled)
}

// Errors that mean "not executed" are tried again without unknown.
func TestServerThatComesBack(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{Timeout: expect.Patience})
	s := counter(t, b.remote, "s")
	wants(t, "create", true)(s.TrySetPermits(b.ctx, 2, 0))
	// READONLY first, then connections refused, then all is well.
	expect.OK(t, b.rdb.ReplicaOf(b.ctx, "127.0.0.1", "1").Err())
	result := acquiring(func() error { return s.TryAcquire(b.ctx, 1) })
	expect.Until(t, "a refusal", func() bool {
		stats, err := b.rdb.Info(b.ctx, "errorstats").Result()
		return err == nil && strings.Contains(stats, "errorstat_READONLY")
	})
	b.proxy.Refuse()
	expect.OK(t, b.rdb.ReplicaOf(b.ctx, "NO", "ONE").Err())
	b.proxy.Resume()
	expect.OK(t, errorOf(t, "acquire", result))
	wants(t, "available", 1)(s.AvailablePermits(b.ctx))
}

// A failover does not end a wait: releases and messages reach the waiter on the
// new master. How long the Sentinels take for it is not ours to say.
func TestFailover(t *testing.T) {
	t.Parallel()
	world, ctx := redistest.StartSentinel(t), context.Background()
	c := newClient(t, world.Client(), redisson.Options{Timeout: time.Hour, Poll: 100 * time.Millisecond})
	s, e := counter(t, c, "s"), expirable(t, c, "e")
	wants(t, "create", true)(s.TrySetPermits(ctx, 1, 0))
	expect.OK(t, e.SetPermits(ctx, 1))
	expect.OK(t, s.Acquire(ctx, 1))
	id, err := e.Acquire(ctx, time.Hour)
	expect.OK(t, err)
	expect.Until(t, "replica", func() bool {
		return world.Replica.Client().Exists(ctx, "s", "{e}:timeout").Val() == 2
	})
	waiting := acquiring(func() error { return s.Acquire(ctx, 1) })
	expect.Until(t, "subscription", func() bool { return subscribers(t, ctx, world.Master.Client(), "s") == 1 })
	world.Master.Kill()
	releasing := acquiring(func() error { return s.Release(ctx, 1) }) // sent until there is a master to take it
	world.AwaitMaster(world.Replica)
	expect.OK(t, errorOf(t, "release", releasing))
	expect.OK(t, errorOf(t, "waiter", waiting))
	expect.OK(t, e.Release(ctx, id))
	wants(t, "all taken", 0)(s.AvailablePermits(ctx))
	wants(t, "all back", 1)(e.AvailablePermits(ctx))
}

func TestUnreachableServerEndsTheCall(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{Timeout: 100 * time.Millisecond})
	s := counter(t, b.remote, "s")
	b.proxy.Refuse()
	err := s.Acquire(context.Background(), 1)
	if err == nil || errors.Is(err, redisson.ErrBusy) {
		t.Fatalf("acquire: %v", err)
	}
	// Whether the connection is refused, or closed at once, is a matter of moments.
	if text := err.Error(); !strings.HasPrefix(text, `redisson: acquire "s": `) ||
		!strings.Contains(text, "(check that the server runs") && !strings.Contains(text, "(the server closed the connection") {
		t.Fatalf("%q does not say what failed and what to try", text)
	}
}

// Answers get lost at random moments, and callers give up. In the end all permits
// are back, and there are no more than before.
func TestNothingLeaksUnderFaults(t *testing.T) {
	t.Parallel()
	b := setUpBroken(t, redisson.Options{Timeout: expect.Patience, Poll: 50 * time.Millisecond})
	const permits, workers, rounds = 3, 6, 15
	s, e := counter(t, b.remote, "s"), expirable(t, b.remote, "e")
	wants(t, "create", true)(s.TrySetPermits(b.ctx, permits, 0))
	expect.OK(t, e.SetPermits(b.ctx, permits))
	stop := make(chan struct{})
	var faults, work sync.WaitGroup
	faults.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
			}
			switch i % 4 {
			case 0:
				b.proxy.LoseReplies()
			case 2:
				b.proxy.DropAll()
			default:
				b.proxy.Resume()
			}
		}
	})
	for w := range workers {
		work.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(b.ctx, time.Duration(5+(i*7+w*3)%40)*time.Millisecond)
				if err := s.Acquire(ctx, 1+w%2); err == nil {
					_ = s.Release(b.ctx, 1+w%2) // an unknown one is completed in the background
				}
				if ids, err := e.AcquireN(ctx, 1+w%2, redisson.NoLease); err == nil {
					_ = e.Release(b.ctx, ids...)
				}
				cancel()
			}
		})
	}
	work.Wait()
	close(stop)
	faults.Wait()
	b.proxy.Resume()
	expect.OK(t, b.remote.Close())
	wants(t, "counter", "3")(b.rdb.Get(b.ctx, "s").Result())
	wants(t, "expirable", "3")(b.rdb.Get(b.ctx, "e").Result())
	if n := b.rdb.ZCard(b.ctx, "{e}:timeout").Val(); n != 0 {
		t.Fatalf("%d permits held by nobody", n)
	}
}
