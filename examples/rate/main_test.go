package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"go.uber.org/goleak"

	"sema"
	"sema/examples/internal/page"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/sematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	var out bytes.Buffer
	expect.OK(t, demo(t.Context(), &out))
	page.Shows(t, "../../docs/llm.md", "cd examples/rate && go run .", out.String())
}

// limited has a limit of 1 at once, on an engine that can lose permits.
func limited(t *testing.T, redis *redistest.Server) (limits, *sematest.Engine) {
	engine := sematest.New(t)
	sem, err := sema.New(engine, "service", 1, nil)
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, sem.Close()) })
	rdb := redis.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	return limits{atOnce: sem, rate: redis_rate.NewLimiter(rdb), limit: redis_rate.PerHour(1), patience: 2 * time.Hour}, engine
}

// A caller that waits for its token with a permit ends its wait when the permit is
// lost, and when its own context ends: it sends nothing, and holds nothing.
func TestTheWaitForATokenEndsWithThePermit(t *testing.T) {
	l, engine := limited(t, redistest.Start(t))
	expect.OK(t, l.token(t.Context(), "a"))
	for _, how := range []struct {
		ends string
		end  func(cancel func())
		want error
	}{
		{"the permit is lost", func(func()) { engine.Lose("service") }, sema.ErrLost},
		{"the caller leaves", func(cancel func()) { cancel() }, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan error)
		go func() {
			_, err := l.begin(ctx, "a")
			began <- err
		}()
		engine.AwaitHeld(expect.Within(t), "service", 1)
		how.end(cancel)
		if err := <-began; !errors.Is(err, how.want) {
			t.Errorf("%s: %v, want %v", how.ends, err, how.want)
		}
		cancel()
		// At once, unless the caller left before it knew of its permit.
		expect.Until(t, how.ends+", and the permit is free", func() bool {
			st, err := l.atOnce.State(t.Context())
			expect.OK(t, err)
			return st.Used == st.Limit-1
		})
	}
}

// A short "later" is waited for with the permit.
func TestPatienceGetsTheNextToken(t *testing.T) {
	l, _ := limited(t, redistest.Start(t))
	l.limit = redis_rate.Limit{Rate: 20, Burst: 1, Period: time.Second}
	for range 3 {
		permit, err := l.begin(t.Context(), "a")
		expect.OK(t, err)
		expect.OK(t, permit.Release())
	}
}

// The page sends a request without a chance that asks for 0 tokens. It takes none, and its
// answer says whether one is there.
func TestAskingForNoTokenTakesNone(t *testing.T) {
	l, _ := limited(t, redistest.Start(t))
	l.limit = redis_rate.Limit{Rate: 2, Burst: 2, Period: time.Hour}
	for taken := range 3 {
		for range 3 {
			res, err := l.rate.AllowN(t.Context(), "a", l.limit, 0)
			expect.OK(t, err)
			if none := res.Remaining == 0; none != (taken == 2) {
				t.Errorf("%d of 2 taken, %d remain", taken, res.Remaining)
			}
		}
		if taken < 2 {
			expect.OK(t, l.token(t.Context(), "a"))
		}
	}
}

func TestRedisIsKilledUnderTheHandler(t *testing.T) {
	redis := redistest.Start(t)
	l, _ := limited(t, redis)
	redis.Kill()
	h := l.handler(func(*http.Request) string { return "a" }, http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}
