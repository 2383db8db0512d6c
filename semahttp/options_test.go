package semahttp_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"sema"
	"sema/admit"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
)

func TestValuesOutOfRange(t *testing.T) {
	sem, err := sema.New(memengine.New(), "x", 1, nil)
	expect.OK(t, err)
	defer func() { _ = sem.Close() }()
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

// A constructor that is given nothing panics at once, and says what it wants.
func TestConstructorsWantTheirArguments(t *testing.T) {
	for _, c := range []struct {
		what string
		make func()
	}{
		{"semaphore", func() { semahttp.Of(nil) }},
		{"group", func() { semahttp.OfEach(nil, "a") }},
	} {
		func() {
			defer func() {
				refused, ok := recover().(*sema.ArgumentError)
				if !ok || refused.Package != "semahttp" || refused.What != c.what || refused.Value != nil {
					t.Errorf("%+v; want the panic of an *ArgumentError about the %s", refused, c.what)
				}
			}()
			c.make()
		}()
	}
}
