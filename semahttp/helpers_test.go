package semahttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine/memengine"
	"sema/semahttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what no test asserts anything about.
const patience = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until asks again and again for what no event tells.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: did not happen in time", what)
		}
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newSem(t testing.TB, limit int) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(memengine.New(), "upstream", limit, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// used is the weight held.
func used(t testing.TB, s *sema.Semaphore) int {
	t.Helper()
	st, err := s.State(within(t))
	must(t, err)
	return st.Used
}

// waiters is how many wait.
func waiters(t testing.TB, s *sema.Semaphore) int {
	t.Helper()
	st, err := s.State(within(t))
	must(t, err)
	return len(st.Waiters)
}

// revoke takes the only permit from its holder.
func revoke(t testing.TB, s *sema.Semaphore) {
	t.Helper()
	holders, err := s.Holders(within(t))
	must(t, err)
	if len(holders) != 1 {
		t.Fatalf("%d holders, want 1", len(holders))
	}
	must(t, s.Revoke(within(t), holders[0].ID))
}

// transport is a Transport whose connections are gone when the test ends.
func transport(t testing.TB, sem *sema.Semaphore) *semahttp.Transport {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return &semahttp.Transport{Base: base, Limit: semahttp.All(sem)}
}

func serve(t testing.TB, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// get asks for a page, and stops the test when there is no answer.
func get(t testing.TB, rt http.RoundTripper, ctx context.Context, url string) *http.Response {
	t.Helper()
	resp, err := (&http.Client{Transport: rt}).Do(request(t, ctx, url))
	must(t, err)
	return resp
}

func request(t testing.TB, ctx context.Context, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	return r
}

func read(t testing.TB, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	must(t, err)
	return string(all)
}

// collectUntil has the garbage collector run until ok.
func collectUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	until(t, what, func() bool { runtime.GC(); return ok() })
}

// roundTripper is a function as http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// limiter is a function as Limiter.
type limiter func(context.Context) (*sema.Permit, error)

func (f limiter) Acquire(ctx context.Context) (*sema.Permit, error) { return f(ctx) }
func (limiter) Name() string                                        { return "fake" }
