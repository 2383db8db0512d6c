package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"sema/access"
	"sema/internal/history"
)

// moment is the time that an address asks for.
type moment struct {
	at   time.Time     // zero: now
	span time.Duration // zero: none is asked for
}

// length is the stretch of time that is shown.
func (m moment) length() time.Duration { return cmp.Or(m.span, usualSpan) }

// asked reports whether an address asks for a moment, or a stretch, at all.
func (m moment) asked() bool { return m != moment{} }

// spans are the stretches of time that a page offers.
var spans = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 72 * time.Hour}

const (
	usualSpan = 15 * time.Minute
	leastSpan = 10 * time.Second
	mostSpan  = 366 * 24 * time.Hour

	// ticks is how many parts the axis of time has.
	ticks = 4

	// chartPoints is how many points a chart has at most, about.
	chartPoints = 120

	// happened is how many events a page lists.
	happened = 20
)

func momentOf(v url.Values) moment {
	m := moment{}
	if span, err := time.ParseDuration(v.Get("span")); err == nil && span >= leastSpan && span <= mostSpan {
		m.span = span
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if at, err := time.Parse(layout, v.Get("at")); err == nil && at.Year() > 1970 && at.Year() < 9999 {
			m.at = at.UTC()
		}
	}
	return m
}

func (m moment) put(v url.Values) {
	if m.span != 0 {
		v.Set("span", tight(m.span))
	}
	if !m.at.IsZero() {
		v.Set("at", m.at.Format(time.RFC3339))
	}
}

// stretch is the time that a page shows.
type stretch struct {
	from, to time.Time
	every    time.Duration // of a point
	at       time.Time     // the moment in its midst, if it is pinned
	pinned   bool
}

// stretch is the time around a moment; without one, the time until now. Its ends are
// where points begin.
func (m moment) stretch(h *history.History) stretch {
	past := stretch{every: h.Every(m.length() / chartPoints), at: m.at, pinned: !m.at.IsZero()}
	end := time.Now()
	if past.pinned {
		end = m.at.Add(m.length() / 2)
	}
	past.to = end.Truncate(past.every).Add(past.every).UTC()
	past.from = past.to.Add(-m.length())
	return past
}

// x is where a time is on a picture of this width.
func (s stretch) x(t time.Time, width float64) float64 {
	return min(width, max(0, width*float64(t.Sub(s.from))/float64(s.to.Sub(s.from))))
}

// stamp is a time on a page: in UTC, and a script may make it local.
type stamp struct{ time.Time }

// UTC is the time for machines.
func (s stamp) UTC() string { return s.Time.UTC().Format(time.RFC3339) }

// Clock is the time of the day.
func (s stamp) Clock() string { return s.Time.UTC().Format("15:04:05") }

// pastView is a stretch of a semaphore's history.
type pastView struct {
	From, To stamp
	Pinned   bool
	Open     bool // the address asks for it
	Span     string
	Times    []stamp // at the axis of time, evenly apart
	Charts   []chart
	Figures  []figure
	Lanes    []lane
	More     int // lanes that are left out
	Lately   []happening
	Problem  string
	Spans    []link
	Earlier  string
	Later    string
	Now      string
}

// figure is a point as a row of a table.
type figure struct {
	stamp
	history.Point
	Longest, P50, P95, P99 string
}

// lane is a visit as a row of the timeline.
type lane struct {
	history.Visit
	Key      string
	HostPage string
	Begin    stamp
	Waited   string
	Held     string
	How      string
	Bad      bool
	Bar      template.HTML
}

func (h *Handler) past(q semaphoreQuery) pastView {
	past := q.stretch(h.history)
	v := pastView{From: stamp{past.from}, To: stamp{past.to}, Pinned: past.pinned, Span: tight(q.length()), Open: q.asked()}
	for i := range time.Duration(ticks + 1) {
		v.Times = append(v.Times, stamp{past.from.Add(past.to.Sub(past.from) * i / ticks)})
	}
	points, err := h.history.Series(q.name, past.from, past.to, past.every)
	points = slices.DeleteFunc(points, func(p history.Point) bool { return p.From.Before(past.from) })
	visits, failed := h.history.Visits(q.name, past.from, past.to)
	changes, alsoFailed := h.history.Changes(q.name, past.from, past.to)
	for _, err := range []error{err, failed, alsoFailed} {
		if err != nil {
			h.options.Log.Error("sema: the history cannot be read", "error", err)
			v.Problem = "The history cannot be read as a whole; the log says why."
		}
	}
	v.Charts = charts(past, points)
	for _, p := range slices.Backward(points) {
		v.Figures = append(v.Figures, figure{
			stamp{p.From}, p, tight(p.Oldest), between(p.Waits, .5), between(p.Waits, .95), between(p.Waits, .99),
		})
	}
	for _, visit := range slices.Backward(visits) {
		if len(v.Lanes) == h.options.Rows {
			v.More = len(visits) - len(v.Lanes)
			break
		}
		v.Lanes = append(v.Lanes, laneOf(past, visit))
	}
	v.Lately = happenings(past, visits, changes)
	for i := range v.Lately {
		other := q
		other.at = v.Lately[i].Time.UTC()
		v.Lately[i].Address = other.address()
	}
	h.waysOn(q, past, &v)
	return v
}

// waysOn are links to other stretches.
func (h *Handler) waysOn(q semaphoreQuery, past stretch, v *pastView) {
	to := func(m moment) string {
		other := q
		other.moment = m
		return other.address()
	}
	for _, span := range spans {
		l := link{Label: tight(span), Address: to(moment{q.at, span})}
		if span == q.length() {
			l.Class = "here"
		}
		v.Spans = append(v.Spans, l)
	}
	span := q.length()
	middle := past.from.Add(span / 2)
	v.Earlier = to(moment{middle.Add(-span / 2).Truncate(time.Second), span})
	if past.pinned {
		v.Now = to(moment{span: span})
		v.Later = to(moment{middle.Add(span / 2).Truncate(time.Second), span})
	}
}

// between is where a quantile of waits lies, in words.
func between(w history.Waits, q float64) string {
	from, to := w.Bounds(q)
	switch {
	case w.Count() == 0:
		return "–"
	case from == 0:
		return "under " + tight(to)
	case to == history.NoBound:
		return tight(from) + " or more"
	}
	return tight(from) + " to " + tight(to)
}

var ends = map[history.End]string{
	history.Here: "goes on", history.Released: "gave it back", history.Ended: "its lease may have ended",
	history.Left: "left the queue, no permit seen", history.Unseen: "went while nobody looked",
}

func laneOf(past stretch, v history.Visit) lane {
	now := time.Now()
	end := v.Gone
	if end.IsZero() {
		end = now
	}
	l := lane{Visit: v, Key: v.ID + v.From().Format(time.RFC3339Nano), HostPage: hostAddress(v.Client.Host), Begin: stamp{v.From()}, Waited: "–", Held: "–", How: ends[v.End], Bad: v.End == history.Ended}
	waitEnd := end
	if !v.Granted.IsZero() {
		waitEnd = v.Granted
		l.Held = brief(end.Sub(v.Granted))
	}
	const width = 200
	var b strings.Builder
	b.WriteString(`<svg class="lane" viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true"><rect class="rail" y="4" width="200" height="2"/>`)
	part := func(class string, from, to time.Time) {
		x := past.x(from, width)
		fmt.Fprintf(&b, `<rect class="%s" x="%s" y="1" width="%s" height="8"/>`, class, short(x), short(max(1, past.x(to, width)-x)))
	}
	if !v.Came.IsZero() {
		l.Waited = brief(waitEnd.Sub(v.Came))
		part("waited", v.Came, waitEnd)
	}
	if !v.Granted.IsZero() {
		class := "held"
		if v.End == history.Ended {
			class = "held bad"
		}
		part(class, v.Granted, end)
	}
	b.WriteString(`</svg>`)
	l.Bar = template.HTML(b.String())
	return l
}

// happening is something that happened, in words.
type happening struct {
	stamp
	Who, Text string
	Address   string // of the moment
}

// happenings are the last that happened in a stretch, the newest first.
func happenings(past stretch, visits []history.Visit, changes []access.Record) []happening {
	var list []happening
	add := func(t time.Time, who, text string) {
		if !t.Before(past.from) && !t.After(past.to) {
			list = append(list, happening{stamp: stamp{t}, Who: who, Text: text})
		}
	}
	for _, v := range visits {
		who := v.Client.Label
		if v.Client.Caller != "" {
			who = strings.TrimSpace(who + " " + v.Client.Caller)
		}
		if who == "" {
			who = v.ID
		}
		if v.Key != "" {
			who += " for " + v.Key
		}
		if !v.Came.IsZero() {
			add(v.Came, who, "waits")
		}
		if !v.Granted.IsZero() {
			text := "holds a permit"
			if waited := v.Granted.Sub(v.Came); !v.Came.IsZero() && waited >= time.Second {
				text += " after a wait of " + brief(waited)
			}
			add(v.Granted, who, text)
		}
		switch v.End {
		case history.Released, history.Unseen:
			add(v.Gone, who, "has no permit any more, after "+brief(v.Gone.Sub(v.From())))
		case history.Ended:
			add(v.Gone, who, "has no permit any more, after "+brief(v.Gone.Sub(v.From()))+"; its lease may have ended")
		case history.Left:
			add(v.Gone, who, "left the queue after "+brief(v.Gone.Sub(v.From())))
		}
	}
	for _, c := range changes {
		add(c.Time, c.Who, changeText(c))
	}
	slices.SortStableFunc(list, func(a, b happening) int { return b.Compare(a.Time) })
	return list[:min(happened, len(list))]
}

func changeText(c access.Record) string {
	text := ""
	switch c.What {
	case "limit":
		var with []string
		if c.Caps != nil {
			with = append(with, capsOf(c.Caps))
		}
		if c.Pools != "" {
			with = append(with, "pools "+string(c.Pools))
		}
		if c.Limit == 0 && len(with) > 0 { // the limit stays as it is
			text = "sets " + strings.Join(with, " and ")
			break
		}
		text = fmt.Sprintf("the limit is %d", c.Limit)
		if c.Who != "" {
			text = fmt.Sprintf("sets the limit to %d", c.Limit)
		}
		if len(with) > 0 {
			text += ", with " + strings.Join(with, " and ")
		}
	case "set-key":
		var to []string
		if c.Cap > 0 {
			to = append(to, capOf(c.Cap))
		}
		if c.Share > 0 {
			to = append(to, fmt.Sprintf("a share of %d", c.Share))
		}
		text = fmt.Sprintf("sets key %s to %s", c.Key, strings.Join(to, " and "))
	case "unset-key":
		text = "unsets cap and share of key " + c.Key.String()
	case "paused", "unpaused":
		text = "grants are " + c.What
	case "removed":
		text = "nobody uses it any more"
	case "revoke", "release":
		text = c.What + "s permit " + c.Permit
	case "adapt":
		text = fmt.Sprintf("adapts the limit to %d", c.Limit)
	case "unset-limit":
		text = "unsets the limit"
	default:
		text = c.What + "s it"
	}
	if c.Result != "" && c.Result != "done" {
		text += ": " + c.Result
	}
	return text
}
