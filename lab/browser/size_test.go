package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// uuid is an id as the clients for Python and JavaScript make them.
func uuid(n int) string { return fmt.Sprintf("018f4e5a-7c1d-7b3e-9f20-%012x", n*2654435761) }

// crowd fills a semaphore with callers as they come from those clients, through a server.
func (s *site) crowd(name string, limit, callers int, keyed bool) {
	s.t.Helper()
	raw, err := s.engine.Open(name, engine.Client{}, func(protocol.Notification) {})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = raw.Close() })
	call := protocol.Call{Number: 1}
	for i := range callers {
		r := protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Client: "k3f9zq81wd5x.7", Number: uint64(1234567 + i), Weight: 1}, Limit: limit, Lease: time.Hour, Ticket: time.Hour, Wait: true,
			Who: &engine.Client{Host: "ip-10-0-12-34.eu-central-1.compute.internal", PID: 1234567, Caller: uuid(i), Label: "nightly import of all that the vendors sent during the day, and of what they sent again"},
		}
		if keyed {
			r.Key, r.Caps = engine.Key(uuid(i%60)), engine.Caps{5, 2}
			if i%2 == 0 { // below another
				r.Key += engine.Key(engine.KeySeparator + uuid(60+i%60))
			}
		}
		if i == 0 {
			r.Who.Label = strings.Repeat("nobreak", 30)
		}
		call.Requests = append(call.Requests, r)
	}
	if _, err := raw.Step(s.t.Context(), call); err != nil {
		s.t.Fatal(err)
	}
}

// first is the beginning of a list, for messages.
func first(n int, list []string) []string { return list[:min(n, len(list))] }

const longName = "reports/of-all-that-the-vendors-sent/2026-11-24/018f4e5a-7c1d-7b3e-9f20-000000000001/retries"

// Nothing is wider than the screen, and no action is out of sight or broken within a word,
// with the ids of our own clients.
func TestIdsOfOurClientsFitTheScreen(t *testing.T) {
	s := newSite(t, quick)
	s.crowd("plain", 120, 300, false)
	s.crowd("keyed", 120, 300, true)
	s.crowd(longName, 120, 300, true)
	b := s.tab()
	for _, width := range []int64{1280, 1024, 390} {
		b.run(screen(width, 900, width < 700))
		for _, path := range []string{
			"semaphore?name=plain", "semaphore?name=keyed", "semaphore?name=" + longName, "", "?q=nightly", "hosts",
			"host?host=ip-10-0-12-34.eu-central-1.compute.internal", "act?do=set-key&name=keyed&key=" + uuid(1),
		} {
			b.open(path)
			b.js(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`)
			if over := eval[int](b, fmt.Sprintf(`document.documentElement.scrollWidth - %d`, width)); over > 0 {
				t.Errorf("%q at %d: %d pixels too wide: %s", path, width, over, eval[string](b,
					`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && getComputedStyle(e).clipPath === "none").map((e) => e.outerHTML.slice(0, 80)).slice(0, 3).join(" | ")`))
			}
			for _, bad := range first(3, eval[[]string](b, `[...document.querySelectorAll("[data-label=Change] a, .button, button")].filter((e) => e.offsetParent).filter((e) => {
				const text = [...e.childNodes].find((n) => n.nodeType === 3 && n.data.trim());
				if (!text) return false;
				const r = document.createRange();
				r.selectNodeContents(text);
				const lines = new Set([...r.getClientRects()].map((r) => Math.round(r.top)));
				const box = e.getBoundingClientRect();
				return box.left < 0 || box.right > innerWidth || lines.size > 1 && !text.data.trim().includes(" ");
			}).map((e) => e.outerHTML.slice(0, 200))`)) {
				t.Errorf("%q at %d: out of sight, or broken: %s", path, width, bad)
			}
		}
	}
}

// An id is shown short. The whole one is its title, and what its button copies.
func TestIdsAreShort(t *testing.T) {
	s := newSite(t, quick)
	s.crowd("keyed", 1, 2, true)
	b := s.tab()
	b.run(screen(1280, 900, false))
	b.open("semaphore?name=keyed")
	b.until(live)
	for whole, short := range map[string]string{uuid(0): "018f4e5a…00000000", uuid(1): "018f4e5a…9e3779b1", "k3f9zq81wd5x.7-1234567-1": "k3f9zq81…234567-1"} {
		got := eval[[]string](b, fmt.Sprintf(`[...new Set([...document.querySelectorAll('[title=%q]')].map((e) => e.textContent))]`, whole))
		if len(got) == 0 || slices.ContainsFunc(got, func(text string) bool { return strings.TrimPrefix(text, "for ") != short }) {
			t.Errorf("%s is shown as %q, not as %s", whole, got, short)
		}
		if n := eval[int](b, fmt.Sprintf(`document.querySelectorAll('button[data-copy=%q]').length`, whole)); n == 0 {
			t.Errorf("nothing copies %s", whole)
		}
	}
	b.js(`navigator.clipboard.writeText = async (text) => { window.clip = text; }`)
	b.click("button", "Copy "+uuid(1))
	b.until(fmt.Sprintf(`window.clip === %q`, uuid(1)))
}

// A page of many holders, waiters and keys is a few screens high. It shows all when
// somebody wants that, and what is open stays so while the page changes.
func TestAPageOfManyIsAFewScreensHigh(t *testing.T) {
	s := newSite(t, quick)
	s.crowd("keyed", 120, 300, true)
	b := s.tab()
	for _, look := range []struct{ width, height, screens int64 }{{1280, 900, 4}, {390, 844, 6}} {
		b.run(screen(look.width, look.height, look.width < 700))
		b.open("semaphore?name=keyed")
		b.until(live)
		h := eval[int64](b, `document.documentElement.scrollHeight`)
		t.Logf("%d pixels wide: %d high", look.width, h)
		if h > look.screens*look.height {
			t.Errorf("at %d the page is %d pixels high", look.width, h)
		}
	}
	b.run(screen(1280, 900, false))
	seen := func(list string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("[data-list=%s] tr")].filter((r) => r.checkVisibility({ contentVisibilityAuto: true })).length`, list)
	}
	if n := eval[int](b, seen("holders")); n != 10 {
		t.Errorf("%d holders are seen at first", n)
	}
	b.click("label", "Show all holders")
	b.until(seen("holders") + ` === 50`)
	b.click("summary", "Who waits")
	b.until(`!document.querySelector("#who-waits").closest("details").open`)
	for _, part := range []string{"The last hour", "What happened"} {
		b.click("summary", part)
	}
	b.until(`document.querySelector("svg.chart").checkVisibility() && document.querySelector(".lately").checkVisibility()`)
	b.js(`window.row = document.querySelector("[data-list=holders] tr"); window.lately = document.querySelector(".lately")`)
	held := eval[string](b, `window.row.innerText`)
	if err := s.operator("keyed").Set(t.Context(), sema.Rule{Limit: 130}); err != nil {
		t.Fatal(err)
	}
	b.until(fmt.Sprintf(`window.row.innerText !== %q && !window.lately.isConnected`, held)) // the page has changed
	b.until(`document.querySelector("svg.chart").checkVisibility() && document.querySelector(".lately").checkVisibility() && !document.querySelector("#who-waits").closest("details").open`)
	b.until(seen("holders") + ` === 50`)
}

// Ids, tokens and hosts are in one piece on a desktop, and copied as a whole.
func TestIdsAreInOnePiece(t *testing.T) {
	s := newSite(t, quick)
	raw, err := s.engine.Open("x", engine.Client{}, func(protocol.Notification) {})
	if err != nil {
		t.Fatal(err)
	}
	host := "ip-10-0-12-34.eu-central-1.compute.internal"
	_, err = raw.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{
		Kind: protocol.Ask, ID: engine.ID{Client: "k3f9zq81wd5x.7", Number: 1234567, Weight: 1}, Limit: 1, Lease: 1e12, Ticket: 1e12,
		Who: &engine.Client{Host: host, PID: 1234567, Label: "nightly import of all", Caller: "job-17/attempt-3/part-00012"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	b := s.tab()
	b.run(screen(1280, 900, false))
	b.open("semaphore?name=x")
	if n := eval[int](b, `document.querySelectorAll(".whole").length`); n < 3 {
		t.Errorf("%d ids", n)
	}
	for _, broken := range eval[[]string](b, `[...document.querySelectorAll(".whole")].filter((e) => { const r = document.createRange(); r.selectNodeContents(e); return new Set([...r.getClientRects()].map((r) => Math.round(r.top / 8))).size > 1; }).map((e) => e.outerHTML)`) {
		t.Errorf("in more than one line: %s", broken)
	}
	if cut := eval[[]string](b, `[...document.querySelectorAll("[data-list=holders] .whole")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)`); len(cut) > 0 {
		t.Logf("shortened, with the whole as a title: %q", cut)
	}
	b.until(`document.querySelector("#status").textContent === "Live"`)             // nothing moves any more
	b.js(`navigator.clipboard.writeText = async (text) => { window.clip = text; }`) // reading it asks the user
	b.js(`document.addEventListener("click", () => (window.began = performance.now()), true)`)
	b.click("button", "Copy k3f9")
	b.until(`document.activeElement.textContent.startsWith("Copied")`)
	b.until(`window.clip === "k3f9zq81wd5x.7-1234567-1"`)
	// The row is made anew, as its times go on. What the button says stays for its two seconds.
	for {
		e := `[performance.now() - window.began, document.activeElement.textContent.startsWith("Copied") ? 1 : 0]`
		if got := eval[[]float64](b, e); got[0] > 1500 {
			break
		} else if got[1] == 0 {
			t.Fatalf("the button said so for %.0f ms", got[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.until(`document.activeElement.textContent.startsWith("Copy ")`)
	_ = raw.Close()
}
