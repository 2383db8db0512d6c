package semahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/lab/expect"
	"sema/lab/redistest"
	"sema/semahttp"
)

// away is a semaphore whose engine may be away: then it takes three seconds to
// say so, as the real ones do.
type away struct {
	*sema.Semaphore
	gone  atomic.Bool
	asked atomic.Int64
}

func (l *away) Acquire(ctx context.Context) (*sema.Permit, error) {
	l.asked.Add(1)
	if !l.gone.Load() {
		return l.Semaphore.Acquire(ctx)
	}
	select {
	case <-time.After(3 * time.Second):
		return nil, &sema.EngineError{Op: "acquire", Name: "x", Err: io.ErrUnexpectedEOF}
	case <-ctx.Done(): // as an unanswered acquisition says it
		return nil, fmt.Errorf("%w: %w: %w", sema.ErrUnavailable, ctx.Err(), &sema.EngineError{Op: "acquire", Name: "x", Err: io.ErrUnexpectedEOF})
	}
}

// crowd is requests that run until they are told to leave.
type crowd struct {
	rt      http.RoundTripper
	leave   chan struct{}
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
		c.wg.Go(func() {
			_, err := c.rt.RoundTrip(request(t, ctx, "http://example.org"))
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
		sem, err := sema.New(memengine.New(), "x", limit, nil)
		expect.OK(t, err)
		l, c := &away{Semaphore: sem}, &crowd{leave: make(chan struct{})}
		var mu sync.Mutex
		var all []semahttp.EngineFailed
		c.rt = &semahttp.Transport{Base: c.base(), Limit: limited("x", l.Acquire), Policy: p, Places: places, Wait: wait, Observer: semahttp.Observer{
			EngineFailed: func(e semahttp.EngineFailed) { mu.Lock(); all = append(all, e); mu.Unlock() },
		}}
		f(t, l, c, func() []semahttp.EngineFailed { mu.Lock(); defer mu.Unlock(); return all })
		c.wg.Wait()
		if n := used(t, sem); n != 0 {
			t.Errorf("%d held at the end", n)
		}
		expect.OK(t, sem.Close())
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
			if failure := (*sema.EngineError)(nil); !errors.As(err, &failure) {
				t.Error(err)
			}
		}
	})
}

func TestFailOpen(t *testing.T) {
	policyTest(t, semahttp.FailOpen, 0, 2, 0, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if c.running.Load() != 5 || len(told()) != 5 || !told()[0].Admitted || told()[0].Local {
			t.Fatalf("%d run, told %+v", c.running.Load(), told())
		}
		// Now nobody waits for the engine, but for one in a second.
		asked := l.asked.Load()
		c.send(t, t.Context(), 20)
		synctest.Wait()
		if c.running.Load() != 25 || l.asked.Load() != asked {
			t.Fatalf("%d run, %d asked", c.running.Load(), l.asked.Load()-asked)
		}
		time.Sleep(time.Second)
		c.send(t, t.Context(), 20)
		synctest.Wait()
		if c.running.Load() != 44 || l.asked.Load() != asked+1 {
			t.Fatalf("%d run, %d asked; want 44, 1", c.running.Load(), l.asked.Load()-asked)
		}
		// The engine is back: the next to ask finds out, and then all are limited.
		l.gone.Store(false)
		time.Sleep(4 * time.Second)
		c.send(t, t.Context(), 1)
		synctest.Wait()
		c.send(t, t.Context(), 10)
		synctest.Wait()
		if c.running.Load() != 47 || used(t, l.Semaphore) != 2 {
			t.Fatalf("%d run, %d held; want 45 without permit, and 2", c.running.Load(), used(t, l.Semaphore))
		}
		close(c.leave)
	})
}

func TestFailLocal(t *testing.T) {
	policyTest(t, semahttp.FailLocal, 3, 10, time.Minute, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 5)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if c.running.Load() != 3 || len(told()) != 3 || !told()[0].Admitted || !told()[0].Local {
			t.Fatalf("%d run, told %+v", c.running.Load(), told())
		}
		// The other two wait for a place: for a minute from when they came.
		c.send(t, t.Context(), 1)
		time.Sleep(58 * time.Second)
		synctest.Wait()
		if len(c.errs) != 2 || len(told()) != 5 || told()[4].Admitted {
			t.Fatalf("failed %v, told %+v", c.errs, told())
		}
		for _, err := range c.errs {
			if failure := (*sema.EngineError)(nil); !errors.As(err, &failure) || !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		// A place that comes free is the next one's. The one that asks finds the
		// engine back, and whoever comes then is limited by it again.
		l.gone.Store(false)
		c.leave <- struct{}{}
		synctest.Wait()
		c.send(t, t.Context(), 1)
		synctest.Wait()
		c.send(t, t.Context(), 11)
		synctest.Wait()
		if c.running.Load() != 13 || used(t, l.Semaphore) != 10 {
			t.Fatalf("%d run, %d held; want 3 beside the 10", c.running.Load(), used(t, l.Semaphore))
		}
		close(c.leave)
	})
}

func TestAnEngineThatUsesUpTheWaitIsAFailure(t *testing.T) {
	policyTest(t, semahttp.FailLocal, 1, 1, time.Second, func(t *testing.T, l *away, c *crowd, told func() []semahttp.EngineFailed) {
		l.gone.Store(true)
		c.send(t, t.Context(), 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.running.Load() != 1 || len(told()) != 1 || !told()[0].Admitted {
			t.Errorf("%d run, %v, told %+v", c.running.Load(), c.errs, told())
		}
		close(c.leave)
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
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
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
				var rt http.RoundTripper = &semahttp.Transport{Base: base, Limit: semahttp.All(sem), Policy: c.policy, Places: c.places, Observer: observer}
				var h http.Handler = up
				if side == "Handler" {
					rt, h = base, &semahttp.Handler{Next: up, Limit: semahttp.All(sem), Policy: c.policy, Places: c.places, Wait: expect.Patience, Observer: observer}
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
	if failure := (*sema.EngineError)(nil); errors.As(err, &failure) {
		return "EngineError"
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
