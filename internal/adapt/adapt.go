// Package adapt finds the limit of a semaphore from what its holders say of how
// their holds went. It is a pure machine: time and totals come in, a decision comes
// out, with the sentence that explains it.
//
// Holders report weight × time held, and not calls. A refusal takes a tenth of the
// time of a call, so counting calls would overstate overload ten times. By time the
// bad part is the part of the limit that was too much.
package adapt

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"sema/engine"
)

// Window is how long the controller looks before each decision. What was held
// longer counts when it ends.
const Window = 2 * time.Second

const (
	pause     = Window + Window/2 // after a cut: what was in flight then speaks of the old limit
	tolerated = 0.02              // the bad part of the time held that is no overload
	enough    = 0.05              // of limit × window: less than that held says nothing
	most      = 0.5               // no window takes away more of the limit
	below     = 0.97              // a cut goes a little further than the bad part
	mostKnown = 100_000           // clients, after which it begins anew
	fewest    = 3                 // clients, from which on the worst of them are left out
)

// Controller decides about one limit. It keeps nothing that a successor cannot do
// without: one that takes over waits for a window.
type Controller struct {
	Min, Max int // the range of the limit

	before map[string]engine.Totals // as they were last seen, of those that are gone as well
	pause  time.Duration            // until when nothing is decided
	cut    int                      // the limit that was too much, last; 0: none was yet
	clean  int                      // windows since then that went well
}

// Decision is what follows from a window.
type Decision struct {
	Limit int     // what the limit is to be
	Bad   float64 // the part of the time held that was bad, 0 … 1
	Why   string  // in a sentence
}

// Decide takes in the totals of all clients at the end of a window, and the limit
// that held in it.
func (c *Controller) Decide(now time.Duration, limit int, totals map[string]engine.Totals) Decision {
	first := c.before == nil
	good, bad, waited, seen := c.window(totals)
	d := Decision{Limit: min(max(limit, c.Min), c.Max)}
	if d.Limit != limit {
		d.Why = fmt.Sprintf("%d is not in %d…%d", limit, c.Min, c.Max)
		return d
	}
	held := good + bad
	if held > 0 {
		d.Bad = float64(bad) / float64(held)
	}
	switch {
	case first:
		d.Why = "begins to look"
	case seen == 0:
		d.Why = "nobody reports"
	case float64(held) < enough*float64(limit)*float64(Window.Microseconds()):
		d.Why = "too little was held to tell"
	case now < c.pause:
		d.Why = "waits for the effect of the last cut"
	case d.Bad > tolerated:
		c.cut, c.clean, c.pause = limit, 0, now+pause
		d.Limit = max(c.Min, min(limit-1, int(math.Round(float64(limit)*max(most, 1-d.Bad)*below))))
		d.Why = fmt.Sprintf("%s of the time held was bad in the last window", Percent(d.Bad))
	default:
		c.clean++
		d.Limit, d.Why = c.grown(limit, waited)
	}
	return d
}

// grown is the next limit after a window that went well, and why.
func (c *Controller) grown(limit int, waited int64) (int, string) {
	next := limit
	switch {
	case waited == 0:
		return limit, "the limit kept nobody waiting"
	case c.cut == 0:
		next = limit + max(1, limit/2)
	case limit >= c.cut-1 && limit <= c.cut: // where it was too much before
		if c.clean%4 != 0 {
			return limit, fmt.Sprintf("%d was too much before", c.cut)
		}
		next = limit + 1
	case c.clean > 8:
		next = limit + max(1, limit/5)
	default:
		next = limit + max(1, limit/20)
	}
	if limit < c.cut-1 { // and goes slowly where it was too much before
		next = min(next, c.cut-1)
	}
	return min(next, c.Max), "the window went well, and callers waited"
}

// share is what a client reported within a window.
type share struct {
	client    string
	good, bad int64
}

// window adds up what the clients reported since the last one, but for those that
// did worst: one that fails for reasons of its own, or lies, is not to lower the
// limit of all. One that was not there before counts with all that it has held: it may
// be a command that reports once, at its end.
func (c *Controller) window(totals map[string]engine.Totals) (good, bad, waited int64, seen int) {
	var shares []share
	if c.before == nil || len(c.before) > mostKnown {
		c.before = maps.Clone(totals)
		return 0, 0, 0, 0
	}
	for client, t := range totals {
		b := c.before[client]
		c.before[client] = engine.Totals{Good: max(b.Good, t.Good), Bad: max(b.Bad, t.Bad), Waited: max(b.Waited, t.Waited)}
		seen++
		waited += max(0, t.Waited-b.Waited)
		if s := (share{client, max(0, t.Good-b.Good), max(0, t.Bad-b.Bad)}); s.good+s.bad > 0 {
			shares = append(shares, s)
		}
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.part(), a.part()), cmp.Compare(a.client, b.client))
	})
	if n := len(shares); n >= fewest {
		shares = shares[max(1, n/10):]
	}
	for _, s := range shares {
		good, bad = good+s.good, bad+s.bad
	}
	return good, bad, waited, seen
}

// part is the bad part of what a client held.
func (s share) part() float64 { return float64(s.bad) / float64(s.good+s.bad) }

// Percent writes a part of 0 … 1 for people.
func Percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
