package semahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/each"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/semahttp"
)

// away is a semaphore whose engine may be away: then it says nothing.
type away struct {
	*sema.Semaphore
	gone  *atomic.Bool
	asked atomic.Int64
}

func newAway(t *testing.T, limit int) *away {
	e := &hanging{Engine: memengine.New()}
	sem, err := sema.New(e, "x", limit, nil)
	expect.OK(t, err)
	return &away{Semaphore: sem, gone: &e.now}
}

func (l *away) Acquire(ctx context.Context, options ...sema.AcquireOption) (*sema.Permit, error) {
	l.asked.Add(1)
	return l.Semaphore.Acquire(ctx, options...)
}

// back has the engine come back, and waits until that is known.
func (l *away) back() {
	l.gone.Store(false)
	time.Sleep(10 * time.Second) // what hangs ends, and a probe finds out
	synctest.Wait()
}

// crowd is requests that run until they are told to leave.
type crowd struct {
	rt      http.RoundTripper
	leave   chan struct{}
	tenant  string
	running atomic.Int64
	most    atomic.Int64
	wg      sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

func (c *crowd) base() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		n := c.running.Add(1)
		defer c.running.Add(-1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		select {
		case <-c.leave:
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
}

func (c *crowd) send(t *testing.T, ctx context.Context, n int) {
	for range n {
		r := request(t, ctx, "http://example.org")
		r.Header.Set("Tenant", c.tenant)
		c.wg.Go(func() {
			_, err := c.rt.RoundTrip(r)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.errs = append(c.errs, err)
			}
		})
	}
}

func policyTest(t *testing.T, p semahttp.Policy, places, limit int, wait time.Duration, f func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, c := newAway(t, limit), &crowd{leave: make(chan struct{})}
		var mu sync.Mutex
		var all []semahttp.EngineFailed
		c.rt = &semahttp.Transport{Base: c.base(), Limit: limited("x", l.Acquire), Policy: p, Places: places, Wait: wait, Observer: semahttp.Observer{
			EngineFailed: func(e semahttp.EngineFailed) { mu.Lock(); all = append(all, e); mu.Unlock() },
		}}
		f(t, l, c, func() []semahttp.EngineFailed { mu.Lock(); defer mu.Unlock(); return all })
		c.wg.Wait()
		l.back()
		if n := used(t, l.Semaphore); n != 0 {
			t.Errorf("%d held at the end", n)
		}
		expect.OK(t, l.Close())
	})
}

func TestFailClosed(t *testing.T) {
	policyTest(t, semahttp.FailClosed, 0, 2, 0, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		c.wg.Wait()
		if c.most.Load() != 0 || len(c.errs) != 5 || len(told()) != 5 || told()[0].Admitted || told()[0].Limiter != "x" {
			t.Errorf("%d ran, %v, told %+v", c.most.Load(), c.errs, told())
		}
		for _, err := range append(c.errs, told()[0].Err) {
			if !errors.Is(err, sema.ErrEngine) {
				t.Error(err)
			}
		}
	})
}

func TestFailOpen(t *testing.T) {
	policyTest(t, semahttp.FailOpen, 0, 2, 0, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if c.running.Load() != 5 || len(told()) != 5 || !told()[0].Admitted || told()[0].Local {
			t.Fatalf("%d run, told %+v", c.running.Load(), told())
		}
		// Now nobody waits for the engine. It is asked at once, and in each second.
		for i := range 3 {
			c.send(t, t.Context(), 20)
			synctest.Wait()
			if want := int64(6 + i); c.running.Load() != int64(25+20*i) || l.asked.Load() != want {
				t.Fatalf("%d run, %d asked, want %d", c.running.Load(), l.asked.Load(), want)
			}
			time.Sleep(time.Second)
		}
		// The engine is back: a probe finds out, and then all are limited.
		l.back()
		if n := used(t, l.Semaphore); n != 0 {
			t.Errorf("the probe holds %d", n)
		}
		c.send(t, t.Context(), 11)
		synctest.Wait()
		if c.running.Load() != 67 || used(t, l.Semaphore) != 2 {
			t.Fatalf("%d run, %d held; want 65 without permit, and 2", c.running.Load(), used(t, l.Semaphore))
		}
		close(c.leave)
	})
}

func TestFailLocal(t *testing.T) {
	policyTest(t, semahttp.FailLocal, 3, 10, time.Minute, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.running.Load() != 3 || len(told()) != 3 || !told()[0].Admitted || !told()[0].Local {
			t.Fatalf("%d run, told %+v", c.running.Load(), told())
		}
		// The other two wait for a place: for a minute from when they came.
		c.send(t, t.Context(), 1)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(c.errs) != 2 || len(told()) != 5 || told()[4].Admitted {
			t.Fatalf("failed %v, told %+v", c.errs, told())
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
		l.back()
		c.send(t, t.Context(), 12)
		synctest.Wait()
		if c.running.Load() != 13 || used(t, l.Semaphore) != 10 {
			t.Fatalf("%d run, %d held; want 3 beside the 10", c.running.Load(), used(t, l.Semaphore))
		}
		close(c.leave)
	})
}

// Places is for all keys together, and PlacesPerKey for each.
func TestFailLocalCountsAllKeysTogether(t *testing.T) {
	for _, perKey := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			l, c := newAway(t, 100), &crowd{leave: make(chan struct{})}
			c.rt = &semahttp.Transport{Base: c.base(), Policy: semahttp.FailLocal, Places: 5, PlacesPerKey: perKey,
				Limit: semahttp.ByKey(func(r *http.Request) string { return r.Header.Get("Tenant") },
					func(ctx context.Context, _ string, options ...sema.AcquireOption) (*sema.Permit, error) {
						return l.Acquire(ctx, options...)
					})}
			l.gone.Store(true)
			want := []int64{5, 5, 5}
			if perKey == 2 {
				want = []int64{2, 4, 5}
			}
			for i, tenant := range []string{"a", "b", "c"} {
				c.tenant = tenant
				c.send(t, t.Context(), 6)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := c.running.Load(); n != want[i] {
					t.Errorf("per key %d, %d tenants: %d run, want %d", perKey, i+1, n, want[i])
				}
			}
			close(c.leave)
			c.wg.Wait()
			if len(c.errs) > 0 {
				t.Error(c.errs)
			}
			l.back()
			expect.OK(t, l.Close())
		})
	}
}

// Those that wait for a place when the engine is back ask it.
func TestAPlaceIsNotWaitedForWhenTheEngineIsBack(t *testing.T) {
	policyTest(t, semahttp.FailLocal, 1, 10, time.Minute, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.running.Load() != 1 {
			t.Fatalf("%d run", c.running.Load())
		}
		l.back()
		if c.running.Load() != 5 || used(t, l.Semaphore) != 4 || len(told()) != 1 {
			t.Errorf("%d run, %d held, told %+v; want 5, 4, and one", c.running.Load(), used(t, l.Semaphore), told())
		}
		close(c.leave)
	})
}

func TestAnEngineThatUsesUpTheWaitIsAFailure(t *testing.T) {
	policyTest(t, semahttp.FailLocal, 1, 1, 50*time.Millisecond, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 1)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if c.running.Load() != 1 || len(told()) != 1 || !told()[0].Admitted {
			t.Errorf("%d run, %v, told %+v", c.running.Load(), c.errs, told())
		}
		close(c.leave)
	})
}

// A request that waits in the queue when the engine goes away waits as long as it
// would have, and then goes on without a permit.
func TestAQueueThatDoesNotMoveEndsByPolicy(t *testing.T) {
	policyTest(t, semahttp.FailOpen, 0, 1, 10*time.Second, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		c.send(t, t.Context(), 2)
		synctest.Wait()
		l.gone.Store(true)
		c.send(t, t.Context(), 1)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := c.running.Load(); n != 2 {
			t.Errorf("%d run while one waits, want 2", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.running.Load(); n != 3 || len(c.errs) > 0 || len(told()) != 2 {
			t.Errorf("%d run, %v, told %+v", n, c.errs, told())
		}
		close(c.leave)
	})
}

// Each of many tenants has a limit of its own, and sends now and then. Whatever
// they send while the engine is away is not held up by it for long, nor refused for
// want of handles.
func TestManyTenantsGoThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hanging{Engine: memengine.New()}
		group, err := each.New(e, "tenants", 1, &each.Options{Open: 100})
		expect.OK(t, err)
		tr := &semahttp.Transport{Policy: semahttp.FailOpen, Limit: semahttp.ByHost(group.Acquire),
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
			})}
		e.now.Store(true)
		var slow, late atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for i := range 1000 {
			all.Go(func() {
				for range 5 {
					came := time.Now()
					if _, err := tr.RoundTrip(request(t, t.Context(), fmt.Sprintf("http://tenant-%d.test", i))); err != nil {
						t.Error(err)
					}
					switch d := time.Since(came); {
					case d > 100*time.Millisecond:
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
		e.now.Store(false)
		time.Sleep(10 * time.Second)
		expect.OK(t, group.Close())
	})
}

func TestWhatIsNoFailureOfTheEngine(t *testing.T) {
	for _, p := range []semahttp.Policy{semahttp.FailClosed, semahttp.FailOpen, semahttp.FailLocal} {
		places := 0
		if p == semahttp.FailLocal {
			places = 5
		}
		policyTest(t, p, places, 1, 0, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c.send(t, short, 1)
			synctest.Wait()
			c.send(t, short, 1) // waits in vain
			time.Sleep(2 * time.Second)
			l.gone.Store(true)
			impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			c.send(t, impatient, 1) // does not wait for the engine's answer
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if len(c.errs) != 3 || len(told()) != 0 || c.most.Load() != 1 {
				t.Errorf("policy %v: %v, told %+v, %d ran at once", p, c.errs, told(), c.most.Load())
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
	tr := &semahttp.Transport{Policy: semahttp.FailOpen,
		Limit: semahttp.ByHost(func(ctx context.Context, host string, options ...sema.AcquireOption) (*sema.Permit, error) {
			asked.Add(1)
			return group.Acquire(ctx, host, options...)
		}),
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		})}
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
				if _, err := tr.RoundTrip(request(t, expect.Within(t), fmt.Sprintf("http://tenant-%d.test", i))); err != nil {
					t.Error(err)
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

// It counts what each policy lets through to an upstream while Redis is
// there, away, and back.
func TestRedisStopsAndStarts(t *testing.T) {
	const limit, crowdSize = 3, 12
	for _, side := range []string{"Transport", "Handler"} {
		for _, c := range []struct {
			policy   semahttp.Policy
			places   int
			admitted int64 // while Redis is away
		}{
			{semahttp.FailClosed, 0, 0},
			{semahttp.FailLocal, 2, 2},
			{semahttp.FailOpen, 0, crowdSize},
		} {
			t.Run(side+" "+c.policy.String(), func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
				defer func() { _ = rdb.Close() }()
				e, err := redisengine.New(rdb, nil)
				expect.OK(t, err)
				defer func() { _ = e.Close() }()
				sem, err := sema.New(e, "x", limit, &sema.Options{Lease: time.Minute})
				expect.OK(t, err)
				defer func() { _ = sem.Close() }()

				up, failures := &counted{leave: make(chan struct{})}, atomic.Int64{}
				observer := semahttp.Observer{EngineFailed: func(semahttp.EngineFailed) { failures.Add(1) }}
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				var rt http.RoundTripper = &semahttp.Transport{Base: base, Limit: semahttp.All(sem), Policy: c.policy, Places: c.places, AnswerWithin: 3 * time.Second, Observer: observer}
				var h http.Handler = up
				if side == "Handler" {
					rt, h = base, &semahttp.Handler{Next: up, Limit: semahttp.All(sem), Policy: c.policy, Places: c.places, AnswerWithin: 3 * time.Second, Wait: expect.Patience, Observer: observer}
				}
				s := httptest.NewServer(h)
				defer s.Close()
				client := &http.Client{Transport: rt}

				for _, phase := range []string{"there", "away", "back"} {
					want := int64(limit)
					switch phase {
					case "away":
						srv.Kill()
						want = c.admitted
					case "back":
						srv.Restart()
						// Whoever asks finds out; until then the policy goes on.
						expect.Until(t, "the engine is asked again", func() bool {
							before := failures.Load()
							r := request(t, expect.Within(t), s.URL)
							r.Header.Set("Visit", "short")
							resp, err := client.Do(r)
							if err != nil {
								return false
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							return resp.Body.Close() == nil && resp.StatusCode == 200 && failures.Load() == before
						})
					}
					up.reset()
					failures.Store(0)
					ctx, cancel := context.WithCancel(expect.Within(t))
					var wg sync.WaitGroup
					ends := make(chan string, crowdSize)
					for range crowdSize {
						wg.Go(func() { ends <- send(client, request(t, ctx, s.URL)) })
					}
					// All that is admitted is there, and the others wait or have failed.
					if want > 0 {
						expect.Until(t, "the upstream has its crowd", func() bool { return up.running.Load() == want })
					}
					failed := 0
					if phase == "away" && c.policy == semahttp.FailClosed {
						expect.Until(t, "all fail", func() bool { return len(ends) == crowdSize })
						failed = crowdSize
					}
					if phase == "away" {
						expect.Until(t, "failures are told", func() bool { return failures.Load() >= max(want, int64(failed)) })
					}
					close(up.leave)
					wg.Wait()
					cancel()
					close(ends)
					answers := map[string]int{}
					for end := range ends {
						answers[end]++
					}
					t.Logf("Redis %s: %d at once at the upstream, %d in all, answers %v, %d failures told", phase, up.most.Load(), up.served.Load(), answers, failures.Load())
					if up.most.Load() != want || int(up.served.Load()) != crowdSize-failed {
						t.Errorf("Redis %s: %d at once, %d served; want %d, %d", phase, up.most.Load(), up.served.Load(), want, crowdSize-failed)
					}
					if phase != "away" && failures.Load() != 0 {
						t.Errorf("Redis %s: %d failures told", phase, failures.Load())
					}
				}
			})
		}
	}
}

// send sends a request and says how it ended.
func send(client *http.Client, r *http.Request) string {
	resp, err := client.Do(r)
	if errors.Is(err, sema.ErrEngine) {
		return "ErrEngine"
	}
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(all)))
}

// counted is an upstream whose requests stay until they are told to leave.
type counted struct {
	leave                 chan struct{}
	running, most, served atomic.Int64
}

func (u *counted) reset() {
	u.leave = make(chan struct{})
	u.most.Store(0)
	u.served.Store(0)
}

func (u *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Visit") == "short" {
		return
	}
	n := u.running.Add(1)
	u.served.Add(1)
	for most := u.most.Load(); n > most && !u.most.CompareAndSwap(most, n); most = u.most.Load() {
	}
	select {
	case <-u.leave:
	case <-r.Context().Done():
	}
	u.running.Add(-1)
	_, _ = io.WriteString(w, "ok")
}
