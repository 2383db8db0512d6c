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
)

// TestPageIsUpToDate writes the tables again: what is committed must be
// what the committed figures say.
func TestPageIsUpToDate(t *testing.T) {
	if page(t) != read(t, pageFile) {
		t.Errorf("%s is not what was measured; try: go test ./classic -run 'TestOverAdmission|TestRoundTrips' -update", pageFile)
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
	write(t, pageFile, page(t))
}

// page is the page of the committed figures.
func page(t *testing.T) string {
	t.Helper()
	skew, trips := committed[skewFigures](t, skewFile), committed[[]roundTrips](t, roundTripsFile)
	filled, err := fill(read(t, pageFile), map[string]string{
		"roundtrips": roundTripsTable(trips),
		"skew":       spread(skew),
		"near":       near(skew),
	})
	expect.OK(t, err)
	return filled
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
