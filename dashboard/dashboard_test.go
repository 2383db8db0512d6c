package dashboard_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a dashboard that is asked for pages.
type site struct {
	t      testing.TB
	engine sema.Engine
	d      *dashboard.Handler
	log    *bytes.Buffer
}

func open(t *testing.T, o dashboard.Options) *site {
	t.Helper()
	return openOn(t, memengine.New(), o)
}

func openOn(t testing.TB, e sema.Engine, o dashboard.Options) *site {
	t.Helper()
	s := &site{t: t, engine: e, log: &bytes.Buffer{}}
	o.Log = slog.New(slog.NewTextHandler(s.log, nil))
	if o.Audit == nil {
		o.Audit = func(access.Record) {}
	}
	var err error
	if s.d, err = dashboard.New(s.engine, &o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.d.Close()
		_ = s.engine.Close()
		if s.log.Len() > 0 {
			t.Errorf("logged: %s", s.log)
		}
	})
	return s
}

func admin(*http.Request) access.Who {
	return access.Who{Right: "admin", Name: "olga"}
}

func (s *site) semaphore(name string, limit int, o *sema.Options) *sema.Semaphore {
	s.t.Helper()
	return opened.Semaphore(s.t, s.engine, name, limit, o)
}

// operator is for operators of a semaphore.
func (s *site) operator(name string) *sema.Operator {
	s.t.Helper()
	return opened.Operator(s.t, s.engine, name)
}

// acquire takes a permit until the test ends.
func acquire(t *testing.T, s *sema.Semaphore, n int) *sema.Permit {
	t.Helper()
	p, err := s.Acquire(t.Context(), sema.Weight(n))
	expect.OK(t, err)
	t.Cleanup(func() { _ = p.Release() }) // a permit that nothing refers to is given back
	return p
}

// queue has somebody wait, and returns when the engine knows.
var queue = opened.Waiter

// get asks for a page and checks the status.
func (s *site) get(code int, path string, headers ...string) string {
	s.t.Helper()
	return s.do(code, httptest.NewRequest(http.MethodGet, path, nil), headers...).Body.String()
}

// post sends a form as a page of the dashboard does.
func (s *site) post(code int, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if len(headers) == 0 {
		headers = []string{"Sec-Fetch-Site", "same-origin"}
	}
	return s.do(code, r, headers...)
}

func (s *site) do(code int, r *http.Request, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.d.ServeHTTP(w, r)
	if w.Code != code {
		s.t.Fatalf("%s %s: status %d, want %d\n%s", r.Method, r.URL, w.Code, code, w.Body)
	}
	return w
}

func hasNot(t *testing.T, page string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if strings.Contains(page, want) {
			t.Errorf("%q in\n%s", want, page)
		}
	}
}

func TestAListWithoutSemaphores(t *testing.T) {
	page := open(t, dashboard.Options{Title: "my <team>"}).get(200, "/")
	expect.Has(t, page, "No semaphores now", "my &lt;team&gt;", `<html lang="en">`)
}

func TestAListShowsUseQueueAndOldestWait(t *testing.T) {
	s := open(t, dashboard.Options{})
	sem := s.semaphore("down/loads & more", 3, nil)
	acquire(t, sem, 3)
	queue(t, s.engine, "down/loads & more", "w", 1)
	page := s.get(200, "/")
	expect.Has(t, page, "down/loads &amp; more", "3 of 3", `data-label="Waiting">1<`, `data-label="Oldest wait">0s<`, "semaphore?name=down%2Floads&#43;%26&#43;more",
		`class="fill"`, `aria-sort="descending"`)
	hasNot(t, page, "tag warn", `class="fill bad"`) // a full one is no trouble
	expect.Has(t, s.get(200, "/?sort=name"), `aria-sort="ascending"`)
}

func TestAListIsFilteredSortedAndPaged(t *testing.T) {
	e := memengine.New()
	w, err := watch.New(e, nil)
	expect.OK(t, err)
	defer w.Close()
	s := openOn(t, e, dashboard.Options{Rows: 10, Watcher: w})
	for i := range 25 {
		sem := s.semaphore(fmt.Sprintf("job-%02d", i), 100, nil)
		acquire(t, sem, i+1)
	}
	_, _, err = w.Summaries(expect.Within(t), watch.Query{}) // a page does not wait for all to be looked at
	expect.OK(t, err)
	rows := regexp.MustCompile(`data-key="([^"]*)"`)
	for _, c := range []struct {
		path, first string
		n           int
		also        string
	}{
		{"/", "job-00", 10, `href="./?page=2"`},
		{"/?page=2", "job-10", 10, "11 to 20 of 25 semaphores"},
		{"/?page=3", "job-20", 5, "21 to 25 of 25 semaphores"},
		{"/?page=99", "", 0, `href="./?page=3"`},
		{"/?page=-1", "job-00", 10, ""},
		{"/?page=x", "job-00", 10, ""},
		{"/?q=B-1", "job-10", 10, `value="B-1"`},
		{"/?q=nothing", "", 0, "No semaphores now"},
		{"/?q=%00", "job-00", 10, ""},
		{"/?sort=use", "job-24", 10, `href="./?page=2&amp;sort=use"`},
		{"/?sort=use&page=2", "job-14", 10, `aria-sort="descending"`},
		{"/?sort=waiting", "job-00", 10, ""},
		{"/?sort=oldest&q=job-0", "job-00", 10, `value="job-0"`},
		{"/?sort=%3Cscript%3E", "job-00", 10, ""},
	} {
		page := s.get(200, c.path)
		found := rows.FindAllStringSubmatch(page, -1)
		first := ""
		if len(found) > 0 {
			first = found[0][1]
		}
		if first != c.first || len(found) != c.n {
			t.Errorf("%s: %d rows from %q on", c.path, len(found), first)
		}
		expect.Has(t, page, c.also)
	}
}

func TestAPageShowsHoldersAndWhyOthersWait(t *testing.T) {
	s := open(t, dashboard.Options{})
	sem := s.semaphore("x", 3, &sema.Options{Label: "holder & sons", Slots: true})
	p := acquire(t, sem, 2)
	queue(t, s.engine, "x", "heavy", 3)
	queue(t, s.engine, "x", "light", 1)
	page := s.get(200, "/semaphore?name=x")
	expect.Has(t, page, "holder &amp; sons", "<dt>Slot</dt><dd>0</dd>", p.ID(), fmt.Sprint(p.Token()), "2 of 3 held, 3 wanted", "behind 1 other", "2 of 3", ">1 holder<", ">2 waiters<")
	hasNot(t, page, "Revoke", "Set the limit", "act?") // read only
	expect.Has(t, s.get(404, "/semaphore?name=nobody"), "Nobody uses")
	hasNot(t, s.get(404, "/semaphores/x"), "href") // relative links would lead below it
	for _, path := range []string{"/semaphore", "/semaphore?name=a%0ab", "/semaphore?name=" + strings.Repeat("a", 256), "/nothing", "/semaphore/x", "/live"} {
		s.get(404, path)
	}
}
