package semahttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/admit"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/semahttp"
	"sema/sematest"
)

// An outage that outlasts the lease cancels what runs, whatever the policy is:
// the permit may be somebody else's by then.
func TestAnOutageLongerThanTheLeaseCancels(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) {
		srv := redistest.Start(t)
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		defer func() { _ = rdb.Close() }()
		e, err := redisengine.New(rdb, nil)
		expect.OK(t, err)
		defer func() { _ = e.Close() }()
		sem := open(t, e, "x", 1, &sema.Options{Lease: 2 * time.Second})
		cancels(t, sem, srv.Kill)
	})
}

func TestAnOutageLongerThanTheDefaultLeaseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		sem := open(t, e, "x", 1, nil)
		began := time.Now()
		var back func()
		cancels(t, sem, func() { back = silence(e) })
		// The lease of 30 s less its margin, and what the release may take.
		if d := time.Since(began); d != 29*time.Second+250*time.Millisecond {
			t.Errorf("cancelled after %v, want 29.25s", d)
		}
		back()
	})
}

// cancels reads an answer while the engine is away.
func cancels(t testing.TB, sem *sema.Semaphore, begin func()) {
	gone := make(chan error, 1)
	tr := transport(t, sem)
	tr.Outage = admit.Open
	resp := get(t, tr, expect.Within(t), drip(t, make(chan struct{}), gone))
	begin()
	_, err := io.ReadAll(resp.Body)
	expect.Is(t, err, sema.ErrLost)
	<-gone
	expect.OK(t, resp.Body.Close())
}

// silence makes the engine say nothing, until back is called.
func silence(e *sematest.Engine) (back func()) {
	return e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
}

func TestAnEngineThatHangsDoesNotHoldUpAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		sem, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		tr := &semahttp.Transport{Limit: by(sem), Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: 3, Body: io.NopCloser(strings.NewReader("all"))}, nil
		})}
		resp, err := tr.RoundTrip(request(t, t.Context(), "http://example.org"))
		expect.OK(t, err)
		back := silence(e)
		began := time.Now()
		if got := read(t, resp.Body); got != "all" || time.Since(began) != 250*time.Millisecond {
			t.Errorf("%q after %v, want 250ms", got, time.Since(began))
		}
		expect.OK(t, resp.Body.Close())
		back()
		time.Sleep(10 * time.Second) // until the calls that hang have ended
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, p.Release())
		expect.OK(t, sem.Close())
	})
}

// How many requests each policy lets through to an upstream while the engine is there, away, and back.
func TestPoliciesWithoutTheEngine(t *testing.T) {
	const limit, crowd = 3, 12
	for _, side := range []string{"Transport", "Handler"} {
		for policy, admits := range map[admit.Policy]int64{admit.Closed: 0, admit.Local(2, 0): 2, admit.Open: crowd} {
			t.Run(side+" "+policy.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := sematest.New(t)
					sem := open(t, e, "x", limit, nil)
					var running, told atomic.Int64
					observer := semahttp.Observer{EngineFailed: func(f semahttp.EngineFailed) {
						if f.Admitted {
							told.Add(1)
						}
					}}
					var h http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						running.Add(1)
						defer running.Add(-1)
						<-r.Context().Done()
					})
					var rt http.RoundTripper = connections(t)
					if side == "Transport" {
						rt = &semahttp.Transport{Base: rt, Limit: by(sem), Outage: policy, Observer: observer}
					} else {
						h = &semahttp.Handler{Next: h, Limit: by(sem), Outage: policy, Wait: expect.Patience, Observer: observer}
					}
					u := serve(t, h.ServeHTTP)
					sends := func(when string, want, wantTold int64) {
						told.Store(0)
						ctx, cancel := context.WithCancel(t.Context())
						var all sync.WaitGroup
						for range crowd {
							all.Go(func() {
								if resp, err := rt.RoundTrip(request(t, ctx, u)); err == nil {
									_ = resp.Body.Close()
								}
							})
						}
						time.Sleep(10 * time.Second)
						if n := running.Load(); n != want || told.Load() != wantTold {
							t.Errorf("the engine is %s: %d run, and %d of them without a permit; want %d, %d", when, n, told.Load(), want, wantTold)
						}
						cancel()
						all.Wait()
						synctest.Wait()
					}
					sends("there", limit, 0)
					back := silence(e)
					sends("away", admits, admits)
					back()
					time.Sleep(10 * time.Second) // a probe finds out
					sends("back", limit, 0)
				})
			})
		}
	}
}
