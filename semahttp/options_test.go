package semahttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"sema"
	"sema/engine/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
)

func TestPoliciesHaveWords(t *testing.T) {
	for p, want := range map[semahttp.Policy]string{
		semahttp.FailClosed: "FailClosed", semahttp.FailOpen: "FailOpen", semahttp.FailLocal: "FailLocal", 3: "Policy(3)", 255: "Policy(255)",
	} {
		if got := p.String(); got != want {
			t.Errorf("%d reads as %q, want %q", p, got, want)
		}
	}
}

func TestValuesOutOfRange(t *testing.T) {
	sem, err := sema.New(memengine.New(), "x", 1, nil)
	expect.OK(t, err)
	defer func() { _ = sem.Close() }()
	free := func(*http.Request) semahttp.Limiter { return semahttp.Limiter{} }
	nameless := func(*http.Request) semahttp.Limiter { return semahttp.Limiter{Name: "x"} }
	state := func(context.Context) (sema.State, error) { return sema.State{}, nil }
	aimless := func(*http.Request) semahttp.Limiter { return semahttp.Limiter{State: state} }
	for _, c := range []struct {
		what   string
		field  string // "": it is taken
		limit  func(*http.Request) semahttp.Limiter
		wait   time.Duration
		policy semahttp.Policy
		places int
	}{
		{"nothing", "Limit", nil, 0, 0, 0},
		{"the zero values", "", semahttp.All(sem), 0, 0, 0},
		{"no limit", "", free, 0, 0, 0},
		{"a limiter with a name only", "Limiter.Acquire", nameless, 0, 0, 0},
		{"a limiter with a state only", "Limiter.Acquire", aimless, 0, 0, 0},
		{"a wait below none", "Wait", semahttp.All(sem), -1, 0, 0},
		{"the least wait", "Wait", semahttp.All(sem), math.MinInt64, 0, 0},
		{"the longest wait", "", semahttp.All(sem), math.MaxInt64, 0, 0},
		{"the last policy, one place", "", semahttp.All(sem), 0, semahttp.FailLocal, 1},
		{"no place", "Places", semahttp.All(sem), 0, semahttp.FailLocal, 0},
		{"less than none", "Places", semahttp.All(sem), 0, semahttp.FailLocal, -1},
		{"the most places", "", semahttp.All(sem), 0, semahttp.FailLocal, semahttp.MaxPlaces},
		{"one more", "Places", semahttp.All(sem), 0, semahttp.FailLocal, semahttp.MaxPlaces + 1},
		{"places for FailOpen", "Places", semahttp.All(sem), 0, semahttp.FailOpen, 1},
		{"places for FailClosed", "Places", semahttp.All(sem), 0, semahttp.FailClosed, 1},
		{"one policy more", "Policy", semahttp.All(sem), 0, semahttp.FailLocal + 1, 0},
		{"the largest policy", "Policy", semahttp.All(sem), 0, 255, 0},
	} {
		ok := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		})
		tr := &semahttp.Transport{Base: ok, Limit: c.limit, Wait: c.wait, Policy: c.policy, Places: c.places}
		_, err := tr.RoundTrip(request(t, expect.Within(t), "http://example.org"))
		refused := &sema.ArgumentError{}
		if errors.As(err, &refused) != (c.field != "") || refused.What != c.field {
			t.Errorf("Transport, %s: %v, want %q refused", c.what, err, c.field)
		}
		h := &semahttp.Handler{Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }), Limit: c.limit, Wait: c.wait, Policy: c.policy, Places: c.places}
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
	sem, err := sema.New(memengine.New(), "x", 1, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, sem.Close()) }()
	key := func(*http.Request) string { return "a" }
	one := func(*http.Request) int { return 1 }
	var acquire func(context.Context, string, ...sema.AcquireOption) (*sema.Permit, error)
	some := func(context.Context, string, ...sema.AcquireOption) (*sema.Permit, error) { return nil, nil }
	for _, c := range []struct {
		what string
		make func()
	}{
		{"semaphore", func() { semahttp.Of(nil) }},
		{"semaphore", func() { semahttp.OfN(nil, 1) }},
		{"semaphore", func() { semahttp.All(nil) }},
		{"semaphore", func() { semahttp.AllN(nil, one) }},
		{"weight", func() { semahttp.AllN(sem, nil) }},
		{"semaphore", func() { semahttp.PerKey(nil, key) }},
		{"key", func() { semahttp.PerKey(sem, nil) }},
		{"semaphore", func() { semahttp.PerKeyN(nil, key, one) }},
		{"weight", func() { semahttp.PerKeyN(sem, key, nil) }},
		{"acquire", func() { semahttp.ByHost(acquire) }},
		{"acquire", func() { semahttp.ByKey(key, acquire) }},
		{"key", func() { semahttp.ByKey(nil, some) }},
		{"acquire", func() { semahttp.ByKeyN(key, one, acquire) }},
		{"key", func() { semahttp.ByKeyN(nil, one, some) }},
		{"weight", func() { semahttp.ByKeyN(key, nil, some) }},
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
