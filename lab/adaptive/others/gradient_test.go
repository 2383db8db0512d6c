// Package others has limiters of others, each of one process, on the fleets and servers
// of package adaptive.
package others

import (
	"math"
	"time"
)

// gradient is a limiter after the descriptions in "Performance Under Load" (Netflix
// Technology Blog, 2018) and in the documentation of concurrency-limits'
// Gradient2Limit, written anew, with the defaults named there. In each window of a
// second it compares the average time of calls with the long-term average of 600
// windows, and adapts the limit. It leaves room for a queue of four.
type gradient struct {
	limit, least, most float64
	long               float64 // seconds
	seen               int     // windows
	window             time.Duration

	sum        time.Duration // of this window
	calls      int
	inflight   int
	mostAtOnce int
	ends       time.Duration
	now        time.Duration
}

const (
	longWindow = 600
	warmUp     = 10
	smoothing  = 0.2
	room       = 4
)

func newGradient(least, most, first int) *gradient {
	return &gradient{limit: float64(first), least: float64(least), most: float64(most), window: time.Second, ends: time.Second}
}

func (g *gradient) Limit() int { return int(g.limit) }

func (g *gradient) Free() bool { return g.inflight < g.Limit() }

func (g *gradient) Begin() {
	g.inflight++
	g.mostAtOnce = max(g.mostAtOnce, g.inflight)
}

// End takes in a call. Its algorithm knows times alone.
func (g *gradient) End(took time.Duration) {
	g.inflight--
	g.sum += took
	g.calls++
}

func (g *gradient) Pass(d time.Duration) {
	g.now += d
	if g.now < g.ends {
		return
	}
	g.ends = g.now + g.window
	if g.calls == 0 {
		return
	}
	short := g.sum.Seconds() / float64(g.calls)
	atOnce := float64(g.mostAtOnce)
	g.sum, g.calls, g.mostAtOnce = 0, 0, g.inflight
	g.seen++
	if g.seen <= warmUp {
		g.long += (short - g.long) / float64(g.seen)
	} else {
		g.long += (short - g.long) * 2 / (longWindow + 1)
	}
	if g.long > 2*short { // after a long time of load the average comes back sooner
		g.long *= 0.9
	}
	if atOnce < g.limit/2 {
		return
	}
	slope := max(0.5, min(1, g.long/short))
	next := g.limit*(1-smoothing) + (g.limit*slope+room)*smoothing
	g.limit = math.Max(g.least, math.Min(g.most, next))
}
