package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/protocol"
	"sema/watch"
)

func TestEveryAnswerHasThePolicy(t *testing.T) {
	s := open(t, dashboard.Options{})
	for path, code := range map[string]int{"/": 200, "/semaphore?name=x": 404, "/style.css": 200, "/live.js": 200, "/icon.svg": 200, "/x": 404, "/act": 403} {
		w := s.do(code, httptest.NewRequest(http.MethodGet, path, nil))
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	w := s.do(200, httptest.NewRequest(http.MethodGet, "/style.css", nil))
	s.get(304, "/style.css", "If-None-Match", w.Header().Get("ETag"))
	s.do(200, httptest.NewRequest(http.MethodHead, "/", nil))
}

// A dashboard works below any path, with a client that follows links as a
// browser does.
func TestBelowAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dashboard.Options{Login: func(_ *http.Request, token string) (access.Who, bool) { return admin(nil), token == "t" }})
		acquire(t, s.semaphore("x", 3, nil), 1)
		mux := http.NewServeMux()
		mux.Handle("/ops/sema/", http.StripPrefix("/ops/sema", s.d))
		mux.Handle("/bare", http.StripPrefix("/bare", s.d))
		server := pipenet.Serve(mux, nil)
		defer server.Close()
		jar, _ := cookiejar.New(nil)
		browser := server.Client()
		browser.Jar = jar
		visit := func(path string) (string, string) {
			t.Helper()
			resp, err := browser.Get(server.URL + path)
			expect.OK(t, err)
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			expect.OK(t, err)
			return resp.Request.URL.Path, string(body)
		}
		for _, path := range []string{"/ops/sema/", "/ops/sema"} {
			if at, page := visit(path); at != "/ops/sema/login" || !strings.Contains(page, "Token") {
				t.Errorf("%s leads to %s\n%s", path, at, page)
			}
		}
		post := func(to string, v url.Values) string {
			t.Helper()
			r, _ := http.NewRequest(http.MethodPost, server.URL+to, strings.NewReader(v.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", server.URL)
			resp, err := browser.Do(r)
			expect.OK(t, err)
			_ = resp.Body.Close()
			return resp.Request.URL.Path
		}
		if at := post("/ops/sema/login", url.Values{"token": {"t"}}); at != "/ops/sema/" {
			t.Errorf("logged in, at %s", at)
		}
		if at, page := visit("/ops/sema/semaphore?name=x"); at != "/ops/sema/semaphore" || !strings.Contains(page, "1 of 3") {
			t.Errorf("at %s\n%s", at, page)
		}
		if at := post("/ops/sema/act", form("pause", "x")); at != "/ops/sema/semaphore" {
			t.Errorf("paused, at %s", at)
		}
		if at := post("/ops/sema/logout", nil); at != "/ops/sema/login" {
			t.Errorf("logged out, at %s", at)
		}
		if at, _ := visit("/ops/sema/semaphore?name=x"); at != "/ops/sema/login" {
			t.Errorf("after the logout at %s", at)
		}
		resp, err := (&http.Client{Transport: browser.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(server.URL + "/bare")
		expect.OK(t, err)
		_ = resp.Body.Close()
		if to := resp.Header.Get("Location"); to != "./bare/" {
			t.Errorf("/bare leads to %s", to)
		}
	})
}

// Whatever an address or a form says, it is answered, and not with a failure
// of ours.
func FuzzRequests(f *testing.F) {
	f.Add("", "q=a&page=2&sort=use", false)
	f.Add("semaphore", "name=x&holders=2&waiters=-1", false)
	f.Add("act", "do=limit&name=x&limit=5", true)
	f.Add("act", "do=revoke&name=x&permit=a-1-1", true)
	f.Add("login", "token=%00", true)
	e := memengine.New()
	d, err := dashboard.New(e, &dashboard.Options{
		Allow: admin, Login: func(*http.Request, string) (access.Who, bool) { return access.Who{}, false }, Log: slog.New(slog.DiscardHandler),
	})
	expect.OK(f, err)
	f.Cleanup(d.Close)
	raw, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
	expect.OK(f, err)
	if _, err := raw.Step(f.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: 3, Pin: true}}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, query string, post bool) {
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(query))
		r.URL = &url.URL{Path: "/" + path, RawQuery: query}
		if path == "live" {
			return // it does not end
		}
		if post {
			r.Method = http.MethodPost
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %s: %d\n%s", r.Method, r.URL, w.Code, w.Body)
		}
	})
}

// away is an engine that cannot be reached.
type away struct{ protocol.Engine }

func (away) List(context.Context) ([]string, error) { return nil, errAway }

func (away) Open(string, engine.Client, func(protocol.Notification)) (protocol.Session, error) {
	return nil, errAway
}

var errAway = &engine.Error{Op: "state", NotExecuted: true, Temporary: true, Err: errors.New("dial <tcp>: refused")}

func TestAnEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := dashboard.New(away{memengine.New()}, &dashboard.Options{Allow: admin, Log: slog.New(slog.DiscardHandler)})
		expect.OK(t, err)
		defer d.Close()
		s := &site{t: t, d: d}
		for _, path := range []string{"/", "/?sort=use", "/semaphore?name=x", "/act?do=pause&name=x"} {
			expect.Has(t, s.get(503, path), "Dial &lt;tcp&gt;: refused")
		}
		expect.Has(t, s.post(503, "/act", form("pause", "x")).Body.String(), "refused")
	})
}

// Ten thousand semaphores, and ten thousand waiters of one of them, are pages
// like any others.
func TestTenThousand(t *testing.T) {
	e := memengine.New()
	w, err := watch.New(e, &watch.Options{Fresh: time.Hour, Rate: 1_000_000})
	expect.OK(t, err)
	defer w.Close()
	s := openOn(t, e, dashboard.Options{Watcher: w})
	for i := range 10_000 {
		stepped(t, s.engine, fmt.Sprintf("s%05d", i), engine.Client{}, protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pin: true})
	}
	ask := protocol.Request{Kind: protocol.Ask, ID: engine.ID{Weight: 1}, Limit: 1, Lease: 1e12, Ticket: 1e12, Wait: true}
	stepped(t, s.engine, "crowd", engine.Client{Host: "h", PID: 1, Label: "w"}, slices.Repeat([]protocol.Request{ask}, 10_001)...)
	_, _, err = w.Summaries(expect.Within(t), watch.Query{}) // a busy machine takes longer than a page waits
	expect.OK(t, err)
	for path, want := range map[string]string{
		"/":                                   "1 to 50 of 10,001 semaphores",
		"/?page=201":                          "10,001 to 10,001 of 10,001 semaphores",
		"/?q=s0999":                           "1 to 10 of 10 semaphores",
		"/semaphore?name=crowd":               "1 to 20 of 10,000 waiters",
		"/semaphore?name=crowd&waiters=500":   "behind 9999 others",
		"/semaphore?name=crowd&waiters=10000": "No waiters on this page: there are 10,000 in all",
	} {
		page := s.get(200, path)
		expect.Has(t, page, want)
		if len(page) > 100<<10 {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}
}
