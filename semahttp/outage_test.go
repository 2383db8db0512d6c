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

// It counts what each policy lets through to an upstream while Redis is
// there, away, and back.
func TestRedisStopsAndStarts(t *testing.T) {
	const limit, crowdSize = 3, 12
	for _, side := range []string{"Transport", "Handler"} {
		for _, c := range []struct {
			policy   admit.Policy
			admitted int64 // while Redis is away
		}{
			{admit.Closed, 0},
			{admit.Local(2, 0), 2},
			{admit.Open, crowdSize},
		} {
			t.Run(side+" "+c.policy.String(), func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
				defer func() { _ = rdb.Close() }()
				e, err := redisengine.New(rdb, nil)
				expect.OK(t, err)
				defer func() { _ = e.Close() }()
				sem := open(t, e, "x", limit, &sema.Options{Lease: time.Minute})

				up, failures := &counted{leave: make(chan struct{})}, atomic.Int64{}
				observer := semahttp.Observer{EngineFailed: func(semahttp.EngineFailed) { failures.Add(1) }}
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				var rt http.RoundTripper = &semahttp.Transport{Base: base, Limit: by(sem), Outage: c.policy.After(3 * time.Second), Observer: observer}
				var h http.Handler = up
				if side == "Handler" {
					rt, h = base, &semahttp.Handler{Next: up, Limit: by(sem), Outage: c.policy.After(3 * time.Second), Wait: expect.Patience, Observer: observer}
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
						// The policy goes on until a probe is answered.
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
					if phase == "away" && c.policy == admit.Closed {
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
