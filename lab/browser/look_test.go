package browser

import (
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"sema/access"
	"sema/dashboard"
	"sema/internal/fixture/expect"
)

//go:embed contrast.js
var contrast string

// views are pages of every kind.
func views(permit string) map[string]string {
	return map[string]string{
		"list": "", "sorted": "?sort=use", "filtered": "?q=github", "empty": "?q=nothing", "beyond": "?page=9",
		"semaphore": "semaphore?name=github-api", "paused": "semaphore?name=reports%2Fmonth+end", "nobody": "semaphore?name=nobody",
		"revoke": "act?do=revoke&name=github-api&permit=" + permit, "limit": "act?do=limit&name=github-api&limit=2",
		"refused": "act?do=limit&name=github-api&limit=0", "done": "semaphore?name=github-api&done=pause",
		"found": "?q=sync&state=waiting", "host": "host?host=" + hostname(), "hosts": "hosts", "login": "login", "missing": "nothing",
		"keys": "semaphore?name=tenants", "key": "act?do=set-key&name=tenants&key=acme", "unset-key": "act?do=unset-key&name=tenants&key=beta",
	}
}

func hostname() string {
	host, _ := os.Hostname() // as the engine names this process
	return host
}

func scheme(dark string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: dark}},
	})
}

func screen(width, height int64, mobile bool) chromedp.Action[chromedp.Void] {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile,
	})
}

func withLogin() dashboard.Options {
	o := quick
	o.Login = func(*http.Request, string) (access.Who, bool) { return access.Who{}, false }
	return o
}

func TestContrast(t *testing.T) {
	s := newSite(t, withLogin())
	p := s.town()
	for _, dark := range []string{"light", "dark"} {
		b := s.tab()
		b.run(scheme(dark))
		texts := 0
		for name, path := range views(p.ID()) {
			b.open(path)
			found := eval[struct {
				Texts int
				Poor  []string
			}](b, contrast)
			texts += found.Texts
			for _, poor := range found.Poor {
				t.Errorf("%s, %s: %s", name, dark, poor)
			}
		}
		if texts < 300 {
			t.Errorf("%s: only %d texts were looked at", dark, texts)
		}
		forgive(b)
	}
}

// forgive passes over what a browser says of pages with a status of 400 and
// above, which are among the views.
func forgive(b *tab) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		if !strings.Contains(p, "the server responded with a status of 40") {
			b.t.Errorf("the browser says: %s", p)
		}
	}
	b.problems = nil
}

// A contrast check that finds nothing is checked itself.
func TestContrastIsFound(t *testing.T) {
	s := newSite(t, quick)
	b := s.tab()
	b.open("hosts")
	b.js(`document.querySelector(".say").attributeStyleMap.set("color", "rgb(150, 150, 150)")`)
	if found := eval[struct{ Poor []string }](b, contrast); len(found.Poor) != 1 {
		t.Errorf("%q", found.Poor)
	}
}

// As assistive technology has it, every control, table, picture and landmark
// has a name; and ids are unique. TestAxe judges headings, title and language.
func TestNames(t *testing.T) {
	s := newSite(t, withLogin())
	p := s.town()
	b := s.tab()
	roles := map[string]int{}
	for name, path := range views(p.ID()) {
		b.open(path)
		tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		expect.OK(t, err)
		for _, n := range tree.Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role, label := text(n.Role), text(n.Name)
			roles[role]++
			switch role {
			case "button", "link", "textbox", "searchbox", "spinbutton", "img", "image", "heading", "table", "columnheader", "rowheader", "navigation", "region":
				if strings.TrimSpace(label) == "" {
					t.Errorf("%s: a %s has no name", name, role)
				}
			}
		}
		problems := eval[[]string](b, `(() => {
			const found = [];
			const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
			for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push("two of id " + id);
			for (const e of document.querySelectorAll("[style], style, script:not([src])")) found.push("inline: " + e.outerHTML);
			return found;
		})()`)
		for _, problem := range problems {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for _, role := range []string{"button", "link", "searchbox", "spinbutton", "textbox", "heading", "table", "row", "cell", "columnheader", "main", "banner", "navigation"} {
		if roles[role] == 0 {
			t.Errorf("no %s was looked at: %v", role, roles)
		}
	}
	forgive(b)
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

func TestANarrowScreenDoesNotScrollSideways(t *testing.T) {
	s := newSite(t, withLogin())
	p := s.town()
	s.acquire(s.semaphore(strings.Repeat("a-very-long-name/", 14), 3, strings.Repeat("nobreak", 30)), 1)
	s.acquire(s.semaphore(strings.Repeat("W", 250), 2147483647, "job"), 2147483647)
	b := s.tab()
	all := views(p.ID())
	all["long"] = "semaphore?name=" + strings.Repeat("a-very-long-name/", 14)
	s.ask("keys", 9, 1, strings.Repeat("W", 250), strings.Repeat("W", 250), strings.Repeat("wide key ", 25))
	all["wide keys"] = "semaphore?name=keys"
	all["wide key"] = "act?do=set-key&name=keys&key=" + strings.Repeat("W", 250)
	all["wide"] = "semaphore?name=" + strings.Repeat("W", 250)
	for _, width := range []int64{320, 390, 721, 1280} {
		b.run(screen(width, 740, width < 700))
		for name, path := range all {
			b.open(path)
			if over := eval[int](b, fmt.Sprintf(`document.scrollingElement.scrollWidth - %d`, width)); over > 0 {
				t.Errorf("%s at %d: %d pixels too wide: %s", name, width, over, eval[string](b,
					`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth && getComputedStyle(e).clipPath === "none").map((e) => e.outerHTML.slice(0, 80)).slice(0, 3).join(" | ")`))
			}
		}
		if width == 390 {
			b.open("semaphore?name=github-api")
			if small := eval[[]string](b, `[...document.querySelectorAll("button, input, .button")].filter((e) => e.offsetParent && (e.offsetHeight < 40)).map((e) => e.outerHTML)`); len(small) > 0 {
				t.Errorf("too small for a finger: %q", small)
			}
		}
	}
	forgive(b)
}

// The docs' pictures, written where SEMA_PICTURES says: make pictures. They show the end of
// an hour, at which the clock of the dashboard stands still.
func TestPictures(t *testing.T) {
	addresses, taken := make(chan string), make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		defer close(addresses)
		synctest.Test(t, func(t *testing.T) {
			s := anHour(t)
			addresses <- s.server.URL + "/sema/"
			<-taken
		})
	})
	defer over.Wait()
	defer close(taken)
	checker := axe(t)
	address, ok := <-addresses
	if !ok {
		return // the hour has failed, and said so
	}
	for _, c := range []struct {
		file, path, scheme string
		width, height      int64 // 0: the whole page
	}{
		{"dashboard-list-light.png", "", "light", 1280, 0},
		{"dashboard-list-dark.png", "", "dark", 1280, 0},
		{"dashboard-light.png", "semaphore?name=github-api", "light", 1280, 0},
		{"dashboard-dark.png", "semaphore?name=github-api", "dark", 1280, 0},
		{"dashboard-keys-light.png", "semaphore?name=tenants", "light", 1280, 0},
		{"dashboard-keys-dark.png", "semaphore?name=tenants", "dark", 1280, 0},
		{"dashboard-pools-light.png", "semaphore?name=ci%2Fgpu-farm", "light", 1280, 0},
		{"dashboard-pools-dark.png", "semaphore?name=ci%2Fgpu-farm", "dark", 1280, 0},
		{"dashboard-phone.png", "semaphore?name=github-api", "light", 390, 0},
	} {
		t.Run(c.file, func(t *testing.T) { // its tab is closed before the dashboard is
			b := newTab(t, address)
			b.run(scheme(c.scheme), screen(c.width, c.height, c.width < 700))
			b.open(c.path)
			b.until(`document.querySelector("#status").textContent === "Live"`)
			if n := eval[int](b, `document.querySelectorAll("svg.chart, svg.spark").length`); n < 2 {
				t.Errorf("%d pictures", n)
			}
			for _, v := range violations(b, checker) { // here are charts
				t.Error(v)
			}
			shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: new(c.height == 0)})
			expect.OK(t, err)
			if n := len(shot.Data); n < 5_000 || n > 350_000 {
				t.Errorf("%s has %d bytes", c.file, n)
			}
			if dir := os.Getenv("SEMA_PICTURES"); dir != "" {
				expect.OK(t, os.WriteFile(filepath.Join(dir, c.file), shot.Data, 0o644))
			}
		})
	}
}
