package browser

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/protocol"
)

var quick = dashboard.Options{Allow: operator, Interval: 100 * time.Millisecond}

func TestAChangeIsSeenWithoutReload(t *testing.T) {
	s := newSite(t, quick)
	sem := s.semaphore("github-api", 3, "job")
	s.acquire(sem, 1)
	b := s.tab()
	b.open("")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	b.js(`window.marker = 1`)
	s.acquire(sem, 2)
	b.until(`document.querySelector("[data-key=github-api]").innerText.includes("3 of 3")`)
	s.wait("github-api", "second", 1)
	s.acquire(s.semaphore("a-new-one", 1, "job"), 1)
	b.until(`document.querySelector("tbody").firstElementChild.dataset.key === "a-new-one"`)
	b.click("a", "github-api")
	b.until(`document.querySelector("[data-list=waiters]").innerText.includes("3 of 3 held")`)
	b.until(`document.querySelector("#status").textContent === "Live"`)
	if eval[bool](b, `window.marker === 1`) {
		t.Error("the other page is the same document: the marker proves nothing")
	}
	b.js(`window.marker = 1`)
	b.click("summary", "What happened")
	if err := sem.Close(); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelector("[data-list=holders]").innerText.includes("second")`)
	b.until(`document.querySelectorAll("[data-list=waiters] tr").length === 0`)
	b.until(`document.querySelector("[data-part=lately]").innerText.includes("second holds a permit")`)
	if !eval[bool](b, `window.marker === 1`) {
		t.Error("the page was loaded again")
	}
}

func TestRevokeIsClicked(t *testing.T) {
	s := newSite(t, quick)
	p := s.acquire(s.semaphore("x", 3, "job <b>one</b>"), 1)
	b := s.tab()
	b.open("semaphore?name=x")
	b.click("a", "Revoke…")
	b.until(`document.querySelector("h1").innerText === "Revoke this permit?"`)
	b.click("button", "Revoke")
	b.until(`document.querySelector(".note.good").innerText.includes("is revoked")`)
	<-p.Context(t.Context()).Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.audit) != 1 || s.audit[0].Permit != p.ID() || s.audit[0].Result != "done" {
		t.Errorf("%+v", s.audit)
	}
}

func TestOperatorsSetAndUnsetALimitAndPause(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("x", 3, "job"), 1)
	b := s.tab()
	b.open("semaphore?name=x")
	b.run(chromedp.SetValue(chromedp.CSS("#limit"), "7"))
	for _, step := range []struct{ click, confirm, shows string }{
		{"Set the limit…", "Set the limit", "1 of 7"},
		{"Unset the limit…", "Unset the limit", "1 of 7"},
		{"Pause…", "Pause", "paused"},
		{"Unpause…", "Unpause", "Open"},
	} {
		b.click("*[self::a or self::button]", step.click)
		b.until(`document.querySelector("form[method=post][action=act]")`)
		b.click("button", step.confirm)
		b.until(`document.querySelector(".note.good")`)
		b.until(fmt.Sprintf(`document.querySelector("[data-part=facts]").innerText.includes(%q)`, step.shows))
	}
	if len(s.audit) != 4 {
		t.Errorf("%+v", s.audit)
	}
}

// The page after a change says the old and the new limit, and one click restores the old one.
func TestAChangeIsUndone(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("x", 12, "job"), 1)
	b := s.tab()
	b.open("semaphore?name=x")
	b.run(chromedp.SetValue(chromedp.CSS("#limit"), "4"))
	b.click("button", "Set the limit…")
	b.until(`document.querySelector("form[method=post][action=act]")`)
	b.click("button", "Set the limit")
	b.until(`document.querySelector(".note.good")`)
	if got := eval[string](b, `document.querySelector(".note.good").innerText.replace(/\s+/g, " ")`); got != "Limit 12 → 4. Undo" {
		t.Errorf("it says %q", got)
	}
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("1 of 4")`)
	b.click("button", "Undo")
	b.until(`document.querySelector(".note.good").innerText.startsWith("Limit 4 → 12.")`)
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("1 of 12") && !document.body.innerText.includes("set by an operator")`)
}

// live says that a page is whole, and its script runs.
const live = `document.querySelector("#status").textContent === "Live"`

const keysSeen = `document.querySelector("[data-list=keys]").offsetParent !== null`

// Keys that come while a semaphore's page is open are seen there, and where each stands
// changes without reload.
func TestKeysAreSeenWithoutReload(t *testing.T) {
	s := newSite(t, quick)
	first := s.ask("x", 3, 0, "")
	b := s.tab()
	b.open("semaphore?name=x")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 1`)
	if eval[bool](b, keysSeen) || eval[bool](b, `document.body.innerText.includes("Key")`) {
		t.Errorf("a page without keys:\n%s", b.text())
	}
	b.js(`window.marker = 1`)
	first(0)
	if err := s.operator("x").Set(t.Context(), sema.Rule{Limit: 3, Caps: sema.Caps{2}}); err != nil {
		t.Fatal(err)
	}
	release := s.ask("x", 3, 2, "acme", "acme", "acme", "acme", "beta", "beta")
	b.until(keysSeen)
	rows := `[...document.querySelectorAll("[data-list=keys] tr")].map((r) => r.innerText.replace(/\s+/g, " ")).join("; ")`
	b.until(rows + `.startsWith("acme 2 acme holds 2 of its 2")`)
	b.until(rows + `.includes("; beta 1 3 of 3 held")`)
	b.until(`document.querySelector("[data-list=waiters]").innerText.includes("behind 1 other of acme")`)
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("2: 1 in turn, 1 at their caps")`)
	release(4) // the only one that beta holds
	b.until(rows + `.includes("; beta 0 – – 1")`)
	if !eval[bool](b, `window.marker === 1`) {
		t.Error("the page was loaded again")
	}
}

func TestOperatorsSetWhatAKeyMayHold(t *testing.T) {
	s := newSite(t, quick)
	s.ask("x", 9, 2, "acme <b>", "acme <b>", "acme <b>")
	b := s.tab()
	b.open("semaphore?name=x")
	b.until(`document.querySelector("[data-list=waiters]").innerText.includes("acme <b> holds 2 of its 2")`)
	b.until(live)
	b.click("a", "Set…")
	b.until(`document.querySelector("h1").innerText === "Set the cap and the share of this key?"`)
	b.run(chromedp.SetValue(chromedp.CSS("#cap"), "3"))
	b.click("button", "Set cap and share")
	b.until(`document.querySelector(".note.good")`)
	b.until(`document.querySelector("[data-list=keys]").innerText.includes("of its own")`)
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 3`) // it was served at once
	b.until(live)
	b.click("a", "Unset…")
	b.until(`document.querySelector("h1").innerText === "Unset the cap and the share of this key?"`)
	b.click("button", "Unset cap and share")
	b.until(`document.querySelector(".note.good")`)
	b.until(live)
	b.run(chromedp.SetValue(chromedp.CSS("#key"), "newcomer"))
	b.click("button", "Set cap and share…")
	b.until(`document.querySelector("#share")`)
	b.run(chromedp.SetValue(chromedp.CSS("#share"), "300"))
	b.click("button", "Set cap and share")
	b.until(`document.querySelector("[data-list=keys]").innerText.includes("newcomer")`)
	b.until(live)
	b.run(chromedp.SetValue(chromedp.CSS("#key"), "newcomer/a%2Fb"))
	b.click("button", "Set cap and share…")
	b.until(`document.querySelector("#cap")`)
	b.run(chromedp.SetValue(chromedp.CSS("#cap"), "2"))
	b.click("button", "Set cap and share")
	b.until(`document.querySelector("[data-list=keys] .level2").innerText.startsWith("newcomer/a%2Fb")`)
	b.until(live)
	b.run(chromedp.SetValue(chromedp.CSS("#caps"), "4,2"))
	b.click("button", "Set the limit…")
	b.until(`document.querySelector("h1").innerText === "Set the limit to 9, with caps 4,2?"`)
	b.click("button", "Set the limit")
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("Caps of keys\n4,2")`)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, want := range []string{"set-key acme <b> 3 0", "unset-key acme <b> 0 0", "set-key newcomer 0 300", "set-key newcomer/a%2Fb 2 0", "limit  0 0"} {
		if i >= len(s.audit) || fmt.Sprintf("%s %s %d %d", s.audit[i].What, s.audit[i].Key, s.audit[i].Cap, s.audit[i].Share) != want {
			t.Errorf("%d: %+v, want %q", i, s.audit, want)
		}
	}
}

// What does not change stays the very same element: a click that began on it
// is not lost.
func TestLinksStayWhileThePageChanges(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("x", 3, "job"), 1)
	b := s.tab()
	b.run(chromedp.Navigate(b.url + "semaphore?name=x"))
	b.js(`window.links = [...document.querySelectorAll("main a")]`)
	if n := eval[int](b, `links.length`); n < 4 {
		t.Fatalf("%d links: %s", n, b.text())
	}
	held := eval[string](b, `document.querySelector("[data-label='Held for']").innerText`)
	b.until(fmt.Sprintf(`document.querySelector("[data-label='Held for']").innerText !== %q`, held))
	b.until(`document.querySelector("#status").textContent === "Live"`)
	if !eval[bool](b, `links.every((link) => link.isConnected)`) {
		t.Error("a link was put in anew")
	}
}

// Rows come and go and change under the keyboard's focus.
func TestTheFocusStaysWhereItIs(t *testing.T) {
	s := newSite(t, quick)
	sem := s.semaphore("x", 9, "job")
	first, second := s.acquire(sem, 1), s.acquire(sem, 1)
	b := s.tab()
	b.open("semaphore?name=x")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	b.js(fmt.Sprintf(`document.querySelector('[data-key="%s"] a').focus()`, second.ID()))
	before := eval[string](b, `document.activeElement.closest("tr").innerText`)
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 1`)
	b.until(fmt.Sprintf(`document.querySelector("[data-list=holders] tr").innerText !== %q`, before))
	if !eval[bool](b, fmt.Sprintf(`document.activeElement.matches('[data-key="%s"] a')`, second.ID())) {
		t.Errorf("the focus is on %s", eval[string](b, `document.activeElement.outerHTML`))
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 0`)
	if got := eval[string](b, `document.activeElement.id`); got != "who-holds" {
		t.Errorf("after the row has gone the focus is on %q", got)
	}
	// With updates paused, nothing changes any more.
	b.click("button", "Pause updates")
	s.acquire(sem, 1)
	time.Sleep(3 * quick.Interval) // nothing to wait for: nothing is to happen
	if !eval[bool](b, `document.querySelectorAll("[data-list=holders] tr").length === 0 && document.querySelector("#pause").getAttribute("aria-pressed") === "true"`) {
		t.Error("updates are not paused")
	}
	b.click("button", "Pause updates")
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 1`)
}

// All there is can be reached and done with the keyboard alone.
func TestKeyboard(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("x", 3, "job"), 1)
	b := s.tab()
	b.open("")
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, `document.activeElement.innerText`); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	reach := func(text string) {
		t.Helper()
		for range 60 {
			if eval[string](b, `(document.activeElement.innerText || document.activeElement.id).trim()`) == text {
				if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
					t.Errorf("%q does not show that it has the focus", text)
				}
				return
			}
			b.run(chromedp.KeyEvent(kb.Tab))
		}
		t.Fatalf("%q cannot be reached:\n%s", text, b.text())
	}
	reach("x")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("h1").innerText.startsWith("x")`) // and, once the script has run, a button
	reach("Pause…")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("h1").innerText === "Pause this semaphore?"`)
	reach("Pause")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("paused")`)
}

func TestWithoutJavaScript(t *testing.T) {
	s := newSite(t, dashboard.Options{Rows: 2, Login: func(_ *http.Request, token string) (access.Who, bool) {
		return operator(nil), token == "open sesame"[:4]
	}})
	p := s.acquire(s.semaphore("x", 3, "job"), 1)
	for i := range 4 {
		s.acquire(s.semaphore(fmt.Sprintf("y%d", i), 3, "job"), 1)
	}
	b := s.tab()
	b.run(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.open("")
	b.until(`document.querySelector("h1").innerText === "Log in"`)
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), "wrong"+kb.Enter))
	b.until(`document.querySelector("#wrong")`)
	b.expect(1, "401")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), "open"+kb.Enter))
	b.until(`document.querySelector("h1").innerText === "Semaphores"`)
	b.until(`document.body.innerText.includes("Reload the page")`)
	b.click("a", "Next")
	b.until(`document.querySelector("tbody").innerText.includes("y1")`)
	b.run(chromedp.SendKeys(chromedp.CSS("#q"), "X"+kb.Enter))
	b.until(`document.querySelectorAll("tbody tr").length === 1`)
	b.click("a", "x")
	b.until(`document.querySelector("h1").innerText.startsWith("x")`) // and, once the script has run, a button
	b.click("a", "Revoke…")
	b.until(`document.querySelector("form[action=act]")`)
	b.click("button", "Revoke")
	b.until(`document.querySelector(".note.good")`)
	<-p.Context(t.Context()).Done()
	b.click("button", "Log out")
	b.until(`document.querySelector("h1").innerText === "Log in"`)
	b.open("")
	b.until(`document.querySelector("h1").innerText === "Log in"`)
}

// The list has one box to search in, which takes words of any kind.
func TestTheListHasOneSearchBox(t *testing.T) {
	s := newSite(t, quick)
	s.crowd("plain", 1, 2, false)
	s.acquire(s.semaphore("other", 3, "job"), 1)
	b := s.tab()
	b.open("")
	if n := eval[int](b, `document.querySelectorAll("form[role=search] input:not([type=hidden])").length`); n != 1 {
		t.Fatalf("%d boxes", n)
	}
	b.until(`document.querySelectorAll("[data-list=rows] tr").length === 2`)
	b.run(chromedp.SetValue(chromedp.CSS("#q"), "IMPORT ip-10-0 "+uuid(1)[24:]))
	b.click("button", "Filter")
	b.until(`document.querySelectorAll("[data-list=rows] tr").length === 1 && document.querySelector("[data-list=rows]").innerText.includes("plain")`)
	b.until(`document.querySelectorAll("#clients ~ table tbody tr").length === 1`)
}

func TestThousandsDoNotFreezeThePage(t *testing.T) {
	s := newSite(t, quick)
	for i := range 10_000 {
		raw, err := s.engine.Open(fmt.Sprintf("s%05d", i), engine.Client{}, func(protocol.Notification) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: 3, Pin: true}}}); err != nil {
			t.Fatal(err)
		}
		_ = raw.Close()
	}
	raw, err := s.engine.Open("crowd", engine.Client{Host: "h", PID: 1, Label: "w"}, func(protocol.Notification) {})
	if err != nil {
		t.Fatal(err)
	}
	call := protocol.Call{Number: 1}
	for i := range 10_001 {
		call.Requests = append(call.Requests, protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Client: raw.Client(), Number: uint64(i + 1), Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Hour, Wait: true,
		})
	}
	if _, err := raw.Step(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := range 20_000 {
		keys = append(keys, fmt.Sprintf("tenant-%05d", i%10_000))
	}
	s.ask("tenants", 10_000, 1, keys...)
	b := s.tab()
	for path, shows := range map[string]string{
		"": "of 10002 semaphores", "?sort=waiting": "of 10002 semaphores", "semaphore?name=crowd": "of 10000 waiters", "semaphore?name=tenants": "1 to 100 of 10000 keys",
	} {
		b.open(path)
		b.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, shows))
		b.until(`document.querySelector("#status").textContent === "Live"`)
		if n := eval[int](b, `document.querySelectorAll("*").length`); n > 5000 {
			t.Errorf("%q has %d elements", path, n)
		}
		b.run(chromedp.MouseEvent(chromedp.MouseMoved, 100, 100)) // it answers
	}
}

// Times are local when somebody wants that, and stay so while the page changes.
func TestTimesAreLocalIfWanted(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("github-api", 3, "job"), 2)
	b := s.tab()
	b.run(command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}))
	b.open("semaphore?name=github-api")
	b.until(live)
	utc := eval[string](b, `document.querySelector(".charts .times time").textContent`)
	b.click("button", "Times: UTC")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	local := `(() => { const t = document.querySelector(".times time"); const d = new Date(t.dateTime); return t.textContent === String(d.getHours()).padStart(2, "0") + t.dateTime.slice(13, 14) + String(d.getMinutes()).padStart(2, "0") + t.dateTime.slice(16, 19); })()`
	b.until(local + fmt.Sprintf(` && document.querySelector(".times time").textContent !== %q`, utc))
	b.open("semaphore?name=github-api")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	b.until(local)
}

// A host that died is found, and one button revokes what it holds.
func TestAHostIsRevoked(t *testing.T) {
	s := newSite(t, quick)
	p := s.acquire(s.semaphore("x", 3, "job"), 1)
	q := s.acquire(s.semaphore("y", 3, "job"), 2)
	b := s.tab()
	b.open("semaphore?name=x")
	b.click("a", hostname())
	b.until(`document.querySelector("h1").innerText.startsWith("Host")`)
	b.click("button", "Revoke all 2 permits")
	b.until(`document.querySelector(".note.good").innerText.includes("2 permits revoked")`)
	<-p.Context(t.Context()).Done()
	<-q.Context(t.Context()).Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.audit) != 2 {
		t.Errorf("%+v", s.audit)
	}
}

// still is an engine that can stop answering.
type still struct {
	protocol.Engine
	frozen atomic.Bool
}

func (e *still) List(ctx context.Context) ([]string, error) {
	for e.frozen.Load() {
		select {
		case <-ctx.Done():
			return nil, &engine.Error{Op: "list", NotExecuted: true, Err: ctx.Err()}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return e.Engine.List(ctx)
}

// A page whose store stands still does not call itself live, and says since when its
// figures are, until the store answers again.
func TestAFrozenStoreIsNotLive(t *testing.T) {
	o := quick
	o.Engine = "Redis"
	e := &still{Engine: memengine.New()}
	s := newSiteOn(t, e, o)
	s.acquire(s.semaphore("x", 3, "job"), 1)
	b := s.tab()
	b.open("")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	e.frozen.Store(true)
	b.until(`document.querySelector("#status").textContent === "Not up to date"`)
	b.until(`/^Redis does not answer\. Figures are of \d\d:\d\d:\d\d UTC\.$/.test(document.querySelector("[data-part=notice]").innerText.trim())`)
	if n := eval[int](b, `document.querySelectorAll("[data-list=rows] tr").length`); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	e.frozen.Store(false)
	b.until(`document.querySelector("#status").textContent === "Live" && document.querySelector("[data-part=notice]").innerText.trim() === ""`)
}
