package browsertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/protocol"
)

// The figures under the pointer are those of the table, and times are local when somebody
// wants that; both stay so while the page changes.
func TestChartsSayWhatIsUnderThePointer(t *testing.T) {
	s := newSite(t, quick)
	s.acquire(s.semaphore("github-api", 3, "job"), 2)
	b := s.tab()
	b.run(command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}), screen(1280, 900, false))
	s.history(10)
	b.open("semaphore?name=github-api&span=10s")
	b.until(`document.querySelector("#status").textContent === "Live"`)
	b.js(`document.querySelector("svg.chart").scrollIntoView({ block: "center" })`)
	box := eval[[]float64](b, `(() => { const r = document.querySelector("svg.chart").getBoundingClientRect(); return [r.right - 3, r.top + r.height / 2]; })()`)
	b.run(chromedp.MouseEvent(chromedp.MouseMoved, box[0], box[1]))
	b.until(`document.querySelector("#hover").textContent.includes("Used 2, Limit 3, Waiting 0")`)
	before := eval[string](b, `document.querySelector("#hover").textContent`)
	b.until(fmt.Sprintf(`document.querySelector("#hover").textContent !== %q && document.querySelector("#hover").textContent.includes("Used 2")`, before))
	if x := eval[string](b, `document.querySelector("svg.chart .cursor").getAttribute("x1")`); x == "-9" {
		t.Error("no line is at the pointer")
	}
	b.run(chromedp.MouseEvent(chromedp.MouseMoved, 5, 5))
	b.until(`document.querySelector("#hover").textContent.startsWith("From")`)

	utc := eval[string](b, `document.querySelector(".charts .times time").textContent`)
	b.click("button", "Times: UTC")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	local := `(() => { const t = document.querySelector(".times time"); const d = new Date(t.dateTime); return t.textContent === String(d.getHours()).padStart(2, "0") + t.dateTime.slice(13, 14) + String(d.getMinutes()).padStart(2, "0") + t.dateTime.slice(16, 19); })()`
	b.until(local + fmt.Sprintf(` && document.querySelector(".times time").textContent !== %q`, utc))
	b.open("semaphore?name=github-api&span=10s")
	b.until(`document.querySelector("#times").textContent === "Times: local"`)
	b.until(local)
}

// A moment's link shows who held the semaphore then, and the table of figures has them
// without JavaScript.
func TestAMomentHasALink(t *testing.T) {
	s := newSite(t, quick)
	sem := s.semaphore("github-api", 3, "job")
	p := s.acquire(sem, 2)
	s.history(3)
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	b := s.tab()
	b.run(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}), screen(1280, 900, false))
	for { // the release is seen with the next look
		b.open("semaphore?name=github-api&span=15m")
		if eval[bool](b, `document.querySelector("[data-list=lanes]").innerText.includes("gave it back")`) {
			break
		}
		if b.ctx.Err() != nil {
			t.Fatal(b.text())
		}
	}
	b.click("a", eval[string](b, `document.querySelector(".lately a").innerText`))
	b.until(`location.search.includes("at=") && location.hash === "#history"`)
	b.until(`document.querySelector("svg.chart .moment") && document.querySelector("[data-list=lanes]").innerText.includes("gave it back")`)
	b.js(`document.querySelector("details:not(.part)").open = true`)
	if n := eval[int](b, `document.querySelector("table.figures").rows.length`); n < 2 {
		t.Errorf("%d rows of figures", n)
	}
	b.click("a", "Now")
	b.until(`!location.search.includes("at=")`)
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
	if n := eval[int](b, `document.querySelectorAll(".whole").length`); n < 4 {
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
