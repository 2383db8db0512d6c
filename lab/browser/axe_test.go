package browser

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"sema/internal/fixture/expect"
)

// axe is Deque's checker of accessibility, as npm has it.
func axe(t *testing.T) string {
	t.Helper()
	const file = "node_modules/axe-core/axe.min.js"
	if _, err := os.Stat(file); err != nil {
		if out, err := exec.CommandContext(t.Context(), "npm", "ci", "--silent", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	}
	text, err := os.ReadFile(file)
	expect.OK(t, err)
	return string(text)
}

// violations are what axe finds on a page.
func violations(b *tab, checker string) []string {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, runtime.Evaluate, runtime.EvaluateParams{Expression: checker})
		return err
	}))
	b.js(`window.found = null; axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) => { window.found = r; })`)
	b.until(`window.found`)
	return eval[[]string](b, `found.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(" | "))`)
}

// axe finds nothing on any page, light or dark, on a desktop or a phone: of the rules of
// WCAG 2.2 A and AA, and of its own best practices.
func TestAxe(t *testing.T) {
	s := newSite(t, withLogin())
	p := s.town()
	checker := axe(t)
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1280}, {"dark", 1280}, {"light", 390}, {"dark", 390}} {
		b := s.tab()
		b.run(scheme(look.scheme), screen(look.width, 900, look.width < 700))
		rules := 0
		for name, path := range views(p.ID()) {
			b.open(path)
			b.js(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`)
			for _, v := range violations(b, checker) {
				t.Errorf("%s, %s, %d: %s", name, look.scheme, look.width, v)
			}
			rules += eval[int](b, `found.passes.length`)
		}
		if rules < 300 {
			t.Errorf("only %d rules were applied and kept", rules)
		}
		forgive(b)
	}
}

// A checker that finds nothing is checked itself.
func TestAxeFinds(t *testing.T) {
	b := newSite(t, quick).tab()
	b.open("")
	b.js(`document.documentElement.removeAttribute("lang")`)
	if found := violations(b, axe(t)); len(found) != 1 {
		t.Errorf("%q", found)
	}
}
