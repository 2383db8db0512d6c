package admit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/sematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// crowd is requests that run until they are told to leave. Their semaphore's engine may be away.
type crowd struct {
	gate    Gate
	options Options
	key     string
	sem     *sema.Semaphore
	engine  *sematest.Engine
	healed  func() // ends what away began
	leave   chan struct{}
	asked   atomic.Int64
	running atomic.Int64
	most    atomic.Int64
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
	told    []told
}

// told is what a request was told of the engine.
type told struct {
	err      error
	admitted bool
}

func newCrowd(t *testing.T, limit int, o Options) *crowd {
	t.Helper()
	expect.OK(t, o.Check("test"))
	c := &crowd{options: o, key: "x", engine: sematest.New(t), leave: make(chan struct{})}
	var err error
	c.sem, err = sema.New(c.engine, "x", limit, nil)
	expect.OK(t, err)
	return c
}

// away makes the engine say nothing.
func (c *crowd) away() {
	c.healed = c.engine.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
}

// back makes the engine answer, and waits until that is known.
func (c *crowd) back() {
	if c.healed != nil {
		c.healed()
	}
	time.Sleep(10 * time.Second) // what hangs ends, and a probe finds out
	synctest.Wait()
}

// held is the weight held.
func (c *crowd) held() int { return len(c.engine.Held("x")) }

func (c *crowd) request() Request {
	return Request{
		Name: c.key,
		Acquire: func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
			c.asked.Add(1)
			p, err := c.sem.Acquire(ctx, options...)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Failed: func(err error, admitted bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.told = append(c.told, told{err, admitted})
		},
	}
}

// send sends n requests. An error of one is noted.
func (c *crowd) send(ctx context.Context, n int) {
	a := c.request()
	for range n {
		c.wg.Go(func() {
			p, err := c.gate.Enter(ctx, c.options, a)
			if err == nil {
				c.stay(p.Context(ctx))
				Release(p)
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.errs = append(c.errs, err)
		})
	}
}

func (c *crowd) stay(ctx context.Context) {
	n := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-c.leave:
	case <-ctx.Done():
	}
}

// policyTest runs f in virtual time. At the end nothing may be held.
func policyTest(t *testing.T, o Options, limit int, f func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, limit, o)
		f(t, c)
		c.wg.Wait()
		c.back()
		if n := c.held(); n != 0 {
			t.Errorf("%d held at the end", n)
		}
		expect.OK(t, c.sem.Close())
	})
}

func TestClosed(t *testing.T) {
	policyTest(t, Options{}, 2, func(t *testing.T, c *crowd) {
		c.away()
		c.send(t.Context(), 5)
		c.wg.Wait()
		if c.most.Load() != 0 || len(c.errs) != 5 || len(c.told) != 5 || c.told[0].admitted {
			t.Errorf("%d ran, %v, told %+v", c.most.Load(), c.errs, c.told)
		}
		for _, err := range append(c.errs, c.told[0].err) {
			expect.Is(t, err, sema.ErrEngine)
		}
	})
}

func TestOpen(t *testing.T) {
	policyTest(t, Options{Outage: Open}, 2, func(t *testing.T, c *crowd) {
		c.away()
		c.send(t.Context(), 5)
		time.Sleep(200 * time.Millisecond) // they get no answer, and the probe gets none
		synctest.Wait()
		if c.running.Load() != 5 || len(c.told) != 5 || !c.told[0].admitted {
			t.Fatalf("%d run, told %+v", c.running.Load(), c.told)
		}
		// Now nobody waits for the engine. It is asked at once, and in each second.
		for i := range 3 {
			c.send(t.Context(), 20)
			synctest.Wait()
			if want := int64(6 + i); c.running.Load() != int64(25+20*i) || c.asked.Load() != want {
				t.Fatalf("%d run, %d asked, want %d", c.running.Load(), c.asked.Load(), want)
			}
			time.Sleep(time.Second)
		}
		// The engine is back: a probe finds out, and then all are limited.
		c.back()
		if n := c.held(); n != 0 {
			t.Errorf("the probe holds %d", n)
		}
		c.send(t.Context(), 11)
		synctest.Wait()
		if c.running.Load() != 67 || c.held() != 2 {
			t.Fatalf("%d run, %d held; want 65 without permit, and 2", c.running.Load(), c.held())
		}
		close(c.leave)
	})
}

func TestLocal(t *testing.T) {
	policyTest(t, Options{Outage: Local(3, 0), Wait: time.Minute}, 10, func(t *testing.T, c *crowd) {
		c.away()
		c.send(t.Context(), 5)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.running.Load() != 3 || len(c.told) != 3 || !c.told[0].admitted {
			t.Fatalf("%d run, told %+v", c.running.Load(), c.told)
		}
		// The other two wait for a place: for a minute from when they came.
		c.send(t.Context(), 1)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(c.errs) != 2 || len(c.told) != 5 || c.told[4].admitted {
			t.Fatalf("failed %v, told %+v", c.errs, c.told)
		}
		for _, err := range c.errs {
			if !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		// A place that comes free is the next one's. When the engine is back, those
		// that come then are limited by it again.
		c.leave <- struct{}{}
		synctest.Wait()
		c.back()
		c.send(t.Context(), 12)
		synctest.Wait()
		if c.running.Load() != 13 || c.held() != 10 {
			t.Fatalf("%d run, %d held; want 3 beside the 10", c.running.Load(), c.held())
		}
		close(c.leave)
	})
}

// The places are for all keys together; those of one key are bounded beside that.
func TestLocalCountsAllKeysTogether(t *testing.T) {
	for perKey, want := range map[int][]int64{0: {5, 5, 5}, 2: {2, 4, 5}} {
		policyTest(t, Options{Outage: Local(5, perKey)}, 100, func(t *testing.T, c *crowd) {
			c.away()
			for i, key := range []string{"a", "b", "c"} {
				c.key = key
				c.send(t.Context(), 6)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := c.running.Load(); n != want[i] {
					t.Errorf("per key %d, %d keys: %d run, want %d", perKey, i+1, n, want[i])
				}
			}
			close(c.leave)
			c.wg.Wait()
			if len(c.errs) > 0 {
				t.Error(c.errs)
			}
		})
	}
}

// A request with a permit counts as one with a place, of all and of its key.
func TestLocalCountsPermits(t *testing.T) {
	policyTest(t, Options{Outage: Local(4, 2)}, 10, func(t *testing.T, c *crowd) {
		holders := map[string]func(){}
		for _, h := range []struct {
			key string
			n   int
		}{{"a", 3}, {"b", 2}} {
			ctx, cancel := context.WithCancel(t.Context())
			holders[h.key], c.key = cancel, h.key
			c.send(ctx, h.n)
			synctest.Wait()
		}
		if c.held() != 5 {
			t.Fatalf("%d held", c.held())
		}
		c.away()
		for _, c.key = range []string{"a", "b", "c"} {
			c.send(t.Context(), 3)
		}
		runs := func(want int64) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if n := c.running.Load(); n != want {
				t.Fatalf("%d run, want %d", n, want)
			}
		}
		runs(5)
		holders["b"]()
		runs(4) // three permits of a, and one place
		holders["a"]()
		runs(4)
		close(c.leave)
		c.wg.Wait()
		if c.most.Load() != 5 || len(c.errs) > 0 || len(c.gate.places.named) > 0 {
			t.Errorf("at most %d ran, %v, %d names known", c.most.Load(), c.errs, len(c.gate.places.named))
		}
	})
}

// Those that wait for a place when the engine is back ask it.
func TestAPlaceIsNotWaitedForWhenTheEngineIsBack(t *testing.T) {
	policyTest(t, Options{Outage: Local(1, 0), Wait: time.Minute}, 10, func(t *testing.T, c *crowd) {
		c.away()
		c.send(t.Context(), 5)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.running.Load() != 1 {
			t.Fatalf("%d run", c.running.Load())
		}
		c.back()
		if c.running.Load() != 5 || c.held() != 4 || len(c.told) != 1 {
			t.Errorf("%d run, %d held, told %+v; want 5, 4, and one", c.running.Load(), c.held(), c.told)
		}
		close(c.leave)
	})
}

// Wait bounds the wait in the queue: a slower way to the engine refuses nobody, if a permit is free.
func TestAShortWaitFindsAFreePermit(t *testing.T) {
	for _, p := range []Policy{Closed, Open, Local(5, 0)} {
		policyTest(t, Options{Outage: p, Wait: time.Millisecond}, 1, func(t *testing.T, c *crowd) {
			c.engine.Inject(sematest.Fault{Delay: 20 * time.Millisecond, Times: sematest.Always})
			c.send(t.Context(), 1)
			time.Sleep(time.Second)
			c.send(t.Context(), 1) // which finds none
			time.Sleep(time.Second)
			synctest.Wait()
			if c.held() != 1 || c.running.Load() != 1 || len(c.errs) != 1 || !errors.Is(c.errs[0], sema.ErrBusy) || len(c.told) > 0 {
				t.Errorf("%v: %d held, %d run, failed %v, told %+v", p, c.held(), c.running.Load(), c.errs, c.told)
			}
			close(c.leave)
		})
	}
}

func TestAnEngineThatUsesUpTheWaitIsAFailure(t *testing.T) {
	policyTest(t, Options{Outage: Local(1, 0), Wait: 50 * time.Millisecond}, 1, func(t *testing.T, c *crowd) {
		c.away()
		c.send(t.Context(), 1)
		time.Sleep(250 * time.Millisecond) // for an answer, and the probe
		synctest.Wait()
		if c.running.Load() != 1 || len(c.told) != 1 || !c.told[0].admitted {
			t.Errorf("%d run, %v, told %+v", c.running.Load(), c.errs, c.told)
		}
		close(c.leave)
	})
}

// A request that waits in the queue when the engine goes away waits as long as it
// would have, and then goes on without a permit.
func TestAQueueThatDoesNotMoveEndsByPolicy(t *testing.T) {
	policyTest(t, Options{Outage: Open, Wait: 10 * time.Second}, 1, func(t *testing.T, c *crowd) {
		c.send(t.Context(), 2)
		synctest.Wait()
		c.away()
		c.send(t.Context(), 1)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := c.running.Load(); n != 2 {
			t.Errorf("%d run while one waits, want 2", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.running.Load(); n != 3 || len(c.errs) > 0 || len(c.told) != 2 {
			t.Errorf("%d run, %v, told %+v", n, c.errs, c.told)
		}
		close(c.leave)
	})
}

// A request with NoWait takes a permit or a place that is free, and is refused at once otherwise.
func TestNoWait(t *testing.T) {
	policyTest(t, Options{Outage: Local(2, 0), Wait: NoWait}, 1, func(t *testing.T, c *crowd) {
		refused := func(want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, ctx := range []context.Context{t.Context(), ctx} {
				began := time.Now()
				if _, err := c.gate.Enter(ctx, c.options, c.request()); !errors.Is(err, want) || time.Since(began) != 0 {
					t.Errorf("%v after %v, want %v at once", err, time.Since(began), want)
				}
			}
		}
		c.send(t.Context(), 1)
		synctest.Wait()
		refused(sema.ErrBusy)
		c.away()
		c.send(t.Context(), 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.running.Load(); n != 2 {
			t.Errorf("%d run, want one with a permit and one with a place", n)
		}
		refused(sema.ErrEngine)
		close(c.leave)
	})
}

// Each of many tenants has a limit of its own, and sends now and then. An engine that is away
// delays only the first second's requests, by its silence to them and to the probe. None is refused
// for want of handles.
func TestManyTenantsGoThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		group, err := each.New(e, "tenants", 1, &each.Options{Open: 100})
		expect.OK(t, err)
		back := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		var g Gate
		var slow, late atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for i := range 1000 {
			all.Go(func() {
				for range 5 {
					came := time.Now()
					if p, err := g.Enter(t.Context(), Options{Outage: Open}, tenant(group, i, nil)); err != nil {
						t.Error(err)
					} else {
						Release(p)
					}
					switch d := time.Since(came); {
					case d > 200*time.Millisecond:
						t.Errorf("a request took %v", d)
					case d > 0 && time.Since(began) > time.Second:
						late.Add(1)
					case d > 0:
						slow.Add(1)
					}
					time.Sleep(1100 * time.Millisecond)
				}
			})
		}
		all.Wait()
		if late.Load() > 0 {
			t.Errorf("%d waited at the beginning, %d later; want none later", slow.Load(), late.Load())
		}
		back()
		time.Sleep(10 * time.Second)
		expect.OK(t, group.Close())
	})
}

// tenant is how a request of a tenant asks. asked may be nil.
func tenant(group *each.Group, i int, asked *atomic.Int64) Request {
	name := fmt.Sprint("tenant-", i)
	return Request{
		Name: name,
		Acquire: func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
			if asked != nil {
				asked.Add(1)
			}
			p, err := group.Acquire(ctx, name, options...)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Failed: func(error, bool) {},
	}
}

// What is known of an outage is forgotten when it is over, whatever asked first.
func TestManyNamesGoThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1000, Options{Outage: Local(1, 1)})
		close(c.leave)
		names := func(n int) {
			for i := range n {
				c.key = fmt.Sprint("name-", i)
				c.send(t.Context(), 1)
				c.wg.Wait()
			}
		}
		c.away()
		names(200)
		time.Sleep(time.Hour)
		names(200)
		if len(c.told) != 400 || len(c.errs) > 0 || len(c.gate.places.named) > 0 {
			t.Errorf("%d went on without a permit, want 400; errors %v; %d names known", len(c.told), c.errs, len(c.gate.places.named))
		}
		c.back()
		names(200)
		if n := len(c.told) - 400; n > 0 {
			t.Errorf("%d went on without a permit though the engine is back", n)
		}
		expect.OK(t, c.sem.Close())
	})
}

// The end of the request's own context, and a permit that is not free, are no outage.
func TestWhatIsNoFailureOfTheEngine(t *testing.T) {
	for _, p := range []Policy{{}, Open, Local(5, 0)} {
		policyTest(t, Options{Outage: p}, 1, func(t *testing.T, c *crowd) {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c.send(short, 1)
			synctest.Wait()
			c.send(short, 1) // waits in vain
			time.Sleep(2 * time.Second)
			c.away()
			impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			c.send(impatient, 1) // does not wait for the engine's answer
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if len(c.errs) != 2 || len(c.told) != 0 || c.most.Load() != 1 {
				t.Errorf("%v: %v, told %+v, %d ran at once", p, c.errs, c.told, c.most.Load())
			}
		})
	}
}

// Tenants send a request in each second while Redis is killed. None fails, though there
// may be more of them than handles, and none but the first ask it. How long they take is
// told.
func TestTenantsWhileRedisIsKilled(t *testing.T) {
	for _, tenants := range []int{20, 1000} {
		t.Run(fmt.Sprint(tenants), func(t *testing.T) { t.Parallel(); tenantsWhileRedisIsKilled(t, tenants) })
	}
}

func tenantsWhileRedisIsKilled(t *testing.T, tenants int) {
	const seconds, handles = 5, 100
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	e, err := redisengine.New(rdb, nil)
	expect.OK(t, err)
	defer func() { _ = e.Close() }()
	group, err := each.New(e, "tenants", 2, &each.Options{Open: handles, Semaphore: sema.Options{Lease: 2 * time.Second}})
	expect.OK(t, err)
	defer func() { _ = group.Close() }()
	var asked atomic.Int64
	var g Gate
	var mu sync.Mutex
	var first, later []time.Duration
	var killed time.Time
	var all sync.WaitGroup
	var there sync.WaitGroup // twenty tenants have been admitted once
	there.Add(20)
	down := make(chan struct{})
	for i := range tenants {
		all.Go(func() {
			send := func() time.Duration {
				came := time.Now()
				if p, err := g.Enter(expect.Within(t), Options{Outage: Open}, tenant(group, i, &asked)); err != nil {
					t.Error(err)
				} else {
					Release(p)
				}
				return time.Since(came)
			}
			if i < 20 {
				send()
				there.Done()
			}
			<-down
			time.Sleep(time.Duration(i) * time.Second / time.Duration(tenants))
			for range seconds {
				came := time.Now()
				d := send()
				mu.Lock()
				if came.Sub(killed) < time.Second {
					first = append(first, d)
				} else {
					later = append(later, d)
				}
				mu.Unlock()
				time.Sleep(time.Second - d)
			}
		})
	}
	there.Wait()
	srv.Kill()
	asked.Store(0)
	killed = time.Now()
	close(down)
	all.Wait()
	slow := func(all []time.Duration) (n int) {
		for _, d := range all {
			if d > 150*time.Millisecond {
				n++
			}
		}
		return n
	}
	slices.Sort(first)
	slices.Sort(later)
	t.Logf("in the first second %d of %d requests took more than 150 ms, the longest %v; later %d of %d, the longest %v; %d asked",
		slow(first), len(first), first[len(first)-1], slow(later), len(later), later[len(later)-1], asked.Load())
	if n := asked.Load(); n >= int64(tenants*seconds) {
		t.Errorf("the engine was asked %d times", n)
	}
	srv.Restart()
	expect.Until(t, "go-redis has noticed", func() bool { return rdb.Ping(expect.Within(t)).Err() == nil })
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, c := range []struct {
		o    Options
		what string // "": they are taken
	}{
		{Options{}, ""},
		{Options{Wait: NoWait}, ""},
		{Options{Wait: math.MaxInt64}, ""},
		{Options{Wait: -2}, "Wait"},
		{Options{Wait: math.MinInt64}, "Wait"},
		{Options{Outage: Closed.After(time.Hour)}, ""},
		{Options{Outage: Closed.After(-1)}, "time without an answer"},
		{Options{Outage: Open.After(-1)}, "time without an answer"},
		{Options{Outage: Local(1, 0)}, ""},
		{Options{Outage: Local(0, 0)}, "places"},
		{Options{Outage: Local(-1, 0)}, "places"},
		{Options{Outage: Local(1_000_000, 1_000_000)}, ""},
		{Options{Outage: Local(1_000_001, 0)}, "places"},
		{Options{Outage: Local(2, 3)}, "places per key"},
		{Options{Outage: Local(2, -1)}, "places per key"},
	} {
		err := c.o.Check("test")
		refused := &sema.ArgumentError{}
		if errors.As(err, &refused) != (c.what != "") || refused.What != c.what {
			t.Errorf("%+v: %v, want %q refused", c.o, err, c.what)
		}
	}
}

// A request may fail with the engine's answer to another request. It does not fail with
// the end of the other request's context, and is not busy.
func TestAnOutageIsOfOneClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		away := &engine.Error{Op: "acquire", Name: "x", Err: errors.New("no answer")}
		asking := Request{Name: "x", Failed: func(error, bool) {}, Acquire: func(context.Context, ...sema.AcquireOption) (Permit, error) {
			return nil, fmt.Errorf("%w: %w", away, context.DeadlineExceeded)
		}}
		o := Options{Outage: Local(1, 0), Wait: NoWait}
		first, err := g.Enter(t.Context(), o, asking)
		expect.OK(t, err)
		defer Release(first)
		for range 2 { // before the probe has asked, and after that
			_, err = g.Enter(t.Context(), o, asking)
			if !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNoPlace) {
				t.Errorf("%v", err)
			}
			synctest.Wait()
		}
	})
}
