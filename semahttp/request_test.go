package semahttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/admit"
	"sema/each"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
	"sema/sematest"
)

// Middleware around a Handler sees the route that a mux within it found.
func TestTheRouteIsSeenOutside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}/files/{path...}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panic/{id}", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	h := &semahttp.Handler{Next: mux, Limit: by(newSem(t, 1))}
	for target, want := range map[string][3]string{
		"/users/7/files/a/b": {"GET /users/{id}/files/{path...}", "7", "a/b"},
		"/panic/8":           {"GET /panic/{id}", "8", ""},
		"/":                  {"GET /{$}", "", ""},
		"/nowhere":           {},
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if got := [3]string{r.Pattern, r.PathValue("id"), r.PathValue("path")}; got != want {
			t.Errorf("%s: outside %q, want %q", target, got, want)
		}
	}
}

// Nothing that a client sends makes a 500.
func TestAKeyOrWeightThatCannotBe(t *testing.T) {
	group, err := each.New(memengine.New(), "tenants", 5, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, group.Close()) }()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	tenant, weight := "", 1
	tooMuch := engine.MaxLimit
	tooMuch++ // on 32 bits below 0, which is as wrong
	h := &semahttp.Handler{Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Limit: func(*http.Request) semahttp.Limiter { return semahttp.OfEach(group, tenant, sema.Weight(weight)) }}
	for _, c := range []struct {
		tenant string
		weight int
		want   int
	}{
		{"acme", 5, 200}, {strings.Repeat("x", 254), 1, 400}, {"\xff", 1, 400}, {"a\tb", 1, 400},
		{"acme", 0, 400}, {"acme", -1, 400}, {"acme", tooMuch, 400}, {"acme", 6, 413},
	} {
		tenant, weight = c.tenant, c.weight
		log.Reset()
		w := answer(h, t.Context())
		if says := strings.Contains(w.Body.String(), "want ") || strings.Contains(w.Body.String(), "above the limit 5"); says != (c.want >= 400) {
			t.Errorf("%.10q of weight %d: the body is %q", c.tenant, c.weight, w.Body)
		}
		if logged := strings.Count(log.String(), "level=WARN"); (logged == 1) != (c.want == 400) || (c.want == 400) != strings.Contains(log.String(), "want ") {
			t.Errorf("%.10q of weight %d: logged %q", c.tenant, c.weight, log.String())
		}
		if w.Code != c.want || w.Header().Get("Retry-After") != "" {
			t.Errorf("%.10q of weight %d: %d, Retry-After %q; want %d", c.tenant, c.weight, w.Code, w.Header().Get("Retry-After"), c.want)
		}
	}
}

// The same of pools: a client says how many tokens it wants.
func TestAnAmountThatCannotBe(t *testing.T) {
	s := open(t, memengine.New(), "llm", 5, &sema.Options{Pools: "tpm=1000/24h"})
	tooMuch := engine.MaxLimit
	tooMuch++ // on 32 bits below 0, which is as wrong
	for amount, want := range map[int]int{1000: 404, 1001: 413, engine.MaxLimit: 413, tooMuch: 400, 0: 400, -1: 400} {
		if w := answer(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: by(s, sema.Take("tpm", amount))}, t.Context()); w.Code != want {
			t.Errorf("%d tokens: %d, want %d", amount, w.Code, want)
		}
	}
}

// A limit that a function says wrong is no mistake of the client's.
func TestALimitThatCannotBeIsTheServersMistake(t *testing.T) {
	group, err := each.New(memengine.New(), "tenants", 5, &each.Options{LimitOf: func(string) int { return -1 }})
	expect.OK(t, err)
	defer func() { expect.OK(t, group.Close()) }()
	h := &semahttp.Handler{Next: http.NotFoundHandler(), Limit: func(r *http.Request) semahttp.Limiter { return semahttp.OfEach(group, semahttp.Host(r)) }}
	if w := answer(h, t.Context()); w.Code != 500 {
		t.Errorf("%d, want 500", w.Code)
	}
}

// Retry-After is told by a function, which is told the position and what failed.
func TestRetryAfterOfEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		sem, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		var told semahttp.Refused
		after := 90 * time.Second
		h := &semahttp.Handler{Next: http.NotFoundHandler(), Wait: time.Second, Status: 429, RetryAfter: 7 * time.Second, Limit: by(sem),
			RetryAfterOf: func(r semahttp.Refused) time.Duration { told = r; return after }}
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		if w := answer(h, t.Context()); w.Code != 429 || w.Header().Get("Retry-After") != "90" {
			t.Error(w.Code, w.Header())
		}
		if told.Position != 1 || told.Limiter != "x" || !errors.Is(told.Err, sema.ErrBusy) || told.Request == nil {
			t.Errorf("told %+v", told)
		}
		expect.OK(t, p.Release())
		after = 0
		silence(e)
		if w := answer(h, t.Context()); w.Code != 503 || w.Header().Get("Retry-After") != "7" {
			t.Error(w.Code, w.Header())
		}
		if told.Position != 0 || !errors.Is(told.Err, sema.ErrEngine) {
			t.Errorf("told %+v", told)
		}
		expect.OK(t, sem.Close())
	})
}

// What every request would fail for is found before the first.
func TestCheckFindsWhatEveryRequestFailsFor(t *testing.T) {
	limit := by(newSem(t, 1))
	for _, c := range []struct {
		check func() error
		field string
	}{
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: limit}).Check, ""},
		{(&semahttp.Handler{Limit: limit}).Check, "Next"},
		{(&semahttp.Handler{Next: http.NotFoundHandler()}).Check, "Limit"},
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: limit, Wait: -2}).Check, "Wait"},
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: limit, Status: 500}).Check, "Status"},
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: by(nil)}).Check, "semaphore"},
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: func(r *http.Request) semahttp.Limiter {
			return semahttp.OfEach(nil, semahttp.Host(r))
		}}).Check, "group"},
		{(&semahttp.Handler{Next: http.NotFoundHandler(), Limit: func(r *http.Request) semahttp.Limiter {
			return r.Context().Value("limiter").(semahttp.Limiter) // which middleware would set
		}}).Check, ""},
		{(&semahttp.Transport{Limit: limit}).Check, ""},
		{(&semahttp.Transport{Limit: by(nil)}).Check, "semaphore"},
		{(&semahttp.Transport{}).Check, "Limit"},
		{(&semahttp.Transport{Limit: limit, Outage: admit.Local(0, 0)}).Check, "places"},
	} {
		err := c.check()
		refused := &sema.ArgumentError{}
		if errors.As(err, &refused) != (c.field != "") || refused.What != c.field || refused.Package != "semahttp" && refused.Package != "admit" && c.field != "" {
			t.Errorf("%v, want %q refused", err, c.field)
		}
	}
}

// A handler that http.TimeoutHandler gave up on runs on. With the TimeoutHandler
// outside it still has its permit.
func TestATimeoutHandlerBelongsOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		var began atomic.Int64
		leave := make(chan struct{})
		app := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			began.Add(1)
			<-leave // whatever becomes of its request
		})
		h := http.TimeoutHandler(&semahttp.Handler{Next: app, Limit: by(sem)}, time.Second, "late")
		for range 6 {
			if w := answer(h, context.Background()); w.Code != 503 {
				t.Errorf("%d", w.Code)
			}
		}
		if n := began.Load(); n != 1 {
			t.Errorf("%d run at once, want 1", n)
		}
		close(leave)
		synctest.Wait()
		nothingHeld(t, sem)
		expect.OK(t, sem.Close())
	})
}

// One tenant sends a hundred requests to a model, another sends one. With the tenants'
// limit outside, the one does not wait for the hundred; with the model's outside, it does.
func TestWhatIsolatesGoesOutside(t *testing.T) {
	for _, outside := range []string{"tenant", "model"} {
		synctest.Test(t, func(t *testing.T) {
			e := memengine.New()
			tenants, err := each.New(e, "tenants", 2, nil)
			expect.OK(t, err)
			model, err := sema.New(e, "model", 4, nil)
			expect.OK(t, err)
			perTenant := func(r *http.Request) semahttp.Limiter { return semahttp.OfEach(tenants, r.Header.Get("Tenant")) }
			within := func(limit func(*http.Request) semahttp.Limiter, next http.RoundTripper) http.RoundTripper {
				return &semahttp.Transport{Limit: limit, Base: next}
			}
			var rt http.RoundTripper = roundTripper(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second) // the model's work
				return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
			})
			if outside == "tenant" {
				rt = within(perTenant, within(by(model), rt))
			} else {
				rt = within(by(model), within(perTenant, rt))
			}
			send := func(tenant string) time.Duration {
				came, r := time.Now(), request(t, t.Context(), "http://model.test")
				r.Header.Set("Tenant", tenant)
				_, err := rt.RoundTrip(r)
				expect.OK(t, err)
				return time.Since(came) - time.Second
			}
			var busy sync.WaitGroup
			for range 100 {
				busy.Go(func() { send("busy") })
			}
			time.Sleep(5*time.Second + 500*time.Millisecond)
			waited := send("modest")
			t.Logf("%s outside: the modest tenant waited %v", outside, waited)
			if (waited > 0) != (outside == "model") {
				t.Errorf("%s outside: it waited %v", outside, waited)
			}
			busy.Wait()
			expect.OK(t, tenants.Close())
			expect.OK(t, model.Close())
		})
	}
}

func TestValuesOutOfRange(t *testing.T) {
	sem := open(t, memengine.New(), "x", 1, nil)
	free := func(*http.Request) semahttp.Limiter { return semahttp.Limiter{} }
	nameless := func(*http.Request) semahttp.Limiter { return semahttp.Limiter{Name: "x"} }
	for _, c := range []struct {
		what   string
		field  string // "": it is taken
		limit  func(*http.Request) semahttp.Limiter
		wait   time.Duration
		outage admit.Policy
	}{
		{"nothing", "Limit", nil, 0, admit.Closed},
		{"the zero values", "", by(sem), 0, admit.Closed},
		{"no limit", "", free, 0, admit.Closed},
		{"a limiter with a name only", "Limiter.Acquire", nameless, 0, admit.Closed},
		{"no wait", "", by(sem), semahttp.NoWait, admit.Closed},
		{"a wait below none", "Wait", by(sem), -2, admit.Closed},
		{"the longest wait", "", by(sem), math.MaxInt64, admit.Closed},
		{"one place", "", by(sem), 0, admit.Local(1, 0)},
		{"no place", "places", by(sem), 0, admit.Local(0, 0)},
		{"more of a key than in all", "places per key", by(sem), 0, admit.Local(1, 2)},
		{"a time below none", "time without an answer", by(sem), 0, admit.Open.After(-1)},
	} {
		ok := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		})
		tr := &semahttp.Transport{Base: ok, Limit: c.limit, Wait: c.wait, Outage: c.outage}
		_, err := tr.RoundTrip(request(t, expect.Within(t), "http://example.org"))
		refused := &sema.ArgumentError{}
		if errors.As(err, &refused) != (c.field != "") || refused.What != c.field {
			t.Errorf("Transport, %s: %v, want %q refused", c.what, err, c.field)
		}
		h := &semahttp.Handler{Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }), Limit: c.limit, Wait: c.wait, Outage: c.outage}
		if got := answer(h, t.Context()).Code; (got == 204) != (c.field == "") || got != 204 && got != 500 {
			t.Errorf("Handler, %s: %d", c.what, got)
		}
	}
	for _, c := range []struct {
		status int
		retry  time.Duration
		ok     bool
	}{
		{0, 0, true}, {429, 1, true}, {503, math.MaxInt64, true},
		{200, 0, false}, {-1, 0, false}, {428, 0, false}, {504, 0, false}, {math.MaxInt, 0, false},
		{0, -1, false}, {0, math.MinInt64, false},
	} {
		h := &semahttp.Handler{Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "") }), Limit: free, Status: c.status, RetryAfter: c.retry}
		if got := answer(h, t.Context()).Code; (got == 200) != c.ok || got != 200 && got != 500 {
			t.Errorf("Status %d, RetryAfter %v: %d", c.status, c.retry, got)
		}
	}
}
