package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
	"sema/internal/measure"
)

// section is what came of a scenario: who won, and the table.
func section(run results.Run, name string) (string, error) {
	s, ok := find(run, name)
	if !ok {
		return "Not part of this run.\n", nil
	}
	if err := known(s); err != nil {
		return "", err
	}
	if inMemory(s) {
		return verdict(s) + "\n\n" + memoryTable(s), nil
	}
	return verdict(s) + "\n\n" + table(s), nil
}

// known refuses a scenario with contestants that the list does not have.
func known(s results.Scenario) error {
	for _, c := range s.Contestants {
		if _, err := peers.Find(c.Name); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

func kind(c results.Contestant) peers.Kind {
	p, _ := peers.Find(c.Name)
	return p.Kind
}

func inMemory(s results.Scenario) bool {
	return len(s.Contestants) > 0 && kind(s.Contestants[0]) == peers.InProcess
}

func baseline(s results.Scenario) results.Contestant {
	if inMemory(s) {
		return contestant(s, peers.MemoryBaseline)
	}
	return contestant(s, peers.Baseline)
}

// over says that more were let in at once than the limit.
func over(s results.Scenario, c results.Contestant) bool { return c.MaxHeld() > int64(s.Limit) }

// competes says whether a contestant can win: who limits nothing, held more
// than the limit, or failed, cannot.
func competes(s results.Scenario, c results.Contestant) bool {
	return kind(c) != peers.Yardstick && !over(s, c) && c.Failed == "" && c.Rate().Median > 0
}

// best is the contestant with the greatest figure of those that compete.
func best(s results.Scenario, figure func(results.Contestant) float64) (results.Contestant, bool) {
	var winner results.Contestant
	found := false
	for _, c := range s.Contestants {
		if competes(s, c) && (!found || figure(c) > figure(winner)) {
			winner, found = c, true
		}
	}
	return winner, found
}

func byRate(c results.Contestant) float64 { return c.Rate().Median }

// byP99 is greatest where waits are shortest.
func byP99(c results.Contestant) float64 { return -p99(c).Median }

func p50(c results.Contestant) measure.Spread {
	return c.Spread(func(r results.Round) float64 { return float64(r.P50NS) })
}

func p99(c results.Contestant) measure.Spread {
	return c.Spread(func(r results.Round) float64 { return float64(r.P99NS) })
}

func byLongest(c results.Contestant) float64 { return -longest(c).Median }

func longest(c results.Contestant) measure.Spread {
	return c.Spread(func(r results.Round) float64 { return float64(r.LongestNS) })
}

// verdict says who did most, in words.
func verdict(s results.Scenario) string {
	base := baseline(s)
	winner, ok := best(s, byRate)
	if !ok {
		return "Nobody did it."
	}
	if winner.Name != base.Name {
		if !competes(s, base) {
			return fmt.Sprintf("**`%s` wins.** `%s` failed.", winner.Name, base.Name)
		}
		gain := winner.Ratio(base)
		if gain.Min <= 1 {
			return fmt.Sprintf("No clear winner: `%s` did %s times what `%s` did.", winner.Name, times(gain), base.Name)
		}
		return fmt.Sprintf("**`%s` wins:** %s times what `%s` did.", winner.Name, times(gain), base.Name)
	}
	rest := s
	rest.Contestants = nil
	for _, c := range s.Contestants {
		if c.Name != base.Name {
			rest.Contestants = append(rest.Contestants, c)
		}
	}
	second, ok := best(rest, byRate)
	if !ok {
		return fmt.Sprintf("Only `%s` did it.", base.Name)
	}
	share := second.Ratio(base)
	if share.Max >= 1 {
		return fmt.Sprintf("No clear winner: `%s` did %s times what `%s` did.", second.Name, times(share), base.Name)
	}
	return fmt.Sprintf("**`%s` wins;** next is `%s`, which did %s times as much.", base.Name, second.Name, times(share))
}

// wins is the list of all verdicts.
func wins(run results.Run) string {
	var b strings.Builder
	b.WriteString("| scenario | most pairs | shortest p99 wait | shortest longest wait |\n|---|---|---|---|\n")
	for _, s := range run.Scenarios {
		by := func(figure func(results.Contestant) float64) string {
			winner, ok := best(s, figure)
			if !ok || inMemory(s) {
				return "–"
			}
			return "`" + winner.Name + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.Name, verdict(s), by(byP99), by(byLongest))
	}
	return b.String()
}

// table is what everybody did in a scenario with Redis.
func table(s results.Scenario) string {
	possible, possibleLine := "", ""
	if s.HoldUS > 0 {
		possible, possibleLine = " of possible |", "---:|"
	}
	var b strings.Builder
	b.WriteString("| | pairs/s | × `sema` |" + possible + " p50 wait | p99 wait | longest wait | CPU/pair | most at once | |\n" +
		"|---|---:|---:|" + possibleLine + "---:|---:|---:|---:|---:|---|\n")
	base := baseline(s)
	fastest, _ := best(s, byRate)
	shortest, _ := best(s, byP99)
	steadiest, _ := best(s, byLongest)
	for _, c := range s.Contestants {
		if len(c.Rounds) == 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", name(c), remarks(s, c))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", name(c), bold(c.Name == fastest.Name, spread(c.Rate(), count)), ratio(c, base))
		if s.HoldUS > 0 {
			fmt.Fprintf(&b, " %s |", spread(s.Possible(c), percent))
		}
		cpu := c.Spread(func(r results.Round) float64 { return r.PerPair(float64(r.CPUNS)) })
		fmt.Fprintf(&b, " %s | %s | %s | %s | %s | %s |\n", duration(p50(c).Median),
			bold(c.Name == shortest.Name, spread(p99(c), duration)), bold(c.Name == steadiest.Name, duration(longest(c).Median)),
			duration(cpu.Median), atOnce(c), remarks(s, c))
	}
	return b.String()
}

// memoryTable is the same without Redis.
func memoryTable(s results.Scenario) string {
	var b strings.Builder
	b.WriteString("| | time/pair | × `sema-memory` | allocations/pair |\n|---|---:|---:|---:|\n")
	base := baseline(s)
	fastest, _ := best(s, byRate)
	for _, c := range s.Contestants {
		if len(c.Rounds) == 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", name(c), remarks(s, c))
			continue
		}
		took := c.Spread(func(r results.Round) float64 { return r.PerPair(float64(r.ElapsedNS)) })
		mallocs := c.Spread(func(r results.Round) float64 { return r.PerPair(float64(r.Mallocs)) })
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f |\n", name(c), bold(c.Name == fastest.Name, spread(took, duration)), ratio(c, base), mallocs.Median)
	}
	return b.String()
}

// name sets yardsticks apart.
func name(c results.Contestant) string {
	if kind(c) == peers.Yardstick {
		return "*`" + c.Name + "`*"
	}
	return "`" + c.Name + "`"
}

// remarks are what a reader has to know before the figures of a row.
func remarks(s results.Scenario, c results.Contestant) string {
	var all []string
	if c.Failed != "" {
		all = append(all, "failed: "+strings.NewReplacer("|", "/", "\n", " ").Replace(c.Failed))
	} else if len(c.Rounds) == 0 {
		all = append(all, "no rounds")
	}
	if over(s, c) {
		all = append(all, "over the limit")
	}
	if n := c.Unserved(); n > 0 {
		all = append(all, fmt.Sprintf("%d callers not served in time", n))
	}
	return strings.Join(all, "; ")
}

func atOnce(c results.Contestant) string {
	if c.MaxHeld() == 0 {
		return "–"
	}
	return strconv.FormatInt(c.MaxHeld(), 10)
}

func ratio(c, base results.Contestant) string {
	if c.Name == base.Name {
		return "1"
	}
	return times(c.Ratio(base))
}

func bold(yes bool, text string) string {
	if yes {
		return "**" + text + "**"
	}
	return text
}

// spread is "median (min–max)".
func spread(s measure.Spread, show func(float64) string) string {
	return fmt.Sprintf("%s (%s–%s)", show(s.Median), show(s.Min), show(s.Max))
}

func times(s measure.Spread) string {
	return spread(s, func(f float64) string { return digits(f, 3) })
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

// count shows three digits, and groups of three.
func count(f float64) string {
	if f < 100 {
		return digits(f, 3)
	}
	unit := math.Pow10(int(math.Log10(f)) - 2)
	text := strconv.FormatInt(int64(math.Round(f/unit)*unit), 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// digits shows n significant digits, without an exponent.
func digits(f float64, n int) string {
	if f == 0 {
		return "0"
	}
	after := max(0, n-1-int(math.Floor(math.Log10(math.Abs(f)))))
	return strconv.FormatFloat(f, 'f', after, 64)
}

// duration shows nanoseconds with two digits or more.
func duration(ns float64) string {
	switch {
	case ns == 0:
		return "–"
	case ns < float64(time.Microsecond):
		return digits(ns, 2) + " ns"
	case ns < float64(time.Millisecond):
		return digits(ns/1e3, 2) + " µs"
	case ns < float64(time.Second):
		return digits(ns/1e6, 2) + " ms"
	}
	return digits(ns/1e9, 2) + " s"
}
