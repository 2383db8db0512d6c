package measure

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Column is a figure of all contestants of a case.
type Column struct {
	Key, Head string // in JSON, and above a table
	Figure    Figure
	Timed     func(Timed) Spread // in its place, of a case in laps
	Show      func(float64) string
	Range     bool // the least and the greatest are shown as well
	Versus    int  // 1: as a ratio to that of the first; -1: that of the first as a ratio to it
}

// Of is the figure of a contestant; zero if there is none.
func (k Column) Of(c Case, s Series) Spread {
	switch {
	case k.Timed != nil && (s.Timed == nil || k.Versus != 0 && s.Name == c.Contestants[0].Name):
		return Spread{}
	case k.Timed != nil:
		return k.Timed(*s.Timed)
	case k.Versus == 0:
		return c.Spread(s, k.Figure)
	case len(c.Contestants) == 0 || s.Name == c.Contestants[0].Name:
		return Spread{}
	case k.Versus > 0:
		return c.Ratio(s, c.Contestants[0], k.Figure)
	}
	return c.Ratio(c.Contestants[0], s, k.Figure)
}

// Text is a spread as tables show it: "median (least–greatest)".
func (k Column) Text(s Spread) string {
	switch {
	case s == Spread{}:
		return ""
	case k.Range && s.Min != s.Max:
		return fmt.Sprintf("%s (%s–%s)", k.Show(s.Median), k.Show(s.Min), k.Show(s.Max))
	}
	return k.Show(s.Median)
}

// Table shows rows in columns, the first row being their heads. Columns without
// any text below the head are left out.
func Table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[i] != "" }) {
				_, _ = fmt.Fprint(t, cell, "\t")
			}
		}
		_, _ = fmt.Fprintln(t)
	}
	_ = t.Flush() // into memory
	return regexp.MustCompile(" +\n").ReplaceAllString(b.String(), "\n")
}

// Count shows three digits that count, and groups of three.
func Count(f float64) string {
	if f < 100 {
		return Digits(f, 3)
	}
	unit := math.Pow10(int(math.Log10(f)) - 2)
	text := strconv.FormatInt(int64(math.Round(f/unit)*unit), 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Digits shows n digits that count, or more before the point, without an
// exponent.
func Digits(f float64, n int) string {
	if f == 0 {
		return "0"
	}
	after := max(0, n-1-int(math.Floor(math.Log10(math.Abs(f)))))
	return strconv.FormatFloat(f, 'f', min(after, 8), 64)
}

// Times shows a ratio.
func Times(f float64) string { return Digits(f, 3) }

// Percent shows a part of one.
func Percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

// Duration shows nanoseconds with two digits or more.
func Duration(ns float64) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if ns >= float64(unit.size) {
			return Digits(ns/float64(unit.size), 2) + " " + unit.name
		}
	}
	return Digits(ns, 2) + " ns"
}
