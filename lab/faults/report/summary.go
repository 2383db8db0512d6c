package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"sema/internal/fixture/history"
	"sema/lab/faults"
)

// summary is what the page says.
type summary struct {
	Grounds  []*groundSummary
	Planted  []*plantedRow
	Excuses  []excuseRow
	Versions []string
	Hours    string
	Rounds   int
	Grants   string
	Void     int
	Breaches []breachRow // that nothing excuses
	Faults   int         // occurrences
}

// groundSummary is a table.
type groundSummary struct {
	Kind        string
	Hours       string
	Rows        []*row
	First, Last uint64 // seeds
	total
}

// total is what rounds come to.
type total struct {
	took       time.Duration
	Rounds     int
	Void       int
	grants     int
	Violations int
	Excused    int
	times      int // faults happened
	recoveries []time.Duration
}

func (t *total) add(r *faults.Result) {
	if r.Void != "" {
		t.Void++
		return
	}
	t.Rounds++
	t.took += r.Took
	t.grants += r.Load.Grants
	t.Violations += r.Violations
	t.Excused += r.Excused
	t.times += len(r.Faults)
	for _, x := range r.Recoveries {
		t.recoveries = append(t.recoveries, x.Took)
	}
}

// row is a fault on a ground.
type row struct {
	Fault  string
	seed   uint64        // of the round worth replaying
	worst  time.Duration // its longest recovery
	broken bool          // it has a violation
	total
}

// add takes in a round, and chooses the one to be played again: the first that
// broke a promise, else the one that took longest to recover.
func (w *row) add(r *faults.Result) {
	w.total.add(r)
	var worst time.Duration
	for _, x := range r.Recoveries {
		worst = max(worst, x.Took)
	}
	broken := r.Violations > 0
	if w.Rounds == 1 || broken && !w.broken || broken == w.broken && worst > w.worst {
		w.seed, w.worst, w.broken = r.Seed, worst, broken
	}
}

// plantedRow is a planted bug.
type plantedRow struct {
	Name, Breaks, Fault, Ground string
	Tried                       []string // seeds
	Caught                      bool
}

// excuseRow counts what a fault excuses.
type excuseRow struct {
	Fault, Promise string
	Rounds         int
}

type breachRow struct{ Ground, Promise, Fault, Command string }

func summarize(all []faults.Result) *summary {
	s := &summary{}
	grounds, planted := map[string]*groundSummary{}, map[string]*plantedRow{}
	excuses := map[[2]string]int{}
	var whole total
	for i := range all {
		r := &all[i]
		if r.Planted != "" {
			s.addPlanted(planted, r)
			continue
		}
		whole.add(r)
		g := grounds[r.Ground]
		if g == nil {
			g = &groundSummary{Kind: r.Ground, First: r.Seed}
			grounds[r.Ground] = g
			s.Grounds = append(s.Grounds, g)
		}
		g.add(r)
		if v := r.Ground + ": " + r.Server; r.Server != "" && !slices.Contains(s.Versions, v) {
			s.Versions = append(s.Versions, v)
		}
		inRound := map[[2]string]bool{}
		for _, b := range r.Breaches {
			if b.Excused != "" {
				inRound[[2]string{b.Excused, b.Promise}] = true
				continue
			}
			s.Breaches = append(s.Breaches, breachRow{r.Ground, b.Promise, r.Fault, again(r.Ground, r.Fault, r.Seed)})
		}
		for k := range inRound {
			excuses[k]++
		}
	}
	for k, n := range excuses {
		s.Excuses = append(s.Excuses, excuseRow{k[0], k[1], n})
	}
	slices.SortFunc(s.Excuses, func(a, b excuseRow) int {
		return cmp.Or(strings.Compare(a.Fault, b.Fault), strings.Compare(a.Promise, b.Promise))
	})
	s.Breaches = slices.Compact(s.Breaches)
	for _, g := range s.Grounds {
		g.Hours = hours(g.took)
		slices.SortStableFunc(g.Rows, func(a, b *row) int { return strings.Compare(a.Fault, b.Fault) })
	}
	s.Hours, s.Rounds, s.Grants, s.Void, s.Faults = hours(whole.took), whole.Rounds, whole.Grants(), whole.Void, whole.times
	return s
}

func (g *groundSummary) add(r *faults.Result) {
	g.total.add(r)
	g.First, g.Last = min(g.First, r.Seed), max(g.Last, r.Seed)
	if r.Void != "" {
		return
	}
	i := slices.IndexFunc(g.Rows, func(w *row) bool { return w.Fault == r.Fault })
	if i < 0 {
		i = len(g.Rows)
		g.Rows = append(g.Rows, &row{Fault: r.Fault})
	}
	g.Rows[i].add(r)
}

func (s *summary) addPlanted(known map[string]*plantedRow, r *faults.Result) {
	p := known[r.Planted]
	if p == nil {
		p = &plantedRow{Name: r.Planted, Breaks: r.Breaks, Fault: r.Fault, Ground: r.Ground}
		known[r.Planted] = p
		s.Planted = append(s.Planted, p)
	}
	p.Tried = append(p.Tried, fmt.Sprint(r.Seed))
	p.Caught = p.Caught || r.Caught()
}

// The figures as the page shows them.

// Minutes is how long the rounds took.
func (t *total) Minutes() string { return fmt.Sprintf("%.1f", t.took.Minutes()) }

// Times is how often faults happened.
func (t *total) Times() int { return t.times }

// Grants is how many permits were granted.
func (t *total) Grants() string {
	text := fmt.Sprint(t.grants)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Median is the median of the recoveries.
func (t *total) Median() string {
	if len(t.recoveries) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(t.recoveries))
	return short(sorted[len(sorted)/2])
}

// Worst is the longest recovery.
func (t *total) Worst() string {
	if len(t.recoveries) == 0 {
		return "–"
	}
	return short(slices.Max(t.recoveries))
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func hours(d time.Duration) string { return fmt.Sprintf("%.1f", d.Hours()) }

// again is the command that plays a round again.
func again(ground, fault string, seed uint64) string {
	return fmt.Sprintf("make faults GROUND=%s FAULT=%q SEED=%d", ground, fault, seed)
}

// Again is the command that plays the row's most telling round again.
func (g *groundSummary) Again(w *row) string { return again(g.Kind, w.Fault, w.seed) }

// Seeds is what was tried.
func (p *plantedRow) Seeds() string { return strings.Join(p.Tried, ", ") }

//go:embed faults.md.tmpl
var words string

var page = template.Must(template.New("faults.md").Funcs(template.FuncMap{
	"slack": func() string { return short(history.Slack) },
	"mixed": func() string { return faults.Mixed },
}).Parse(words))
