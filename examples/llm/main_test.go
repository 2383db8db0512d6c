package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	c := caps{name: "llm", organisations: []string{"acme"}, models: map[string]int{"a": 100}, places: 1, wait: time.Second}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h, end, err := c.handler(memengine.New(), next)
	expect.OK(t, err)
	defer end(context.Background())
	for _, ask := range []struct {
		organisation, body string
		want               int
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
		r.Header.Set("Organisation", ask.organisation)
		r.Header.Set("User", "alice")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != ask.want || w.Code == 200 && w.Body.String() != ask.body {
			t.Errorf("%q, %.40q: %d %.40q, want %d", ask.organisation, ask.body, w.Code, w.Body.String(), ask.want)
		}
	}
	c.each = sema.Caps{100, -1}
	if _, _, err := c.handler(memengine.New(), next); err == nil {
		t.Error("-1 token of each user was taken")
	}
	c.each, c.places = sema.Caps{}, 0
	if _, _, err := c.handler(memengine.New(), next); err == nil {
		t.Error("no place was taken")
	}
}

// A user at her cap does not hold up another of her organisation, and a full organisation does not hold
// up another one. Each request weighs a thousand tokens; an organisation may have 20 of them at once, a user 4.
func TestUsersAndOrganisations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := caps{
			name: "llm", organisations: []string{"acme", "globex"}, models: map[string]int{"large": 50_000},
			each: sema.Caps{20_000, 4_000}, places: 1, wait: time.Hour,
		}
		var mu sync.Mutex
		running, leave := map[string]int{}, make(chan struct{})
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			j := jobOf(r)
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running[j.organisation] += n
				running[j.organisation+"/"+j.user] += n
			}
			count(1)
			defer count(-1)
			<-leave
		})
		h, end, err := c.handler(memengine.New(), next)
		expect.OK(t, err)
		defer end(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer close(leave)
		send := func(organisation, user string, n int) {
			for range n {
				all.Go(func() {
					r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"model":"large","max_tokens":992}`)) // and a prompt of 8
					r.Header.Set("Organisation", organisation)
					r.Header.Set("User", user)
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, r); w.Code != http.StatusOK {
						t.Errorf("%s/%s: %d", organisation, user, w.Code)
					}
				})
			}
			synctest.Wait()
		}
		want := func(who string, n int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if running[who] != n {
				t.Errorf("%s has %d requests at once, want %d", who, running[who], n)
			}
		}
		send("acme", "alice", 6)
		want("acme/alice", 4)
		send("acme", "bob", 1)
		want("acme/bob", 1) // behind two of alice's that wait
		for i := range 5 {
			send("acme", fmt.Sprint("user ", i), 4)
		}
		want("acme", 20)
		want("acme/user 4", 0)
		send("globex", "alice", 6)
		want("globex/alice", 4)
		leave <- struct{}{} // one of acme's or of globex's 24
		synctest.Wait()
		mu.Lock()
		at := running["acme"] + running["globex"]
		mu.Unlock()
		if at != 24 {
			t.Errorf("%d requests at once, want 24: one that waited has its turn", at)
		}
	})
}

// A gateway that starts while its engine is away serves, by its own places.
func TestStartsWithoutItsEngine(t *testing.T) {
	engine := &failing.Engine{Engine: memengine.New()}
	defer engine.Fail()()
	service := newUpstream()
	h, end, err := caps{name: "llm", organisations: []string{"acme"}, models: map[string]int{"a": 100}, places: 1, wait: time.Minute}.handler(engine, service)
	expect.OK(t, err)
	defer end(context.Background())
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"model":"a","max_tokens":1}`))
	r.Header.Set("Organisation", "acme")
	r.Header.Set("User", "alice")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if n, _ := service.counted(); w.Code != http.StatusOK || n != 1 {
		t.Errorf("%d, and %d requests reached the service", w.Code, n)
	}
}
