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

// ticks is how many parts the axis of time has.
const ticks = 4

// chartStep is how long a point of a chart is at least.
const chartStep = history.Keep / 120

// stretch is the hour that a chart shows.
type stretch struct {
	from  time.Time
	every time.Duration // of a point
}

// x is where a time is on a chart.
func (s stretch) x(t time.Time) string {
	x := chartWidth * float64(t.Sub(s.from)) / float64(history.Keep)
	return short(min(chartWidth, max(0, x)))
}

// chart is a picture of a stretch of time, with axes.
type chart struct {
	Title   string
	Picture template.HTML
	Tops    []string // at the axis of values, from the top down, evenly apart
	Lines   []line
}

// line is what a chart draws.
type line struct {
	Class, Label string
	value        func(*history.Point) float64
	area         bool
}

// chartOf draws lines over the points of a stretch of time. format is how values are
// written on the axis.
func chartOf(title string, s stretch, points []history.Point, format func(float64) string, lines ...line) chart {
	most, label := 0.0, title
	for _, l := range lines {
		highest := 0.0
		for i := range points {
			highest = max(highest, l.value(&points[i]))
		}
		most = max(most, highest)
		label += fmt.Sprintf("; %s: up to %s", l.Label, format(highest))
	}
	top := niceTop(most)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, chartWidth, chartHeight, template.HTMLEscapeString(label))
	for i := range 3 {
		fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%d" y1="%d" y2="%d"/>`, chartWidth, i*chartHeight/2, i*chartHeight/2)
	}
	for i := 1; i < ticks; i++ {
		x := i * chartWidth / ticks
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="0" y2="%d"/>`, x, x, chartHeight)
	}
	for _, l := range lines {
		path, area := trace(s, points, func(p *history.Point) float64 { return chartHeight * (1 - l.value(p)/top) })
		if l.area {
			fmt.Fprintf(&b, `<path class="area %s" d="%s"/>`, l.Class, area)
		}
		fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, l.Class, path)
	}
	b.WriteString(`</svg>`)
	return chart{Title: title, Picture: template.HTML(b.String()), Tops: []string{format(top), format(top / 2), format(0)}, Lines: lines}
}

// trace is a line of steps, each as long as its point, with gaps where there is no point; and
// the area below it.
func trace(s stretch, points []history.Point, y func(*history.Point) float64) (path, area string) {
	for i := 0; i < len(points); {
		begin, end := s.x(points[i].From), points[i].From
		run := fmt.Sprintf("M%s %s", begin, short(y(&points[i])))
		for ; i < len(points) && points[i].From.Equal(end); i++ {
			end = end.Add(s.every)
			run += fmt.Sprintf("V%sH%s", short(y(&points[i])), s.x(end))
		}
		path += run
		area += fmt.Sprintf("%sV%dH%sZ", run, chartHeight, begin)
	}
	return path, area
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
func seconds(v float64) string { return brief(time.Duration(v * float64(time.Second))) }

// charts are the figures of a semaphore as pictures.
func (h *Handler) charts(name string, from time.Time) []chart {
	s := stretch{from, chartStep}
	use := chartOf("In use", s, h.history.Series(name, from, s.every), number,
		line{"used", "used", func(p *history.Point) float64 { return float64(p.Used) }, true},
		line{"limit", "limit", func(p *history.Point) float64 { return float64(p.Limit) }, false},
		line{"queue", "callers that wait", func(p *history.Point) float64 { return float64(p.Waiting) }, false})
	s.every = 6 * chartStep // a quantile is of many
	granted := slices.DeleteFunc(h.history.Series(name, from, s.every), func(p history.Point) bool { return p.Waits.Count() == 0 })
	below := func(q float64) func(*history.Point) float64 {
		return func(p *history.Point) float64 { return p.Waits.Below(q).Seconds() }
	}
	waits := chartOf("Waits of those who got a permit", s, granted, seconds,
		line{"p95", "95 % under", below(.95), false},
		line{"p50", "half under", below(.5), false})
	return []chart{use, waits}
}
