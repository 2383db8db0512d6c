package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
	"sema/watch"
)

// chromium is the browser of all tests. A missing one is a failure.
var chromium context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := os.Getenv("SEMA_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); path == "" && err == nil {
			path = found
		}
	}
	if path == "" {
		fmt.Println("no Chromium: scripts/test-tools.sh installs it, or SEMA_CHROMIUM names one")
		return 1
	}
	home, err := os.MkdirTemp("", "sema-browser")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(home), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("force-color-profile", "srgb"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, closeBrowser := chromedp.NewContext(allocator)
	defer closeBrowser()
	if err := chromedp.Do(browser); err != nil {
		fmt.Println("Chromium does not start:", err)
		return 1
	}
	chromium = browser
	return m.Run()
}

// tab is a page of a browser that fails its test on any error of the console.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string // of the dashboard

	mu       sync.Mutex
	problems []string
}

// newTab opens a tab with a profile of its own, so that tests share no cookie.
func newTab(t *testing.T, url string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	ctx, end := context.WithTimeout(ctx, 2*time.Minute)
	b := &tab{t: t, ctx: ctx, url: url}
	expect.OK(t, chromedp.Listen(ctx, b.hear))
	t.Cleanup(func() {
		b.mu.Lock()
		problems := b.problems
		b.mu.Unlock()
		for _, p := range problems {
			t.Errorf("the browser says: %s", p)
		}
		end()
		cancel()
	})
	return b
}

// hear notes what a developer would see in the browser's console.
func (b *tab) hear(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.problems = append(b.problems, fmt.Sprintf("console: %s %v", e.Type, e.Args))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			b.problems = append(b.problems, fmt.Sprintf("log: %s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}
}

// command is an action that sends the browser a command.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// expect forgives the problems so far, which have to be so many and contain
// the text.
func (b *tab) expect(n int, text string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		if !strings.Contains(p, text) {
			b.t.Errorf("the browser says: %s", p)
		}
	}
	if len(b.problems) != n {
		b.t.Errorf("the browser says %d things, not %d: %q", len(b.problems), n, b.problems)
	}
	b.problems = nil
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v; the page is %s", err, b.text())
	}
}

// js runs a statement in the page.
func (b *tab) js(statement string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](statement))
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url + path))
}

// until waits for an expression to become true in a page that is loaded: what is found
// while it loads may be gone when something is done with it.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState === "complete" && !!(`+expression+")"))
		if ok {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("not seen in time: %s (%v)\n%s", expression, err, b.text())
		}
		time.Sleep(20 * time.Millisecond) // polls, also while a page loads
	}
}

func (b *tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// eval is the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// click clicks on what has this text, as a person would: with the mouse. A page that is
// being loaded, or shows something new, may replace what was just found: it is looked for
// again, for nothing was clicked then.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	for {
		nodes, err := chromedp.Run(b.ctx, chromedp.Nodes(chromedp.Search(fmt.Sprintf(`//%s[starts-with(normalize-space(.), %q)]`, selector, text))))
		if err == nil {
			err = chromedp.Do(b.ctx, chromedp.MouseClickNode(nodes[0]))
		}
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Could not find node") {
			b.t.Fatalf("%s %q: %v; the page is %s", selector, text, err, b.text())
		}
	}
}

// site is a dashboard over an engine in memory, with an operator.
type site struct {
	t         *testing.T
	engine    protocol.Engine
	dashboard *dashboard.Handler
	server    *httptest.Server

	mu    sync.Mutex
	audit []access.Record
}

func newSite(t *testing.T, o dashboard.Options) *site {
	t.Helper()
	return newSiteOn(t, memengine.New(), o)
}

func newSiteOn(t *testing.T, e protocol.Engine, o dashboard.Options) *site {
	t.Helper()
	s := newSiteEvery(t, e, o, 100*time.Millisecond)
	s.serve()
	return s
}

// newSiteEvery looks at all semaphores so often, and has no server yet.
func newSiteEvery(t *testing.T, e protocol.Engine, o dashboard.Options, every time.Duration) *site {
	t.Helper()
	s := &site{t: t, engine: e}
	o.Audit = func(a access.Record) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.audit = append(s.audit, a)
	}
	w, err := watch.New(s.engine, &watch.Options{Rounds: every})
	expect.OK(t, err)
	o.Watcher, o.Always = w, true
	d, err := dashboard.New(s.engine, &o)
	expect.OK(t, err)
	s.dashboard = d
	t.Cleanup(func() {
		w.Close()
		_ = s.engine.Close()
	})
	return s
}

// serve lets browsers see the dashboard.
func (s *site) serve() {
	mux := http.NewServeMux()
	mux.Handle("/sema/", http.StripPrefix("/sema", s.dashboard)) // as in a program of a user
	s.server = httptest.NewServer(mux)
	s.t.Cleanup(func() {
		s.dashboard.Close()
		s.server.Close()
	})
}

func (s *site) tab() *tab { return newTab(s.t, s.server.URL+"/sema/") }

func operator(*http.Request) access.Who {
	return access.Who{Right: "admin", Name: "olga"}
}

// semaphore is a client, as a process has one.
func (s *site) semaphore(name string, limit int, label string) *sema.Semaphore {
	s.t.Helper()
	return opened.Semaphore(s.t, s.engine, name, limit, &sema.Options{Label: label})
}

// operator is for operators of a semaphore.
func (s *site) operator(name string) *sema.Operator {
	s.t.Helper()
	return opened.Operator(s.t, s.engine, name)
}

func (s *site) acquire(sem *sema.Semaphore, n int) *sema.Permit {
	s.t.Helper()
	p, err := sem.Acquire(s.t.Context(), sema.Weight(n))
	expect.OK(s.t, err)
	s.t.Cleanup(func() { goruntime.KeepAlive(p) }) // lest it is found unreleased
	return p
}

// wait has a client of its own wait for a permit, and returns once it is in
// the queue.
func (s *site) wait(name, label string, n int) {
	s.t.Helper()
	opened.Waiter(s.t, s.engine, name, label, n)
}

// town fills an engine with semaphores as a team might have them.
func (s *site) town() (revocable *sema.Permit) {
	github := s.semaphore("github-api", 5, "sync-issues")
	for range 3 {
		revocable = s.acquire(github, 1)
	}
	s.acquire(s.semaphore("github-api", 5, "nightly"), 1)
	s.wait("github-api", "backfill --since 2019", 3)
	s.wait("github-api", "sync-pulls", 1)
	s.wait("github-api", "sync-pulls", 1)
	llm := s.semaphore("llm/gpt-large", 8, "summarise")
	s.acquire(llm, 6)
	s.acquire(s.semaphore("downloads", 3, "curl -O https://example.org/file"), 1)
	reports := s.semaphore("reports/month end", 2, "report")
	s.acquire(reports, 1)
	expect.OK(s.t, s.operator("reports/month end").Pause(s.t.Context()))
	s.wait("reports/month end", "report", 1)
	s.ask("tenants", 6, 2, "acme", "acme", "beta", "beta", "acme", "acme", "acme", "", "delta", "epsilon")
	expect.OK(s.t, s.operator("tenants").Set(s.t.Context(), sema.Rule{Limit: 3, Share: 300}, "beta"))
	vendor := s.semaphore("vendor-x.query", 12, "etl")
	s.acquire(vendor, 9)
	expect.OK(s.t, s.operator("vendor-x.query").Set(s.t.Context(), sema.Rule{Limit: 8}))
	return revocable
}

// ask asks for a permit of each of these keys, as another process. release
// gives back the n-th.
func (s *site) ask(name string, limit, perKey int, keys ...string) (release func(n int)) {
	s.t.Helper()
	raw := opened.Session(s.t, s.engine, name, engine.Client{Host: "web-1", PID: 7, Label: "api"})
	id := func(n int) engine.ID { return engine.ID{Client: raw.Client(), Number: uint64(n + 1), Weight: 1} }
	number := uint64(0)
	step := func(requests ...protocol.Request) {
		number++
		if _, err := raw.Step(s.t.Context(), protocol.Call{Number: number, Requests: requests}); err != nil {
			s.t.Fatal(err)
		}
	}
	var asks []protocol.Request
	for i, key := range keys {
		asks = append(asks, protocol.Request{Kind: protocol.Ask, ID: id(i), Limit: limit, Caps: engine.Caps{perKey}, Target: protocol.Target{Key: engine.Key(key)}, Lease: time.Hour, Ticket: time.Hour, Wait: true})
	}
	step(asks...)
	return func(n int) { step(protocol.Request{Kind: protocol.Release, ID: id(n)}) }
}

// named asks for a permit for each of these callers of a server, which takes some of pools.
func (s *site) named(name string, limit int, takes engine.Pools, callers ...string) {
	s.t.Helper()
	var all []protocol.Request
	for i, caller := range callers {
		all = append(all, protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Client: "api", Number: uint64(i + 1), Weight: 1}, Limit: limit, Target: protocol.Target{Takes: takes}, Lease: time.Hour, Ticket: time.Hour, Wait: true,
			Who: &engine.Client{Host: "10.0.4.17", Caller: caller, Label: "nightly"},
		})
	}
	s.step(name, all...)
}

// step makes one call of a session that ends with the test.
func (s *site) step(name string, requests ...protocol.Request) {
	s.t.Helper()
	raw := opened.Session(s.t, s.engine, name, engine.Client{Host: "h", PID: 1, Label: "w"})
	_, err := raw.Step(s.t.Context(), protocol.Call{Number: 1, Requests: requests})
	expect.OK(s.t, err)
}
