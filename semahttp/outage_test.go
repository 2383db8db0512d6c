package semahttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/semahttp"
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
		sem, err := sema.New(e, "x", 1, &sema.Options{Lease: 2 * time.Second})
		expect.OK(t, err)
		defer func() { _ = sem.Close() }()
		outage(t, sem, srv.Kill)
	})
}

func TestAnOutageLongerThanTheDefaultLeaseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hanging{Engine: memengine.New()}
		sem, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		defer func() { _ = sem.Close() }()
		began := time.Now()
		outage(t, sem, func() { e.now.Store(true) })
		// The lease of 30 s less its margin, and what the release may take.
		if d := time.Since(began); d != 29*time.Second+250*time.Millisecond {
			t.Errorf("cancelled after %v, want 29.25s", d)
		}
		e.now.Store(false)
	})
}

// outage has the engine away while an answer is read.
func outage(t testing.TB, sem *sema.Semaphore, begin func()) {
	gone := make(chan error, 1)
	tr := transport(t, sem)
	tr.Policy = semahttp.FailOpen
	resp := get(t, tr, expect.Within(t), drip(t, make(chan struct{}), gone))
	begin()
	_, err := io.ReadAll(resp.Body)
	if !errors.Is(err, sema.ErrLost) {
		t.Errorf("reading: %v, want the loss", err)
	}
	<-gone
	expect.OK(t, resp.Body.Close())
}

// hanging is an engine whose calls hang while it is told to.
type hanging struct {
	sema.Engine
	now atomic.Bool
}

func (e *hanging) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &hangingSession{s, e}, err
}

type hangingSession struct {
	engine.Session
	e *hanging
}

func (s *hangingSession) Step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if s.e.now.Load() {
		<-ctx.Done()
		return engine.Reply{}, &engine.Error{Op: "step", Temporary: true, Err: ctx.Err()}
	}
	return s.Session.Step(ctx, c)
}

func TestAnEngineThatHangsDoesNotHoldUpAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hanging{Engine: memengine.New()}
		sem, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		tr := &semahttp.Transport{Limit: semahttp.All(sem), Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: 3, Body: io.NopCloser(strings.NewReader("all"))}, nil
		})}
		resp, err := tr.RoundTrip(request(t, t.Context(), "http://example.org"))
		expect.OK(t, err)
		e.now.Store(true)
		began := time.Now()
		if got := read(t, resp.Body); got != "all" || time.Since(began) != 250*time.Millisecond {
			t.Errorf("%q after %v, want 250ms", got, time.Since(began))
		}
		expect.OK(t, resp.Body.Close())
		e.now.Store(false)
		time.Sleep(10 * time.Second) // until the calls that hang have ended
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, p.Release())
		expect.OK(t, sem.Close())
	})
}

// What is known of an outage is forgotten when it is over.
func TestManyLimitersGoThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		sem, err := sema.New(memengine.New(), "x", 1000, nil)
		expect.OK(t, err)
		acquire := func(ctx context.Context, _ string, options ...sema.AcquireOption) (*sema.Permit, error) {
			if !back.Load() {
				return nil, &engine.Error{Op: "acquire", Err: io.ErrUnexpectedEOF}
			}
			return sem.Acquire(ctx, options...)
		}
		admitted := 0
		tr := &semahttp.Transport{Limit: semahttp.ByHost(acquire), Policy: semahttp.FailLocal, Places: 1,
			Observer: semahttp.Observer{EngineFailed: func(semahttp.EngineFailed) { admitted++ }},
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			})}
		hosts := func(n int) {
			for i := range n {
				_, err := tr.RoundTrip(request(t, t.Context(), "http://"+strings.Repeat("x", i+1)+".example"))
				expect.OK(t, err)
			}
		}
		hosts(200)
		time.Sleep(time.Hour)
		hosts(200)
		if admitted != 400 {
			t.Errorf("%d went on without a permit, want 400", admitted)
		}
		back.Store(true)
		time.Sleep(time.Hour)
		hosts(200)
		if admitted != 400 {
			t.Errorf("%d went on without a permit though the engine is back", admitted-400)
		}
		expect.OK(t, sem.Close())
	})
}
