// Package adapt adjusts the limit of a semaphore to its holders' reports. It is a pure
// function of time and totals. Each decision has a sentence that explains it.
//
// Holders report weight × time held instead of numbers of calls. A refused call takes a
// tenth of the time of a successful one, so a count would overstate overload ten times.
// Measured by time, the bad part equals the part of the limit that was too much.
package adapt

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"sema/internal/protocol"
)

// Window is the time between two decisions. A hold counts in the window in which it ends.
const Window = 2 * time.Second

const (
	pause      = Window + Window/2 // no decision for so long after a cut: earlier holds had the old limit
	tolerated  = 0.02              // a bad part of the time held up to this is no overload
	minHeld    = 0.05              // less time held, as a part of limit × window, is too little for a decision
	minKept    = 0.5               // a cut leaves at least this part of the limit
	cutFurther = 0.97              // a cut multiplies the good part of the limit by this
	maxClients = 100_000           // known clients; above that the controller forgets them and starts again
	minClients = 3                 // with so many clients, the worst tenth of them does not count
)

// Controller decides about one limit. A successor can start without its state: it only
// waits for one window.
type Controller struct {
	Min, Max int // the range of the limit

	before map[string]protocol.Totals // the last totals of each client, also of clients that have gone
	pause  time.Duration              // no decision before this time
	cut    int                        // the limit before the last cut; 0: there was none
	clean  int                        // windows without overload since then
}

// Decision is the result of a window.
type Decision struct {
	Limit int     // the new limit
	Bad   float64 // the bad part of the time held, 0 … 1
	Why   string  // the reason, as a sentence
}

// Decide decides at the end of a window. limit was in force during the window, and totals
// are those of all clients.
func (c *Controller) Decide(now time.Duration, limit int, totals map[string]protocol.Totals) Decision {
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
	case float64(held) < minHeld*float64(limit)*float64(Window.Microseconds()):
		d.Why = "too little was held to tell"
	case now < c.pause:
		d.Why = "waits for the effect of the last cut"
	case d.Bad > tolerated:
		c.cut, c.clean, c.pause = limit, 0, now+pause
		d.Limit = max(c.Min, min(limit-1, int(math.Round(float64(limit)*max(minKept, 1-d.Bad)*cutFurther))))
		d.Why = fmt.Sprintf("%s of the time held was bad in the last window", Percent(d.Bad))
	default:
		c.clean++
		d.Limit, d.Why = c.grown(limit, waited)
	}
	return d
}

// grown returns the limit after a window without overload, and the reason.
func (c *Controller) grown(limit int, waited int64) (int, string) {
	next := limit
	switch {
	case waited == 0:
		return limit, "the limit kept nobody waiting"
	case c.cut == 0:
		next = limit + max(1, limit/2)
	case limit >= c.cut-1 && limit <= c.cut: // close to the limit of the last overload
		if c.clean%4 != 0 {
			return limit, fmt.Sprintf("%d was too much before", c.cut)
		}
		next = limit + 1
	case c.clean > 8:
		next = limit + max(1, limit/5)
	default:
		next = limit + max(1, limit/20)
	}
	if limit < c.cut-1 { // stop there, to grow more slowly
		next = min(next, c.cut-1)
	}
	return min(next, c.Max), "the window went well, and callers waited"
}

// share is what a client reported within a window.
type share struct {
	client    string
	good, bad int64
}

// window adds up the clients' reports since the last window. It leaves out the clients with
// the largest bad part, so that one with a problem of its own, or with false reports, does
// not lower the limit for all. A new client counts with its whole totals: it may be a
// command that reports once, at its end.
func (c *Controller) window(totals map[string]protocol.Totals) (good, bad, waited int64, seen int) {
	var shares []share
	if c.before == nil || len(c.before) > maxClients {
		c.before = maps.Clone(totals)
		return 0, 0, 0, 0
	}
	for client, t := range totals {
		b := c.before[client]
		c.before[client] = protocol.Totals{Good: max(b.Good, t.Good), Bad: max(b.Bad, t.Bad), Waited: max(b.Waited, t.Waited)}
		seen++
		waited += max(0, t.Waited-b.Waited)
		if s := (share{client, max(0, t.Good-b.Good), max(0, t.Bad-b.Bad)}); s.good+s.bad > 0 {
			shares = append(shares, s)
		}
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.part(), a.part()), cmp.Compare(a.client, b.client))
	})
	if n := len(shares); n >= minClients {
		shares = shares[max(1, n/10):]
	}
	for _, s := range shares {
		good, bad = good+s.good, bad+s.bad
	}
	return good, bad, waited, seen
}

// part is the bad part of a client's time held.
func (s share) part() float64 { return float64(s.bad) / float64(s.good+s.bad) }

// Percent formats a part of 0 … 1, such as "12.5 %".
func Percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
