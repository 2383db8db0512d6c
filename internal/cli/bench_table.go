package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"sema/internal/bench"
	"sema/internal/measure"
)

// benchHead says what was measured on what.
func benchHead(d benchJSON) string {
	engine := d.Engine
	if d.RedisVersion != "" {
		engine += " " + printable(d.RedisVersion, 30)
	}
	return fmt.Sprintf("sema %s, %s %s/%s, %d CPUs, engine %s\nrounds: %d of %v each; figures are their median (least–greatest)\n",
		d.Version, d.Go, d.OS, d.Arch, d.CPUs, engine, d.Rounds, time.Duration(d.Round*float64(time.Second)))
}

// benchColumns are the columns of all scenarios; one without figures is left
// out.
var benchColumns = []struct {
	head func(bench.Result) string
	cell func(bench.Row) string
}{
	{always("CASE"), func(r bench.Row) string { return r.Case }},
	{always("WHO"), func(r bench.Row) string { return r.Who }},
	{func(r bench.Result) string { return strings.ToUpper(r.Unit) + "/S" }, func(r bench.Row) string { return spread(r.Rate) }},
	{always("P50"), func(r bench.Row) string { return span(r.P50) }},
	{always("P99"), func(r bench.Row) string { return span(r.P99) }},
	{always("P99/P50"), func(r bench.Row) string { return figure(r.Spread) }},
	{always("OF IDEAL"), func(r bench.Row) string { return figure(r.OfIdeal) }},
	{always("ALLOCS"), func(r bench.Row) string { return figure(r.Allocs) }},
	{always("SCRIPT µs"), func(r bench.Row) string { return spread(r.Script) }},
	{always("CPU µs"), func(r bench.Row) string { return spread(r.CPU) }},
	{always("CORE"), func(r bench.Row) string { return percent(r.Core) }},
	{always("CALLS/PERIOD"), func(r bench.Row) string { return figure(r.Calls) }},
	{always("LOST"), func(r bench.Row) string {
		if r.Lost == nil {
			return ""
		}
		return strconv.FormatInt(*r.Lost, 10)
	}},
	{always("BYTES/PERMIT"), func(r bench.Row) string { return figure(r.Permit) }},
	{always("BYTES/WAITER"), func(r bench.Row) string { return figure(r.Waiter) }},
	{always("RATIO"), func(r bench.Row) string { return spread(r.Ratio) }},
	{always("RATIO OF P99s"), func(r bench.Row) string { return spread(r.RatioP99) }},
}

func always(head string) func(bench.Result) string { return func(bench.Result) string { return head } }

// benchTable is a scenario's result for human eyes.
func benchTable(r bench.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s", fold(r.Scenario+": "+r.About))
	if r.Ratio != "" {
		b.WriteString(fold("ratio: " + r.Ratio))
	}
	var used []int
	for i, column := range benchColumns {
		for _, row := range r.Rows {
			if column.cell(row) != "" {
				used = append(used, i)
				break
			}
		}
	}
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	line := func(cell func(column int) string) {
		cells := make([]string, len(used))
		for i, column := range used {
			cells[i] = cell(column)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	line(func(i int) string { return benchColumns[i].head(r) })
	for _, row := range r.Rows {
		line(func(i int) string { return benchColumns[i].cell(row) })
	}
	_ = t.Flush() // into memory
	var trimmed strings.Builder
	for line := range strings.Lines(b.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return trimmed.String()
}

// fold breaks a text into lines that a terminal shows whole.
func fold(text string) string {
	const width = 110
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String() + "\n"
}

// spread is a median with the least and the greatest, if they differ.
func spread(s *measure.Spread) string {
	if s == nil {
		return ""
	}
	if s.Min == s.Max {
		return digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.Median), digits(s.Min), digits(s.Max))
}

func figure(f *float64) string {
	if f == nil {
		return ""
	}
	return digits(*f)
}

// percent is a part of one core.
func percent(f *float64) string {
	if f == nil {
		return ""
	}
	return digits(*f*100) + "%"
}

// span is a time.
func span(f *float64) string {
	if f == nil {
		return ""
	}
	unit := time.Nanosecond // of which three digits are left
	for d := time.Duration(*f * float64(time.Second)); d >= 1000*unit; unit *= 10 {
	}
	return time.Duration(*f * float64(time.Second)).Round(unit).String()
}

// digits writes a figure with three digits that count, and at least all of its
// whole ones, in groups.
func digits(f float64) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	after := max(0, 2-int(math.Floor(math.Log10(math.Abs(f)))))
	text := strconv.FormatFloat(f, 'f', min(after, 6), 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		rest = "." + rest
	}
	return whole + rest
}
