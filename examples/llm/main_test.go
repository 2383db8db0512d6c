package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/examples/internal/failing"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	engine := &failing.Engine{Engine: memengine.New()}
	printsWhatTheDocsShow(t, engine, engine.Fail)
}

// The same with Redis, which is killed.
func TestRedisIsKilled(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer func() { expect.OK(t, rdb.Close()) }()
	engine, err := redisengine.New(rdb, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, engine.Close()) }()
	printsWhatTheDocsShow(t, engine, func() func() { srv.Kill(); return srv.Restart })
	expect.Until(t, "go-redis has noticed", func() bool { return rdb.Ping(expect.Within(t)).Err() == nil })
}

func printsWhatTheDocsShow(t *testing.T, engine sema.Engine, fail func() func()) {
	t.Helper()
	out := &strings.Builder{}
	expect.OK(t, show(t.Context(), engine, fail, out))
	docs, err := os.ReadFile("../../docs/llm.md")
	expect.OK(t, err)
	shown := "    go run ./examples/llm\n\n    " + strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n    ") + "\n"
	if !strings.Contains(string(docs), shown) {
		t.Errorf("docs/llm.md does not show\n%s", shown)
	}
}

func TestWhatIsNoRequestForAModel(t *testing.T) {
	c := caps{name: "llm", tenants: []string{"acme"}, models: map[string]int{"a": 100}, places: 1, wait: time.Second}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h, end, err := c.handler(memengine.New(), next)
	expect.OK(t, err)
	defer end(context.Background())
	for _, ask := range []struct {
		tenant, body string
		want         int
	}{
		{"", `{"model":"a","max_tokens":1}`, 401},
		{"nobody", `{"model":"a","max_tokens":1}`, 401},
		{"acme", "{", 400},
		{"acme", `{"model":"a"}`, 400},
		{"acme", `{"model":"b","max_tokens":1}`, 404},
		{"acme", strings.Repeat("x", 1<<20+1), 413},
		{"acme", `{"model":"a","max_tokens":100}`, 413},
		{"acme", `{"model":"a","max_tokens":1}`, 200},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(ask.body))
		r.Header.Set("Tenant", ask.tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != ask.want || w.Code == 200 && w.Body.String() != ask.body {
			t.Errorf("%q, %.40q: %d %.40q, want %d", ask.tenant, ask.body, w.Code, w.Body.String(), ask.want)
		}
	}
	c.perTenant = -1
	if _, _, err := c.handler(memengine.New(), next); err == nil {
		t.Error("-1 token of each tenant was taken")
	}
	c.perTenant, c.places = 0, 0
	if _, _, err := c.handler(memengine.New(), next); err == nil {
		t.Error("no place was taken")
	}
}

// A gateway that starts while its engine is away serves, by its own places.
func TestStartsWithoutItsEngine(t *testing.T) {
	engine := &failing.Engine{Engine: memengine.New()}
	defer engine.Fail()()
	service := newUpstream()
	h, end, err := caps{name: "llm", tenants: []string{"acme"}, models: map[string]int{"a": 100}, places: 1, wait: time.Minute}.handler(engine, service)
	expect.OK(t, err)
	defer end(context.Background())
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"model":"a","max_tokens":1}`))
	r.Header.Set("Tenant", "acme")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if n, _ := service.counted(); w.Code != http.StatusOK || n != 1 {
		t.Errorf("%d, and %d requests reached the service", w.Code, n)
	}
}
