package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// spread is the median of some numbers, and its bounds with a confidence of 95 %.
type spread struct{ low, median, high float64 }

func spreadOf(all []float64) spread {
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	n := float64(len(all))
	at := func(i float64) float64 { return all[int(min(n-1, max(0, i)))] }
	return spread{at((n - 1.96*math.Sqrt(n)) / 2), at(n / 2), at((n + 1.96*math.Sqrt(n)) / 2)}
}

// show shows a spread, each number by f.
func (s spread) show(f func(float64) string) string {
	if s.median == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s–%s)", f(s.median), f(s.low), f(s.high))
}

// each is the time that passes for each pair; twice the turn's, if none was finished in it.
func (p played) each() float64 { return float64(p.Took) / max(0.5, float64(p.Pairs)) }

// pair is the spread of the times for each pair.
func (l *lane) pair() spread {
	var all []float64
	for _, p := range l.turns {
		all = append(all, p.each())
	}
	return spreadOf(all)
}

// over is the spread of l's time over that of another lane, lap by lap: what slowed down the machine slowed down both.
func (l *lane) over(other *lane) spread {
	var all []float64
	for i := range min(len(l.turns), len(other.turns)) {
		all = append(all, l.turns[i].each()/other.turns[i].each())
	}
	return spreadOf(all)
}

func (l *lane) cpu() float64 {
	var used, pairs float64
	for _, p := range l.turns {
		used += float64(p.CPU)
		pairs += float64(p.Pairs)
	}
	if pairs == 0 {
		return 0
	}
	return used / pairs
}

// quantile is the shortest wait that a share of all waits do not exceed, as text.
func (h histogram) quantile(share float64) string {
	var all, below int64
	for _, n := range h {
		all += n
	}
	for _, wait := range slices.Sorted(maps.Keys(h)) {
		if below += h[wait]; float64(below) >= share*float64(all) {
			return duration(float64(wait), 2)
		}
	}
	return ""
}

// digits shows n digits that count, or more before the point.
func digits(f float64, n int) string {
	if f == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*f", max(0, n-1-int(math.Floor(math.Log10(f)))), f)
}

func times(f float64) string { return digits(f, 3) }

// took shows a time for each pair.
func took(ns float64) string { return duration(ns, 3) }

// duration shows nanoseconds, n digits of them.
func duration(ns float64, n int) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if ns >= float64(unit.size) {
			return digits(ns/float64(unit.size), n) + " " + unit.name
		}
	}
	return digits(ns, n) + " ns"
}

// table writes a scene's figures.
func (f figure) table(w io.Writer) {
	fmt.Fprintf(w, "### %s (`%s`)\n\n", f.title, f.name)
	if f.note != "" {
		fmt.Fprintf(w, "%s\n\n", f.note)
	}
	fmt.Fprintf(w, "| | a pair takes | × `%s` | CPU | p50 wait | p99 wait | longest wait |\n|---|---:|---:|---:|---:|---:|---:|\n", f.lanes[0].who)
	for i, l := range f.lanes {
		ratio := ""
		if i > 0 {
			ratio = l.over(f.lanes[0]).show(times)
		}
		if l.failed != "" {
			fmt.Fprintf(w, "| `%s` | failed: %s | | | | | |\n", l.who, l.failed)
			continue
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s | %s | %s |\n", l.who, l.pair().show(took), ratio, took(l.cpu()),
			l.waits.quantile(0.5), l.waits.quantile(0.99), l.waits.quantile(1))
	}
	fmt.Fprintln(w)
}

// compared writes how fast this checkout is beside the other one.
func compared(w io.Writer, figures []figure, other string) {
	fmt.Fprintf(w, "| scene | contestant | a pair takes | in %s | speed ÷ speed there | p99 wait | there |\n|---|---|---:|---:|---:|---:|---:|\n", other)
	for _, f := range figures {
		for i := 0; i+1 < len(f.lanes); i += 2 {
			l, there := f.lanes[i], f.lanes[i+1]
			if failed := l.failed + there.failed; failed != "" {
				fmt.Fprintf(w, "| %s | %s | failed: %s | | | | |\n", f.name, l.who, failed)
				continue
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", f.name, l.who, l.pair().show(took), there.pair().show(took),
				there.over(l).show(times), l.waits.quantile(0.99), there.waits.quantile(0.99))
		}
	}
}

// page writes docs/data/bench.md.
func page(w io.Writer, figures []figure, length time.Duration) {
	fmt.Fprint(w, `<!-- Made by `+"`make bench`"+`. -->
# The bench's figures

[bench.md](../bench.md) says what follows from them.

- The contestants of a table take turns of milliseconds, in processes of their own. Each lap has them in another order.
- A pair is acquire, work, release. Its time is a turn's length over the number of pairs of all callers: the median of the turns
  (and its bounds with a confidence of 95 %). × compares two turns of the same lap: less is faster.
- A wait is the time of an acquire, round trips included. The longest shows callers that starve; the p99 hides them.
- CPU is that of a contestant's processes for a pair, without the server.

`)
	fmt.Fprint(w, "## The scenes\n\n")
	for _, f := range figures {
		f.table(w)
	}
	fmt.Fprint(w, "## The contestants\n\n| name | what it is |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(contestants)) {
		fmt.Fprintf(w, "| `%s` | %s |\n", name, contestants[name].what)
	}
	fmt.Fprintf(w, "\n%s, %d processors, load %s; %s, %s; turns of %v in all for each contestant of a scene; servers on the same machine.\n",
		word("/proc/cpuinfo", "model name\t: ", "\n"), runtime.NumCPU(), word("/proc/loadavg", "", " "), runtime.GOOS, runtime.Version(), length)
}

// word is what stands in a file between two texts, as far as this system has it.
func word(path, after, before string) string {
	text, _ := os.ReadFile(path)
	_, rest, _ := strings.Cut(string(text), after)
	found, _, _ := strings.Cut(rest, before)
	return found
}
