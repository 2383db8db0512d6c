package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"sema/internal/measure"
	"sema/lab/page"
)

var (
	//go:embed bench.md.tmpl
	benchWords string
	//go:embed data.md.tmpl
	dataWords string
)

// write makes bench.md, data/bench.md and the charts in a directory.
func write(r *results, docs string) error {
	files, err := render(r)
	if err != nil {
		return err
	}
	return page.Write(docs, files)
}

// render makes the files that write writes, by name. All text is in the
// templates, every figure is of the run.
func render(r *results) (map[string][]byte, error) {
	for _, c := range r.Scenarios {
		for _, s := range c.Contestants {
			if _, err := find(s.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	files := map[string][]byte{}
	for name, words := range map[string]string{"bench.md": benchWords, "data/bench.md": dataWords} {
		text, err := page.Fill(words, template.FuncMap{
			"scenario": r.section, "verdict": verdict, "shortest": shortest, "peers": func() []peer { return all },
			"ms":       func(ms int64) string { return measure.Duration(float64(ms) * float64(time.Millisecond)) },
			"versions": func() string { return pairs(r.Versions, " ", ", ") },
			"leftOut":  func() string { return pairs(r.LeftOut, ": ", "; ") },
		}, r)
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	for _, d := range drawings {
		svg, err := d.chart(r).SVG()
		if err != nil {
			return nil, err
		}
		files[d.file] = svg
	}
	return files, nil
}

func pairs(m map[string]string, between, after string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, name+between+m[name])
	}
	return strings.Join(all, after)
}

// find returns a scenario of the run, or nil.
func (r *results) find(name string) *measure.Case {
	for _, c := range r.Scenarios {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// section is a scenario on the page: who won, and the table.
func (r *results) section(name string) (string, error) {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return "", fmt.Errorf("unknown scenario %q", name)
	}
	text := "### " + scenarios[i].title + " (`" + name + "`)\n\n"
	c := r.find(name)
	if c == nil {
		return text + "Not part of this run.\n", nil
	}
	return text + verdict(c) + "\n\n<details markdown=\"1\"><summary>All contestants</summary>\n\n" + table(c) + "\n</details>\n", nil
}

// The columns of the tables. The shortest waits and the highest rate are set in
// bold.
var (
	rate    = measure.Column{Head: "pairs/s", Figure: measure.Rate, Show: measure.Count, Range: true}
	percent = measure.Column{Head: "of possible", Figure: measure.Possible, Show: measure.Percent, Range: true}
	p99     = measure.Column{Head: "p99 wait", Figure: measure.P99, Show: measure.Duration, Range: true}
	longest = measure.Column{Head: "longest wait", Figure: measure.Longest, Show: measure.Duration}
	took    = measure.Column{Head: "time/pair", Figure: measure.Took, Show: measure.Duration, Range: true}

	columns = []measure.Column{
		rate, {Head: "× `sema`", Figure: measure.Rate, Show: measure.Times, Range: true, Versus: 1}, percent,
		{Head: "p50 wait", Figure: measure.P50, Show: measure.Duration}, p99, longest, {Head: "CPU/pair", Figure: measure.CPU, Show: measure.Duration},
	}
	memoryColumns = []measure.Column{
		took, {Head: "× `sema-memory`", Figure: measure.Rate, Show: measure.Times, Range: true, Versus: 1},
		{Head: "allocations/pair", Figure: measure.Allocs, Show: func(f float64) string { return fmt.Sprintf("%.1f", f) }},
	}
)

// lapColumns are those of scenarios in laps.
var lapColumns = []measure.Column{
	{Head: "p10", Timed: func(t measure.Timed) measure.Spread { return t.P10 }, Show: measure.Duration},
	{Head: "p50", Timed: func(t measure.Timed) measure.Spread { return t.P50 }, Show: measure.Duration, Range: true},
	{Head: "p90", Timed: func(t measure.Timed) measure.Spread { return t.P90 }, Show: measure.Duration},
	{Head: "its p50 ÷ that of sema", Timed: func(t measure.Timed) measure.Spread { return t.Ratio }, Show: measure.Times, Range: true, Versus: 1},
	{Head: "median script", Timed: func(t measure.Timed) measure.Spread { return measure.SpreadOf(t.ScriptP50NS) }, Show: measure.Duration},
}

func inMemory(c *measure.Case) bool {
	return len(c.Contestants) > 0 && c.Contestants[0].Name == "sema-memory"
}

// table is what everybody did.
func table(c *measure.Case) string {
	shown := columns
	if inMemory(c) {
		shown = memoryColumns
	}
	if c.Laps > 0 {
		shown = lapColumns
	}
	if c.HoldUS == 0 {
		shown = slices.DeleteFunc(slices.Clone(shown), func(k measure.Column) bool { return k.Head == percent.Head })
	}
	fastest, _ := best(c, measure.Rate, 1)
	marked := map[string]string{rate.Head: fastest.Name, took.Head: fastest.Name}
	for _, k := range []measure.Column{p99, longest} {
		winner, _ := best(c, k.Figure, -1)
		marked[k.Head] = winner.Name
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, k := range shown {
		b.WriteString(" " + k.Head + " |")
	}
	b.WriteString(" |\n|---|" + strings.Repeat("---:|", len(shown)) + "---|\n")
	for _, s := range c.Contestants {
		name := "`" + s.Name + "`"
		if isKind(s, yardstick) {
			name = "*" + name + "*"
		}
		b.WriteString("| " + name + " |")
		for _, k := range shown {
			text := k.Text(k.Of(*c, s))
			if marked[k.Head] == s.Name {
				text = "**" + text + "**"
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString(" " + remarks(c, s) + " |\n")
	}
	return b.String()
}

// remarks are what a reader has to know about the figures of a row.
func remarks(c *measure.Case, s measure.Series) string {
	var all []string
	if s.Failed != "" {
		all = append(all, "failed: "+strings.ReplaceAll(s.Failed, "|", "/"))
	}
	if n := mostHeld(s); n > int64(c.Limit) {
		all = append(all, fmt.Sprintf("over the limit: %d at once", n))
	}
	var unserved int64
	for _, r := range s.Rounds {
		unserved += r.Unserved
	}
	if unserved > 0 {
		all = append(all, strconv.FormatInt(unserved, 10)+" callers not served in time")
	}
	return strings.Join(all, "; ")
}

// mostHeld is the most permits that one process held at once.
func mostHeld(s measure.Series) (most int64) {
	for _, r := range s.Rounds {
		most = max(most, r.MaxHeld)
	}
	return most
}

func isKind(s measure.Series, k kind) bool {
	p, err := find(s.Name)
	return err == nil && p.kind == k
}

// best is the contestant with the largest figure, or with sign -1 the smallest.
// Who let in more than the limit, limits nothing, or failed, does not compete.
func best(c *measure.Case, figure measure.Figure, sign float64, except ...string) (winner measure.Series, ok bool) {
	for _, s := range c.Contestants {
		if s.Failed != "" || len(s.Rounds) == 0 || isKind(s, yardstick) || mostHeld(s) > int64(c.Limit) || slices.Contains(except, s.Name) {
			continue
		}
		if !ok || sign*c.Spread(s, figure).Median > sign*c.Spread(winner, figure).Median {
			winner, ok = s, true
		}
	}
	return winner, ok
}

// verdict says who did most, in words.
func verdict(c *measure.Case) string {
	if len(c.Contestants) == 0 {
		return "Nobody took part."
	}
	base := c.Contestants[0]
	if c.Laps > 0 {
		return quickest(c)
	}
	winner, _ := best(c, measure.Rate, 1)
	other, ok := best(c, measure.Rate, 1, base.Name)
	beside := c.Ratio(other, base, measure.Rate)
	times := measure.Column{Show: measure.Times, Range: true}.Text(beside)
	switch {
	case !ok && winner.Name == base.Name:
		return fmt.Sprintf("Only `%s` did it.", base.Name)
	case !ok:
		return "Nobody did it."
	case base.Failed != "":
		return fmt.Sprintf("**`%s` wins.** `%s` failed.", other.Name, base.Name)
	case beside.Min > 1:
		return fmt.Sprintf("**`%s` wins:** %s times what `%s` did.", other.Name, times, base.Name)
	case beside.Max < 1:
		return fmt.Sprintf("**`%s` wins;** next is `%s`, which did %s times as much.", base.Name, other.Name, times)
	}
	return fmt.Sprintf("No clear winner: `%s` did %s times what `%s` did.", other.Name, times, base.Name)
}

// quickest says of a scenario in laps whose pairs took least.
func quickest(c *measure.Case) string {
	base := c.Contestants[0]
	var next measure.Series
	for _, s := range c.Contestants[1:] {
		if !isKind(s, yardstick) && (next.Timed == nil || s.Timed.P50.Median < next.Timed.P50.Median) {
			next = s
		}
	}
	if next.Timed == nil {
		return fmt.Sprintf("Only `%s` did it.", base.Name)
	}
	times := lapColumns[3].Text(next.Timed.Ratio)
	switch ratio := next.Timed.Ratio; {
	case ratio.Max < 1:
		return fmt.Sprintf("**`%s` wins:** its pairs took %s times as long as those of `%s`.", next.Name, times, base.Name)
	case ratio.Min > 1:
		return fmt.Sprintf("**`%s` wins;** pairs of `%s`, which is next, took %s times as long.", base.Name, next.Name, times)
	}
	return fmt.Sprintf("No clear winner: pairs of `%s` took %s times as long as those of `%s`.", next.Name, times, base.Name)
}

// shortest is who has the shortest p99, or longest, wait.
func shortest(c *measure.Case, wait string) string {
	winner, ok := best(c, map[string]measure.Figure{"p99": measure.P99, "longest": measure.Longest}[wait], -1)
	if !ok || inMemory(c) || c.Laps > 0 {
		return "–"
	}
	return "`" + winner.Name + "`"
}
