package dashboard

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/history"
	"sema/internal/view"
)

// brief is a duration in whole units, the two largest.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd %02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// idEnd is how many characters of a long id are shown of its beginning, and of its end.
const idEnd = 8

// briefID is an id without its middle, if it has more than 17 characters. The ends tell
// apart: UUIDs in the order of time begin alike, as do the permits of a process.
func briefID(id string) string { return briefTo(id, idEnd) }

// briefTo is an id, if it has more than 17 characters, with so many at each end.
func briefTo(id string, end int) string {
	r := []rune(id)
	if len(r) <= 2*idEnd+1 {
		return id
	}
	return string(r[:end]) + "…" + string(r[len(r)-end:])
}

// briefKey is a key as view.Title says it, with brief names: several are half as long, to fit into a line together.
func briefKey(key engine.Key) string {
	names := key.Names()
	for i, name := range names {
		names[i] = briefTo(name, idEnd/min(len(names), 2))
	}
	return view.Title(engine.Key(strings.Join(names, engine.KeySeparator)))
}

// briefWhy is a text that has a key, or those above it, in it, with brief names.
func briefWhy(text string, key engine.Key) string {
	for n := len(key.Names()); n > 0; n-- {
		part := key.First(n)
		text = strings.ReplaceAll(text, part.String(), briefKey(part))
	}
	return text
}

// stamp is a time on a page: in UTC, and a script may make it local.
type stamp struct{ time.Time }

// UTC is the time for machines.
func (s stamp) UTC() string { return s.Time.UTC().Format(time.RFC3339) }

// Clock is the time of the day.
func (s stamp) Clock() string { return s.Time.UTC().Format("15:04:05") }

// count is a number and what it counts.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

const barWidth = 100

// bar is use against limit as a picture. The same is beside it in words.
func bar(used, limit int) template.HTML {
	width := 0
	if limit > 0 {
		width = int(min(barWidth, int64(used)*barWidth/int64(limit))) // a limit fills 31 bits
	}
	if used > 0 {
		width = max(width, 2)
	}
	class := "fill"
	if used > limit { // a full one is no trouble
		class = "fill bad"
	}
	return template.HTML(fmt.Sprintf(`<svg class="bar" viewBox="0 0 %d 8" preserveAspectRatio="none" aria-hidden="true">`+
		`<rect class="rail" width="%d" height="8"/><rect class="%s" width="%d" height="8"/></svg>`, barWidth, barWidth, class, width))
}

const sparkWidth, sparkHeight = 120, 28

// sparkSteps is how many of a history's steps a line of the last minutes shows: five
// minutes, unless its steps are others than usual.
const sparkSteps = 30

func (h *Handler) spark(name string) template.HTML {
	over := sparkSteps * h.history.Step()
	return spark(h.history.Series(name, time.Now().Add(-over), h.history.Step()), over)
}

// spark is the last minutes as a picture: what was used as an area below the
// limit, which is a line, and those who waited as a line of their own scale.
func spark(samples []history.Point, over time.Duration) template.HTML {
	if len(samples) < 2 {
		return `<span class="none">–</span>`
	}
	top, most, least, crowd := 1, 0, samples[0].Used, 0
	for _, s := range samples {
		top = max(top, s.Used, s.Limit)
		most, least, crowd = max(most, s.Used), min(least, s.Used), max(crowd, s.Waiting)
	}
	end := samples[len(samples)-1].From
	at := func(s history.Point) float64 { return sparkWidth * (1 - float64(end.Sub(s.From))/float64(over)) }
	line := func(of int, value func(history.Point) int) string {
		var b strings.Builder
		letter := 'M'
		for i, s := range samples {
			v := value(s)
			if i > 0 && i < len(samples)-1 && value(samples[i-1]) == v && value(samples[i+1]) == v {
				continue // in the midst of a level stretch
			}
			fmt.Fprintf(&b, "%c%s %s", letter, short(at(s)), short(1+(sparkHeight-2)*(1-float64(v)/float64(of))))
			letter = 'L'
		}
		return b.String()
	}
	used := line(top, func(s history.Point) int { return s.Used })
	area := fmt.Sprintf("%sL%d %dL%s %dZ", used, sparkWidth, sparkHeight, short(at(samples[0])), sparkHeight)
	limit := line(top, func(s history.Point) int { return s.Limit })
	span := end.Sub(samples[0].From)
	label := fmt.Sprintf("in the last %s %d to %d of %d used, up to %d waiting", brief(span), least, most, samples[len(samples)-1].Limit, crowd)
	waiting := ""
	if crowd > 0 {
		waiting = `<path class="queue" d="` + line(crowd, func(s history.Point) int { return s.Waiting }) + `"/>`
	}
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" role="img" aria-label="%s">`+
		`<path class="area" d="%s"/><path class="used" d="%s"/><path class="limit" d="%s"/>%s</svg>`, sparkWidth, sparkHeight, label, area, used, limit, waiting))
}

// short is a coordinate with one digit after the point.
func short(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
