package classic

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// skewFigures is the outcome of the over-admission runs.
type skewFigures struct {
	Redis   string        `json:"redis"`   // version of the server
	Clients int           `json:"clients"` // each with a clock of its own
	Limit   int           `json:"limit"`   // 1 for Lock
	HoldMS  int           `json:"hold_ms"` // time held, about
	LeaseMS int           `json:"lease_ms"`
	RunMS   int           `json:"run_ms"` // virtual time per run
	Spread  []skewRun     `json:"spread"` // clocks evenly spread over skew
	Near    nearEndOfHold `json:"near"`
}

// skewRun is one run of one type at one skew.
type skewRun struct {
	Type     string `json:"type"`
	SkewMS   int    `json:"skew_ms"`
	Acquired int    `json:"acquired"` // permits that were granted
	Extra    int    `json:"extra"`    // of these, granted while the limit was held
	Most     int    `json:"most"`     // most holders at once
}

// nearEndOfHold is a second set of runs: permits are held for most of their
// lease and one clock is ahead of all others.
type nearEndOfHold struct {
	Clients int       `json:"clients"`
	Limit   int       `json:"limit"`
	HoldMS  int       `json:"hold_ms"`
	LeaseMS int       `json:"lease_ms"`
	RunMS   int       `json:"run_ms"`
	Runs    []skewRun `json:"runs"`
}

// roundTrips says how many round trips each operation of a type took.
type roundTrips struct {
	Type    string `json:"type"`
	Acquire int    `json:"acquire"`
	Refused int    `json:"refused"`           // an Acquire that found no permit
	Refresh int    `json:"refresh,omitempty"` // absent: no such operation
	Release int    `json:"release"`
}

const (
	skewFile       = "testdata/skew.json"
	roundTripsFile = "testdata/roundtrips.json"
	pageFile       = "../docs/data/classic.md"
	pictureFile    = "../docs/classic-skew.svg"
)

// TestPageIsUpToDate draws picture and tables again: what is committed must be
// what the committed figures say.
func TestPageIsUpToDate(t *testing.T) {
	if page, picture := drawn(t); page != read(t, pageFile) || picture != read(t, pictureFile) {
		t.Errorf("%s or %s is not what was measured; try: go test ./classic -run 'TestOverAdmission|TestRoundTrips' -update", pageFile, pictureFile)
	}
}

func TestPageWithoutAPlaceForATable(t *testing.T) {
	if _, err := fill("<!-- measured: a -->\n", map[string]string{"a": "x"}); err == nil {
		t.Error("filled a block that has no end")
	}
}

// publish makes figures those of the page.
func publish(t *testing.T, file string, figures any) {
	t.Helper()
	b, err := json.MarshalIndent(figures, "", "  ")
	expect.OK(t, err)
	write(t, file, string(b)+"\n")
	page, picture := drawn(t)
	write(t, pageFile, page)
	write(t, pictureFile, picture)
}

// drawn returns the page and the picture of the committed figures.
func drawn(t *testing.T) (page, picture string) {
	t.Helper()
	skew, trips := committed[skewFigures](t, skewFile), committed[[]roundTrips](t, roundTripsFile)
	page, err := fill(read(t, pageFile), map[string]string{
		"roundtrips": roundTripsTable(trips),
		"skew":       spread(skew),
		"near":       near(skew),
	})
	expect.OK(t, err)
	return page, draw(skew)
}

func committed[T any](t *testing.T, file string) (figures T) {
	t.Helper()
	expect.OK(t, json.Unmarshal([]byte(read(t, file)), &figures))
	return figures
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	expect.OK(t, err)
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	expect.OK(t, os.WriteFile(path, []byte(text), 0o644))
}

// fill replaces what stands between the marks of each block.
func fill(text string, blocks map[string]string) (string, error) {
	for name, block := range blocks {
		begin, end := "<!-- measured: "+name+" -->\n", "<!-- end: "+name+" -->\n"
		before, rest, ok1 := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			return "", fmt.Errorf("the page has no place for %q: %s… %s", name, begin, end)
		}
		text = before + begin + block + end + after
	}
	return text, nil
}

func roundTripsTable(all []roundTrips) string {
	var b strings.Builder
	b.WriteString("| round trips | acquire | acquire, refused | refresh | release |\n|---|---:|---:|---:|---:|\n")
	for _, r := range all {
		refresh := "–"
		if r.Refresh > 0 {
			refresh = fmt.Sprint(r.Refresh)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %d |\n", title(r.Type), r.Acquire, r.Refused, refresh, r.Release)
	}
	return b.String()
}

func spread(s skewFigures) string {
	return fmt.Sprintf(
		"%d clients, limit %d (Lock: 1), each permit held about %d ms of a lease of %d s, %d s of virtual time; Redis %s.\n"+
			"Extra permits of all that were granted, and the most holders at once:\n\n",
		s.Clients, s.Limit, s.HoldMS, s.LeaseMS/1000, s.RunMS/1000, s.Redis) + runs(s.Spread)
}

func near(s skewFigures) string {
	n := s.Near
	return fmt.Sprintf(
		"%d clients, limit %d, each permit held about %d ms of a lease of %d ms, %d s of virtual time;\n"+
			"one clock is ahead of all others by the skew:\n\n",
		n.Clients, n.Limit, n.HoldMS, n.LeaseMS, n.RunMS/1000) + runs(n.Runs)
}

// runs is a table with a row for each type and a column for each skew.
func runs(all []skewRun) string {
	var b strings.Builder
	b.WriteString("| skew |")
	line := "|---|"
	for _, r := range all {
		if r.Type == all[0].Type {
			fmt.Fprintf(&b, " %d ms |", r.SkewMS)
			line += "---:|"
		}
	}
	b.WriteString("\n" + line)
	last := ""
	for _, r := range all {
		if r.Type != last {
			fmt.Fprintf(&b, "\n| %s |", title(r.Type))
			last = r.Type
		}
		fmt.Fprintf(&b, " %d of %d, max %d |", r.Extra, r.Acquired, r.Most)
	}
	return b.String() + "\n"
}

// title is a variant's name as the page writes it.
func title(variant string) string {
	if name, ok := strings.CutSuffix(variant, " Lua"); ok {
		return "`" + name + "`, Lua"
	}
	return "`" + variant + "`"
}

// draw makes the picture: a group of bars for each type, a bar for each skew,
// its height the share of permits that were one too many.
func draw(s skewFigures) string {
	const (
		top, bottom, left, right = 70, 70, 56, 16
		barWidth, gap            = 22, 26
		height                   = 260 // of the plot
	)
	shades := []string{"#c6dbef", "#6baed6", "#2171b5", "#08306b"}

	var groups [][]skewRun
	scale := 10 // per cent at the top, in steps of ten
	for _, r := range s.Spread {
		if n := len(groups); n == 0 || groups[n-1][0].Type != r.Type {
			groups = append(groups, nil)
		}
		n := len(groups) - 1
		groups[n] = append(groups[n], r)
		for share(r) > float64(scale) {
			scale += 10
		}
	}
	group := 0.0
	if len(groups) > 0 {
		group = float64(len(groups[0])*barWidth + gap)
	}
	width := left + right + int(group)*len(groups)
	y := func(percent float64) float64 { return top + height*(1-percent/float64(scale)) }

	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`, width, top+height+bottom)
	p(`<title>Over-admission against clock skew</title>`)
	p(`<rect width="100%%" height="100%%" fill="#fff"/>`)
	p(`<text x="%d" y="22" font-size="15">Permits granted beyond the limit, per cent of all granted</text>`, left)
	for percent := 0; percent <= scale; percent += 10 {
		at := y(float64(percent))
		p(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, left, width-right, at, at)
		p(`<text x="%d" y="%.1f" text-anchor="end">%d %%</text>`, left-6, at+4, percent)
	}
	for g, runs := range groups {
		x := left + gap/2 + group*float64(g)
		most := 0
		for i, r := range runs {
			at := y(share(r))
			shade := shades[i%len(shades)]
			p(`<rect x="%.1f" y="%.1f" width="%d" height="%.1f" fill="%s"/>`, x, at, barWidth-3, top+height-at, shade)
			p(`<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10">%s</text>`, x+barWidth/2-1.5, at-4, label(share(r)))
			if g == 0 { // the key, above the plot
				kx := left + 135*i
				p(`<rect x="%d" y="36" width="12" height="12" fill="%s"/>`, kx, shade)
				p(`<text x="%d" y="46">%d ms of skew</text>`, kx+18, r.SkewMS)
			}
			x += barWidth
			most = max(most, r.Most)
		}
		limit := s.Limit
		if strings.HasPrefix(runs[0].Type, "Lock") && runs[0].Type != "Locked" {
			limit = 1
		}
		middle := left + group*(float64(g)+.5)
		p(`<text x="%.1f" y="%d" text-anchor="middle" font-weight="bold">%s</text>`, middle, top+height+20, runs[0].Type)
		p(`<text x="%.1f" y="%d" text-anchor="middle" font-size="11">at most %d of %d</text>`, middle, top+height+38, most, limit)
	}
	p(`<text x="%d" y="%d" font-size="11" fill="#666">%d clients, permits held %d ms of a lease of %d s; drawn by the tests of package classic</text>`,
		left, top+height+60, s.Clients, s.HoldMS, s.LeaseMS/1000)
	p(`</svg>`)
	return b.String()
}

func share(r skewRun) float64 {
	if r.Acquired == 0 {
		return 0
	}
	return 100 * float64(r.Extra) / float64(r.Acquired)
}

func label(percent float64) string {
	if percent == 0 {
		return "0"
	}
	return fmt.Sprintf("%.0f", percent)
}
