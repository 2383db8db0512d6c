package semahttp_test

import (
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/pipenet"
	"sema/internal/fixture/redistest"
	"sema/semahttp"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // parallel tests mostly wait for Redis
	goleak.VerifyTestMain(redistest.Settled(m))
}

// engines are those of the semaphores that newSem makes.
var engines sync.Map

func newSem(t testing.TB, limit int) *sema.Semaphore {
	t.Helper()
	e := memengine.New()
	s := open(t, e, "upstream", limit, nil)
	engines.Store(s, e)
	return s
}

// open is a semaphore that is open until the test ends.
var open = opened.Semaphore

// used is the weight held.
func used(t testing.TB, s *sema.Semaphore) int {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	return st.Used
}

// nothingHeld checks that all of a semaphore is free.
func nothingHeld(t testing.TB, s *sema.Semaphore) {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	if st.Used != 0 {
		t.Fatalf("%d of %d are held, by %+v", st.Used, st.Limit, st.Holders)
	}
}

// waiters is how many wait.
func waiters(t testing.TB, s *sema.Semaphore) int {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	return len(st.Waiters)
}

// revoke takes the only permit from its holder.
func revoke(t testing.TB, s *sema.Semaphore) {
	t.Helper()
	e, _ := engines.Load(s)
	o, err := sema.Operate(e.(sema.Engine), s.Name())
	expect.OK(t, err)
	defer func() { expect.OK(t, o.Close()) }()
	st, err := o.State(expect.Within(t))
	expect.OK(t, err)
	if len(st.Holders) != 1 {
		t.Fatalf("%d holders, want 1", len(st.Holders))
	}
	expect.OK(t, o.Revoke(expect.Within(t), st.Holders[0].ID))
}

// connections returns a transport to the handlers of serve. Its connections are
// closed when the test ends.
func connections(t testing.TB) *http.Transport {
	base := &http.Transport{DialContext: pipenet.Dial}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// transport is a Transport over connections.
func transport(t testing.TB, sem *sema.Semaphore) *semahttp.Transport {
	return &semahttp.Transport{Base: connections(t), Limit: by(sem)}
}

// serve serves until the test ends, in memory.
func serve(t testing.TB, f http.HandlerFunc) string {
	s := pipenet.Serve(f, nil)
	t.Cleanup(s.Close)
	return s.URL
}

// serveTLS serves over TLS until the test ends, in memory. It returns the address,
// and a transport to it.
func serveTLS(t testing.TB, h http.Handler, http2 bool) (string, *http.Transport) {
	l := pipenet.Listen()
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}, EnableHTTP2: http2}
	s.StartTLS()
	t.Cleanup(s.Close)
	base := s.Client().Transport.(*http.Transport)
	base.DialContext = l.Dial
	t.Cleanup(base.CloseIdleConnections)
	return s.URL, base
}

// get asks for a page, and stops the test when there is no answer.
func get(t testing.TB, rt http.RoundTripper, ctx context.Context, url string) *http.Response {
	t.Helper()
	resp, err := (&http.Client{Transport: rt}).Do(request(t, ctx, url))
	expect.OK(t, err)
	return resp
}

func request(t testing.TB, ctx context.Context, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	expect.OK(t, err)
	return r
}

func read(t testing.TB, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	expect.OK(t, err)
	return string(all)
}

// collectUntil runs the garbage collector until ok.
func collectUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	expect.Until(t, what, func() bool { runtime.GC(); return ok() })
}

// roundTripper is a function as http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// limited makes each request ask the limiter of that name and function.
func limited(name string, acquire func(context.Context, ...sema.AcquireOption) (*sema.Permit, error)) func(*http.Request) semahttp.Limiter {
	l := semahttp.Limiter{Name: name, Acquire: func(ctx context.Context, options ...sema.AcquireOption) (semahttp.Permit, error) {
		if p, err := acquire(ctx, options...); p != nil || err != nil {
			return p, err
		}
		return nil, nil
	}}
	return func(*http.Request) semahttp.Limiter { return l }
}

// by limits every request by the same semaphore.
func by(s *sema.Semaphore, options ...sema.AcquireOption) func(*http.Request) semahttp.Limiter {
	return func(*http.Request) semahttp.Limiter { return semahttp.Of(s, options...) }
}

// byTenant limits every request by a semaphore, under the key in its header Tenant.
func byTenant(s *sema.Semaphore) func(*http.Request) semahttp.Limiter {
	return func(r *http.Request) semahttp.Limiter { return semahttp.Of(s, sema.For(r.Header.Get("Tenant"))) }
}
