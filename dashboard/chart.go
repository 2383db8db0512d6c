package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"sema/internal/history"
	"sema/internal/view"
)

// A chart is a picture with text: across, positions are parts of the width that it has, and down they are pixels.
// Lines are in pictures within it, 720 wide, which are stretched.
const (
	chartWidth  = 720
	usedHeight  = 100
	queueTop    = 128
	queueHeight = 36
	bottom      = queueTop + queueHeight
)

// chart is a picture of the last hour, with axes.
type chart struct {
	Title  string
	Lines  [][2]string // classes and labels of what it draws
	Axis   template.HTML
	Inside template.HTML
	Label  string
}

// stretch is the time that charts show: what was seen of the last hour.
type stretch struct{ from, to time.Time }

// x is where a time is, 0 … 1.
func (s stretch) x(t time.Time) float64 {
	return min(1, max(0, float64(t.Sub(s.from))/float64(s.to.Sub(s.from))))
}

// youngest is how much there is to see at least in a chart.
const youngest = 2 * time.Minute

// charts are the figures of a semaphore as pictures; none if it was seen for too short a time.
func (h *Handler) charts(name string, now time.Time) []chart {
	step := h.history.Step()
	s := stretch{from: now.Truncate(step).Add(-history.Keep), to: now.Truncate(step)}
	points := h.history.Series(name, s.from, step)
	if len(points) == 0 || s.to.Sub(points[0].From) < youngest {
		return nil
	}
	if points[0].From.After(s.from) {
		s.from = points[0].From
	}
	every := max(step, (s.to.Sub(s.from)/60 + step).Truncate(step))
	return []chart{useOf(s, points, step), waitsOf(s, h.history.Series(name, s.from, every), every)}
}

// useOf draws use against the limit, and below it those who wait.
func useOf(s stretch, points []history.Point, step time.Duration) chart {
	used, top, queue := 0, 1, 0
	for _, p := range points {
		used, top, queue = max(used, p.Used), max(top, p.Used, p.Limit), max(queue, p.Waiting)
	}
	top = niceTop(top)
	part := func(y, height, top int, lines ...string) string {
		return fmt.Sprintf(`<svg y="%d" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none">%s</svg>`, y, height, chartWidth, height, strings.Join(lines, ""))
	}
	line := func(class string, height, top int, value func(history.Point) int) string {
		path, area := trace(points, step, func(t time.Time) float64 { return chartWidth * s.x(t) }, float64(height), func(p history.Point) float64 {
			return float64(height) * (1 - float64(value(p))/float64(top))
		})
		if class == "limit" {
			area = ""
		}
		return fmt.Sprintf(`<path class="area %s" d="%s"/><path class="%s" d="%s"/>`, class, area, class, path)
	}
	marks := []mark{{8 + usedHeight, "0"}, {8, view.Number(top)}, {bottom, "0"}}
	if top%2 == 0 {
		marks = append(marks, mark{8 + usedHeight/2, view.Number(top / 2)})
	}
	if queue > 0 {
		marks = append(marks, mark{queueTop, view.Number(queue)})
	}
	c := axes(s, marks)
	c.Title, c.Lines = "Use", [][2]string{{"used", "in use"}, {"limit", "limit"}, {"wait", "waiting"}}
	c.Label = fmt.Sprintf("Use from %s to %s UTC: up to %s of %s in use, up to %s waiting", stamp{s.from}.Minute(), stamp{s.to}.Minute(), view.Number(used), view.Number(points[len(points)-1].Limit), view.Number(queue))
	c.Inside += template.HTML(part(8, usedHeight, top,
		line("used", usedHeight, top, func(p history.Point) int { return p.Used }),
		line("limit", usedHeight, top, func(p history.Point) int { return p.Limit })) +
		part(queueTop, queueHeight, queue, line("wait", queueHeight, max(1, queue), func(p history.Point) int { return p.Waiting })))
	return c
}

// waitsOf draws a column for each period in which somebody was granted a permit, from the time below which half of
// the waits were to that of 95 %. The waits are known by classes, so a line would jump.
func waitsOf(s stretch, points []history.Point, every time.Duration) chart {
	most, half := 10*time.Second, time.Duration(0)
	for _, p := range points {
		most, half = max(most, p.Waits.Below(.95)), max(half, p.Waits.Below(.5))
	}
	const least = time.Second / 2
	y := func(d time.Duration) float64 {
		return bottom - (bottom-8)*math.Log(float64(max(d, least))/float64(least))/math.Log(float64(most)/float64(least))
	}
	var marks []mark
	for _, m := range []struct {
		at   time.Duration
		text string
	}{{time.Second, "1s"}, {10 * time.Second, "10s"}, {time.Minute, "1m"}, {10 * time.Minute, "10m"}, {time.Hour, "1h"}} {
		if m.at <= most {
			marks = append(marks, mark{int(y(m.at)), m.text})
		}
	}
	c := axes(s, marks)
	c.Title, c.Lines = "Waits of those who got a permit", [][2]string{{"p50", "half under"}, {"p95", "95 % under"}}
	c.Label = "No grant was seen after a wait"
	if half > 0 {
		c.Label = fmt.Sprintf("Waits from %s to %s UTC: half under %s at most, 95 %% under %s at most", stamp{s.from}.Minute(), stamp{s.to}.Minute(), view.Brief(half), view.Brief(most))
	}
	for _, p := range points {
		if p.Waits.Count() == 0 {
			continue
		}
		x, width, high, low := 100*s.x(p.From), 100*(s.x(p.From.Add(every))-s.x(p.From)), y(p.Waits.Below(.95)), y(p.Waits.Below(.5))
		for _, r := range []struct {
			class     string
			y, height float64
		}{{"p95", high, low - high}, {"cap", high, 2}, {"p50", low - 1, 3}} {
			c.Inside += template.HTML(fmt.Sprintf(`<rect class="%s" x="%.2f%%" width="%.2f%%" y="%s" height="%s"/>`, r.class, x, .7*width, short(r.y), short(r.height)))
		}
	}
	return c
}

// mark is a value on an axis.
type mark struct {
	y    int
	text string
}

// axes has a line for each mark, and for some round minutes.
func axes(s stretch, marks []mark) (c chart) {
	for _, m := range marks {
		c.Axis += template.HTML(fmt.Sprintf(`<text x="36" y="%d" text-anchor="end">%s</text>`, m.y+4, m.text))
		c.Inside += template.HTML(fmt.Sprintf(`<line class="grid" x2="100%%" y1="%d" y2="%d"/>`, m.y, m.y))
	}
	between := time.Minute
	for _, d := range []time.Duration{2, 5, 10} {
		if s.to.Sub(s.from) > 7*between {
			between = d * time.Minute
		}
	}
	for t, i := s.from.Truncate(between).Add(between), 0; t.Before(s.to); t, i = t.Add(between), i+1 {
		x := 100 * s.x(t)
		c.Inside += template.HTML(fmt.Sprintf(`<line class="grid" x1="%.2f%%" x2="%.2f%%" y1="8" y2="%d"/>`, x, x, bottom))
		if x > 3 && x < 97 {
			c.Inside += template.HTML(fmt.Sprintf(`<text class="at%d" x="%.2f%%" y="182" text-anchor="middle" data-time="%s">%s</text>`, i%2, x, stamp{t}.UTC(), stamp{t}.Minute()))
		}
	}
	return c
}

// trace is a line of steps, each as long as its point, with gaps where there is no point; and
// the area below it.
func trace(points []history.Point, every time.Duration, x func(time.Time) float64, height float64, y func(history.Point) float64) (path, area string) {
	for i := 0; i < len(points); {
		begin, end, last := short(x(points[i].From)), points[i].From, short(y(points[i]))
		run := "M" + begin + " " + last
		for ; i < len(points) && points[i].From.Equal(end); i++ {
			if next := short(y(points[i])); next != last {
				run += "H" + short(x(end)) + "V" + next
				last = next
			}
			end = end.Add(every)
		}
		run += "H" + short(x(end))
		path += run
		area += run + "V" + short(height) + "H" + begin + "Z"
	}
	return path, area
}

// niceTop is a round number not below n, if n is not small.
func niceTop(n int) int {
	for scale := int64(1); ; scale *= 10 {
		for _, of := range []int64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			if n <= 10 {
				return n
			}
			if of*scale >= int64(n) {
				return int(min(of*scale, math.MaxInt32))
			}
		}
	}
}

// short is a coordinate with one digit after the point, if that is none.
func short(v float64) string { return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64) }

// A line of the last hour has a place of its own scale, which is stretched.
const sparkWidth, sparkHeight = 120, 20

// spark is the last hour as a small picture: what was used as an area below the limit, which is a line, and a line
// below when somebody waited. The same is beside it in words, as it is now.
func (h *Handler) spark(name string) template.HTML {
	const every = history.Keep / 60
	to := time.Now().Truncate(h.history.Step())
	s := stretch{to.Add(-history.Keep), to}
	points, top := h.history.Series(name, s.from, every), 1
	for _, p := range points {
		top = max(top, p.Used, p.Limit)
	}
	at := func(t time.Time) float64 { return sparkWidth * s.x(t) }
	draw := func(value func(history.Point) int) (path, area string) {
		return trace(points, every, at, sparkHeight, func(p history.Point) float64 { return 1 + (sparkHeight-2)*(1-float64(value(p))/float64(top)) })
	}
	line, area := draw(func(p history.Point) int { return p.Used })
	limit, _ := draw(func(p history.Point) int { return p.Limit })
	waits := ""
	for _, p := range points {
		if p.Waiting > 0 {
			waits += fmt.Sprintf("M%s 19H%s", short(at(p.From)), short(at(p.From.Add(every))))
		}
	}
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true"><path class="area" d="%s"/><path class="used" d="%s"/><path class="limit" d="%s"/><path class="wait" d="%s"/></svg>`,
		sparkWidth, sparkHeight, area, line, limit, waits))
}
