package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
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
	"sema/internal/fixture/expect"
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
	b.until(`document.querySelector("[data-key=a-new-one]")`)
	b.click("a", "github-api")
	b.until(`document.querySelector("[data-list=waiters]").innerText.includes("3 of 3 held")`)
	b.until(`document.querySelector("#status").textContent === "Live"`)
	if eval[bool](b, `window.marker === 1`) {
		t.Error("the other page is the same document: the marker proves nothing")
	}
	b.js(`window.marker = 1`)
	b.click("summary", "What happened")
	expect.OK(t, sem.Close())
	b.until(`document.querySelector("[data-list=holders]").innerText.includes("second")`)
	b.until(`document.querySelectorAll("[data-list=waiters] tr").length === 0`)
	b.until(`document.querySelector("[data-part=lately]").innerText.includes("second holds a permit")`)
	if !eval[bool](b, `window.marker === 1`) {
		t.Error("the page was loaded again")
	}
}

func TestOperatorsSetAndUnsetALimitAndPause(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("x", 3, "job"), 1)
	b := s.tab()
	b.open("semaphore?name=x")
	for _, step := range []struct{ click, confirm, shows string }{
		{"Change limit…", "Set", "Open: 1 of 7"},
		{"Unset the limit…", "Unset the limit", "Open: 1 of 7"},
		{"Pause…", "Pause", "Paused by olga"},
		{"Unpause…", "Unpause", "Open"},
	} {
		b.until(live)
		if step.confirm == "Unset the limit" {
			b.click("summary", "More")
		}
		b.click("a", step.click)
		b.until(asks)
		if step.confirm == "Set" {
			b.run(chromedp.SetValue(chromedp.CSS("#ask-limit"), "7"))
		}
		b.click("dialog//button", step.confirm)
		b.until(`!document.querySelector("dialog[open]") && document.querySelector(".toast")`)
		b.until(fmt.Sprintf(`document.querySelector("[data-part=say]").innerText.includes(%q)`, step.shows))
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
	b.until(live)
	b.click("a", "Change limit…")
	b.until(asks)
	b.run(chromedp.SetValue(chromedp.CSS("#ask-limit"), "4"))
	b.click("button", "Set")
	b.until(`document.querySelector(".toast")`)
	if got := eval[string](b, `document.querySelector(".toast").innerText.replace(/\s+/g, " ")`); got != "Limit 12 → 4. Undo" {
		t.Errorf("it says %q", got)
	}
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("olga, ")`)
	b.click("button", "Undo")
	b.until(`document.querySelector(".toast").innerText.startsWith("Limit 4 → 12.")`)
	b.until(`document.querySelector("[data-part=facts]").innerText.includes("the programs") && document.querySelector("[data-part=say]").innerText.includes("1 of 12")`)
}

// live says that a page is whole, and its script runs.
const live = `document.querySelector("#status").textContent === "Live"`

// asks says that a question is open.
const asks = `document.querySelector("dialog[open]")`

const keysSeen = `document.querySelector("[data-list=keys]").offsetParent !== null`

// Keys that come while a semaphore's page is open are seen there, and where each stands
// changes without reload.
func TestKeysAreSeenWithoutReload(t *testing.T) {
	s := newSite(t, quick)
	first := s.ask("x", 3, 0, "")
	b := s.tab()
	b.open("semaphore?name=x")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	b.until(`document.querySelectorAll("[data-list=holders] .r-hold").length === 1`)
	if eval[bool](b, keysSeen) || eval[bool](b, `document.body.innerText.includes("Key")`) {
		t.Errorf("a page without keys:\n%s", b.text())
	}
	b.js(`window.marker = 1`)
	first(0)
	expect.OK(t, s.operator("x").Set(t.Context(), sema.Rule{Limit: 3, Caps: sema.Caps{2}}))
	release := s.ask("x", 3, 2, "acme", "acme", "acme", "acme", "beta", "beta")
	b.until(keysSeen)
	rows := `[...document.querySelectorAll("[data-list=keys] tr")].map((r) => r.innerText.replace(/\s+/g, " ")).join("; ")`
	b.until(rows + `.startsWith("acme 2 of 2 2 0s 100 keys before acme: 1; acme holds 2 of its 2")`)
	b.until(`/; beta 1 of 2 1 .*3 of 3 held/.test(` + rows + `)`)
	b.until(`document.querySelector("[data-list=waiters]").innerText.includes("behind 1 other of acme")`)
	b.until(`document.querySelector("[data-part=say]").innerText.includes("2 wait for acme, which holds 2 of its 2.")`)
	release(4) // the only one that beta holds
	b.until(rows + `.includes("; beta 1 of 2 100 Change")`)
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
	change := func(link, confirm string, fields ...string) {
		t.Helper()
		b.until(live)
		if link == "Set cap" {
			b.click("summary", "More")
		}
		b.click("a", link)
		b.until(asks)
		for i := 0; i < len(fields); i += 2 {
			b.run(chromedp.SetValue(chromedp.CSS("#ask-"+fields[i]), fields[i+1]))
		}
		if confirm == "Unset cap and share" {
			b.click("a", "Unset its cap")
			b.until(asks + `.innerText.startsWith("Unset the cap")`)
		}
		b.click("dialog//button", confirm)
		b.until(`!document.querySelector("dialog[open]") && document.querySelector(".toast")`)
	}
	keys := `document.querySelector("[data-list=keys]").innerText`
	change("Change acme", "Set cap and share", "cap", "3")
	b.until(keys + `.includes("acme <b> set")`)
	b.until(`document.querySelectorAll("[data-list=holders] .r-hold").length === 3`) // it was served at once
	change("Change acme", "Unset cap and share")
	b.until(`!` + keys + `.includes("set")`)
	change("Set cap", "Set cap and share", "key", "newcomer", "share", "300")
	b.until(keys + `.includes("newcomer set")`)
	change("Set cap", "Set cap and share", "key", "newcomer/a%2Fb", "cap", "2")
	b.until(`document.querySelector("[data-list=keys] .level2").innerText.startsWith("a/b")`)
	change("Change the caps", "Set", "caps", "4,2")
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
	b.until(live)
	b.js(`window.links = [...document.querySelectorAll("main a")]`)
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
	b.js(fmt.Sprintf(`document.querySelector('[data-key="%s"] .act a').focus()`, second.ID()))
	before := eval[string](b, `document.activeElement.closest("tr").innerText`)
	expect.OK(t, first.Release())
	b.until(`document.querySelectorAll("[data-list=holders] .r-hold").length === 1`)
	b.until(fmt.Sprintf(`document.querySelector("[data-list=holders] tr").innerText !== %q`, before))
	if !eval[bool](b, fmt.Sprintf(`document.activeElement.matches('[data-key="%s"] .act a')`, second.ID())) {
		t.Errorf("the focus is on %s", eval[string](b, `document.activeElement.outerHTML`))
	}
	expect.OK(t, second.Release())
	b.until(`document.querySelectorAll("[data-list=holders] tr").length === 0`)
	if got := eval[string](b, `document.activeElement.id`); got != "holders" {
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
	b.until(`document.querySelectorAll("[data-list=holders] .r-hold").length === 1`)
}

// All there is can be reached and done with the keyboard alone. A table is one stop of the Tab key: arrows move in it.
func TestKeyboard(t *testing.T) {
	s := newSite(t, quick)
	sem := s.semaphore("x", 30, "job")
	for range 20 {
		s.acquire(sem, 1)
	}
	s.acquire(s.semaphore("y", 3, "job"), 1)
	b := s.tab()
	b.open("")
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, `document.activeElement.innerText`); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	at := func(text string) bool {
		return strings.HasPrefix(eval[string](b, `(document.activeElement.innerText || document.activeElement.id).trim()`), text)
	}
	press := func(key, text string, most int) {
		t.Helper()
		for range most {
			if at(text) {
				if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
					t.Errorf("%q does not show that it has the focus", text)
				}
				return
			}
			b.run(chromedp.KeyEvent(key))
		}
		t.Fatalf("%q cannot be reached:\n%s", text, b.text())
	}
	press(kb.Tab, "x", 30)
	press(kb.ArrowDown, "y", 2)
	press(kb.ArrowUp, "x", 2)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("h1").innerText === "x" && ` + live)
	stops := eval[int](b, `[...document.querySelectorAll("a, button, input, summary")].filter((e) => e.checkVisibility() && e.tabIndex >= 0).length`)
	if stops > 25 {
		t.Errorf("%d stops of the Tab key on a page with 20 rows", stops)
	}
	press(kb.Tab, "Pause…", 30)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(asks + ` && document.activeElement.innerText === "Pause"`)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until(`!` + asks + ` && document.activeElement.innerText === "Pause…"`)
	press(kb.Tab, "job", 30)
	b.run(chromedp.KeyEvent(kb.Enter)) // the row opens, and stays open while its times go on
	b.until(`document.querySelector("[data-list=holders] .detail").checkVisibility()`)
	held := eval[string](b, `document.querySelector(".held").innerText`)
	b.until(fmt.Sprintf(`document.querySelector(".held").innerText !== %q && document.querySelector("[data-list=holders] .detail").checkVisibility()`, held))
	press(kb.ArrowDown, "Copy", 2)
	press(kb.ArrowUp, "job", 2)
	press(kb.End, "job", 1)
	press(kb.ArrowRight, "Revoke", 4)
	b.run(slash)
	b.until(`document.activeElement.id === "q"`)
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
	b.until(`document.querySelectorAll("[data-list=rows] tr").length === 1`)
	b.click("th/a", "x")
	b.until(`document.querySelector("h1").innerText.startsWith("x")`) // and, once the script has run, a button
	b.click("a", "Revoke")
	b.until(`document.querySelector("form[action=act]")`)
	b.click("button", "Revoke")
	b.until(`document.querySelector(".toast")`)
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
	b.run(chromedp.SendKeys(chromedp.CSS("#q"), "IMPORT ip-10-0 "+uuid(1)[24:]+kb.Enter))
	b.until(`document.querySelectorAll("[data-list=rows] tr").length === 1 && document.querySelector("[data-list=rows]").innerText.includes("plain")`)
	b.until(`document.querySelectorAll("#clients ~ table tbody tr").length === 1`)
}

func TestThousandsDoNotFreezeThePage(t *testing.T) {
	s := newSite(t, quick)
	for i := range 10_000 {
		s.step(fmt.Sprintf("s%05d", i), protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pin: true})
	}
	s.ask("crowd", 1, 0, make([]string, 10_001)...)
	var keys []string
	for i := range 20_000 {
		keys = append(keys, fmt.Sprintf("tenant-%05d", i%10_000))
	}
	s.ask("tenants", 10_000, 1, keys...)
	b := s.tab()
	for path, shows := range map[string]string{
		"": "of 10,002 semaphores", "?sort=waiting": "of 10,002 semaphores", "semaphore?name=crowd": "of 10,000 waiters", "semaphore?name=tenants": "1 to 20 of 10,000 keys",
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
	b.click("summary", "What happened")
	utc := `document.querySelector(".lately time").textContent === document.querySelector(".lately time").dateTime.slice(11, 19) + " UTC"`
	local := `(() => { const t = document.querySelector(".lately time"); const d = new Date(t.dateTime); return t.textContent === String(d.getHours()).padStart(2, "0") + ":" + String(d.getMinutes()).padStart(2, "0") + t.dateTime.slice(16, 19); })()`
	b.until(utc)
	b.click("button", "Times: UTC")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	b.until(local)
	b.open("semaphore?name=github-api")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	b.until(local)
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
	b.until(`/^Redis does not answer\. Figures are of \d\d:\d\d:\d\d UTC\./.test(document.querySelector("#notice").innerText)`)
	if n := eval[int](b, `document.querySelectorAll("[data-list=rows] tr").length`); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	e.frozen.Store(false)
	b.until(`document.querySelector("#status").textContent === "Live" && document.querySelector("#notice").innerText === ""`)
}
