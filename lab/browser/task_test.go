package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sema"
	"sema/internal/fixture/expect"
)

// slash is the key / as one event, whose text the page can suppress. chromedp.KeyEvent would send the text as a second event.
var slash = command(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/", WindowsVirtualKeyCode: 191})

// hand is an operator with a mouse or a keyboard, whose actions are counted: to go to a control and use it is one, to
// type a value and confirm it another.
type hand struct {
	*tab
	mouse   bool
	actions int
	keys    int // to reach controls
}

// use goes to a link that begins with this text and uses it.
func (h *hand) use(text string) {
	h.t.Helper()
	h.actions++
	if h.mouse {
		h.click("a", text)
		return
	}
	for range 40 {
		if eval[bool](h.tab, fmt.Sprintf(`document.activeElement.textContent.startsWith(%q)`, text)) {
			h.run(chromedp.KeyEvent(kb.Enter))
			return
		}
		key := kb.Tab
		if eval[bool](h.tab, fmt.Sprintf(`!!document.activeElement.closest("tbody tr")?.textContent.includes(%q)`, text)) {
			key = kb.ArrowRight // within a table
		} else if eval[bool](h.tab, fmt.Sprintf(`!!document.activeElement.closest("tbody")?.textContent.includes(%q)`, text)) {
			key = kb.ArrowDown
		}
		h.keys++
		h.run(chromedp.KeyEvent(key))
	}
	h.t.Fatalf("%q cannot be reached:\n%s", text, h.text())
}

// types types into what has the focus, and confirms.
func (h *hand) types(text string) {
	h.t.Helper()
	h.actions++
	h.run(chromedp.KeyEvent(text + kb.Enter))
}

// What on-call does takes few actions, with the mouse and with the keyboard.
func TestTasksTakeFewActions(t *testing.T) {
	for _, task := range []struct {
		what, path string
		most       int
		do         func(*hand)
	}{
		{"who blocks me", "semaphore?name=farm", 0, func(h *hand) {
			h.until(`/^licence is out: 1 of 1 held by simulation, 2,000 wait for it/.test(document.querySelector(".say").innerText)`)
		}},
		{"raise a limit", "semaphore?name=farm", 3, func(h *hand) {
			h.use("Change limit")
			h.until(asks + ` && document.activeElement.id === "ask-limit"`)
			h.types("15") // what was there is selected
			h.until(`document.querySelector(".toast")?.innerText.startsWith("Limit 6 → 15.") && document.querySelector(".facts").innerText.includes("of 15")`)
		}},
		{"raise a pool", "semaphore?name=farm", 3, func(h *hand) {
			h.use("Change licence")
			h.until(asks + ` && document.activeElement.id === "ask-amount"`)
			h.types("2")
			h.until(`document.querySelector(".toast")?.innerText.startsWith("licence 1 → 2.") && document.querySelector("[data-key=licence]").innerText.includes("2 of 2")`)
		}},
		{"revoke one", "semaphore?name=farm", 3, func(h *hand) {
			h.use("Revoke simulation")
			h.until(asks + ` && document.activeElement.innerText === "Revoke"`)
			if h.actions++; h.mouse {
				h.click("dialog//button", "Revoke")
			} else {
				h.run(chromedp.KeyEvent(kb.Enter))
			}
			h.until(`document.querySelector(".toast")?.innerText.includes("is revoked")`)
		}},
		{"find a waiter", "semaphore?name=farm", 2, func(h *hand) {
			if h.actions++; h.mouse {
				h.run(chromedp.Click(chromedp.CSS("#q")))
			} else {
				h.run(slash)
			}
			h.until(`document.activeElement.id === "q"`)
			h.types("batch-1234")
			h.until(`document.querySelector("#clients") && /^batch-1234 /.test(document.querySelector("#clients ~ table tbody tr").innerText)`)
			h.run(chromedp.Navigate(h.url + eval[string](h.tab, `document.querySelector("#clients ~ table tbody a").getAttribute("href")`))) // and its link leads to its row
			h.until(`document.querySelector(":target")?.innerText.includes("batch-1234 ")`)
		}},
	} {
		for _, mouse := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/mouse=%t", task.what, mouse), func(t *testing.T) {
				s := newSite(t, quick)
				s.farm(2000)
				h := &hand{tab: s.tab(), mouse: mouse}
				h.open(task.path)
				h.until(live)
				task.do(h)
				t.Logf("%d actions, and %d keys to reach what they are about", h.actions, h.keys)
				if h.actions > task.most || h.keys > 30 {
					t.Errorf("%d actions, want %d at most", h.actions, task.most)
				}
			})
		}
	}
}

// farm is a semaphore whose licence is out, with so many waiters for it.
func (s *site) farm(waiters int) {
	s.t.Helper()
	sem := s.semaphore("farm", 6, "simulation")
	expect.OK(s.t, s.operator("farm").Set(s.t.Context(), sema.Rule{Limit: 6, Pools: "gpu=4,licence=1"}))
	p, err := sem.Acquire(s.t.Context(), sema.Take("gpu", 1), sema.Take("licence", 1))
	expect.OK(s.t, err)
	s.t.Cleanup(func() { _ = p.Release() })
	var labels []string
	for i := range waiters {
		labels = append(labels, fmt.Sprintf("batch-%04d", i))
	}
	s.named("farm", 6, "licence=1", labels...)
}
