package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"sema/internal/history"
)

// A chart's picture, in units of its own: it is stretched to the place that it has,
// and what is written on the axes is text beside it.
const chartWidth, chartHeight = 600, 120

// chart is a picture of a stretch of time, with axes.
type chart struct {
	Title   string
	Picture template.HTML
	Tops    []string // at the axis of values, from the top down, evenly apart
	Lines   []chartLine
}

// chartLine is one of a chart's lines, for its legend.
type chartLine struct{ Class, Label string }

// line is what a chart draws.
type line struct {
	class, label string
	value        func(*history.Point) float64
	area         bool
	from         func(*history.Point) float64 // not nil: it is a band, from here to value
}

// chartOf draws lines over the points of a stretch of time. format is how values are
// written on the axis.
func chartOf(title string, past stretch, points []history.Point, format func(float64) string, lines ...line) chart {
	c := chart{Title: title}
	most := 0.0
	for i := range points {
		for _, l := range lines {
			most = max(most, l.value(&points[i]))
		}
	}
	top := niceTop(most)
	c.Tops = []string{format(top), format(top / 2), format(0)}
	var b strings.Builder
	label := title
	for _, l := range lines {
		c.Lines = append(c.Lines, chartLine{l.class, l.label})
		highest := 0.0
		for i := range points {
			highest = max(highest, l.value(&points[i]))
		}
		label += fmt.Sprintf("; %s: up to %s", l.label, format(highest))
	}
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(label))
	for i := range 3 {
		fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%d" y1="%d" y2="%d"/>`, chartWidth, i*chartHeight/2, i*chartHeight/2)
	}
	for i := 1; i < ticks; i++ {
		x := i * chartWidth / ticks
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="0" y2="%d"/>`, x, x, chartHeight)
	}
	for _, l := range lines {
		if l.from != nil {
			fmt.Fprintf(&b, `<path class="band %s" d="%s"/>`, l.class, band(past, points, l, top))
			continue
		}
		path, area := trace(past, points, func(p *history.Point) float64 { return chartHeight * (1 - l.value(p)/top) })
		if l.area {
			fmt.Fprintf(&b, `<path class="area %s" d="%s"/>`, l.class, area)
		}
		fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, l.class, path)
	}
	if past.pinned {
		x := short(past.x(past.at, chartWidth))
		fmt.Fprintf(&b, `<line class="moment" x1="%s" x2="%s" y1="0" y2="%d"/>`, x, x, chartHeight)
	}
	fmt.Fprintf(&b, `<line class="cursor" x1="-9" x2="-9" y1="0" y2="%d"/></svg>`, chartHeight)
	c.Picture = template.HTML(b.String())
	return c
}

// trace is a line of steps, each as long as its point, with gaps where nobody looked; and
// the area below it.
func trace(past stretch, points []history.Point, y func(*history.Point) float64) (path, area string) {
	var lines, areas strings.Builder
	var end time.Time
	for i := range points {
		p := &points[i]
		x0, x1, v := short(past.x(p.From, chartWidth)), short(past.x(p.From.Add(past.every), chartWidth)), short(y(p))
		if i > 0 && p.From.Equal(end) {
			fmt.Fprintf(&lines, "V%s", v)
		} else {
			if i > 0 {
				fmt.Fprintf(&areas, "V%dZ", chartHeight)
			}
			fmt.Fprintf(&lines, "M%s %s", x0, v)
			fmt.Fprintf(&areas, "M%s %d", x0, chartHeight)
		}
		fmt.Fprintf(&lines, "H%s", x1)
		fmt.Fprintf(&areas, "V%sH%s", v, x1)
		end = p.From.Add(past.every)
	}
	if len(points) > 0 {
		fmt.Fprintf(&areas, "V%dZ", chartHeight)
	}
	return lines.String(), areas.String()
}

// band draws a line as boxes. A box lasts until one of its edges changes. There is a gap where
// the value is 0.
func band(past stretch, points []history.Point, l line, top float64) string {
	var boxes strings.Builder
	for i := 0; i < len(points); {
		p := &points[i]
		from, to, end := l.from(p), l.value(p), p.From
		for i < len(points) && points[i].From.Equal(end) && l.from(&points[i]) == from && l.value(&points[i]) == to {
			end = end.Add(past.every)
			i++
		}
		if to == history.NoBound.Seconds() {
			to = top
		}
		if to > 0 {
			y := func(v float64) string { return short(chartHeight * (1 - v/top)) }
			fmt.Fprintf(&boxes, "M%s %sV%sH%sV%sZ", short(past.x(p.From, chartWidth)), y(from), y(to), short(past.x(end, chartWidth)), y(from))
		}
	}
	return boxes.String()
}

// niceTop is a round number not below v, whose half is round as well.
func niceTop(v float64) float64 {
	for scale := 1.0; ; scale *= 10 {
		for _, n := range []float64{2, 4, 6, 10} {
			if n*scale >= v {
				return n * scale
			}
		}
	}
}

func number(v float64) string { return fmt.Sprintf("%.0f", v) }

// seconds are a duration on an axis.
func seconds(v float64) string { return tight(time.Duration(v * float64(time.Second))) }

// charts are the figures of a stretch of time as pictures.
func charts(past stretch, points []history.Point) []chart {
	granted := func(class, label string, q float64) line {
		return line{class: class, label: label,
			value: func(p *history.Point) float64 { _, to := p.Waits.Bounds(q); return to.Seconds() },
			from:  func(p *history.Point) float64 { from, _ := p.Waits.Bounds(q); return from.Seconds() }}
	}
	list := []chart{
		chartOf("In use", past, points, number,
			line{class: "used", label: "used", value: func(p *history.Point) float64 { return float64(p.Used) }, area: true},
			line{class: "limit", label: "limit", value: func(p *history.Point) float64 { return float64(p.Limit) }}),
		chartOf("Waiting", past, points, number,
			line{class: "queue", label: "callers", value: func(p *history.Point) float64 { return float64(p.Waiting) }, area: true}),
		chartOf("How long", past, points, seconds,
			granted("p99", "99 % of the granted", .99),
			granted("p95", "95 %", .95),
			granted("p50", "half", .5),
			line{class: "queue", label: "longest of those who wait", value: func(p *history.Point) float64 { return p.Oldest.Seconds() }}),
		chartOf("Grants and losses", past, points, number,
			line{class: "used", label: "granted", value: func(p *history.Point) float64 { return float64(p.Granted) }, area: true},
			line{class: "lost", label: "perhaps lost", value: func(p *history.Point) float64 { return float64(p.Lost) }},
			line{class: "left", label: "left the queue, no permit seen", value: func(p *history.Point) float64 { return float64(p.Left) }}),
	}
	if slices.ContainsFunc(points, func(p history.Point) bool { return p.Auto }) {
		list = slices.Insert(list, 1, chartOf("What went badly", past, points, func(v float64) string { return fmt.Sprintf("%g %%", v) },
			line{class: "lost", label: "part of the time held", value: func(p *history.Point) float64 { return 100 * p.Bad }, area: true}))
	}
	return list
}
