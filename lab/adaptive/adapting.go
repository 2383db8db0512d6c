package adaptive

import (
	"math/rand/v2"
	"strconv"
	"time"

	"sema/internal/adapt"
	"sema/internal/protocol"
)

const (
	smallest  = 2
	largest   = 500
	reporting = adapt.Window / 4
	lease     = 5 * time.Second // of the permit to decide
)

// Adapting is a fleet that shares one semaphore, whose limit internal/adapt finds.
type Adapting struct {
	model       Model
	controllers []*leader
	limit, used int
	now         time.Duration
	least, most int // that the limit was

	totals   [processes]protocol.Totals
	reported map[string]report // by client
	late     []report
	due      [processes]time.Duration // when each process reports next
	ended    int                      // processes of one call
}

// leader is a controller, and when it decides next.
type leader struct {
	adapt.Controller
	due, ends time.Duration
}

// report is what a process said, and when the controllers can see it.
type report struct {
	client string
	seen   time.Duration
	totals protocol.Totals
}

// NewAdapting is such a fleet.
func NewAdapting(m Model) *Adapting {
	a := &Adapting{model: m, reported: map[string]report{}, limit: start, least: start, most: start}
	for i := range max(1, m.Leaders) {
		a.controllers = append(a.controllers, a.leader(time.Duration(i)*adapt.Window/3))
	}
	return a
}

// leader is a controller that begins at a time.
func (a *Adapting) leader(at time.Duration) *leader {
	return &leader{Controller: adapt.Controller{Min: smallest, Max: largest}, due: at, ends: at + a.model.Reign}
}

// Limit implements Fleet.
func (a *Adapting) Limit() int { return a.limit }

// Free implements Fleet.
func (a *Adapting) Free(int) bool { return a.used < a.limit }

// Begin implements Fleet.
func (a *Adapting) Begin(p int, waited bool) {
	a.used++
	if waited {
		a.totals[p].Waited++
	}
}

// End implements Fleet.
func (a *Adapting) End(p int, took time.Duration, bad bool) {
	a.used--
	if a.model.Each {
		defer func() {
			a.ended++
			a.late = append(a.late, report{strconv.Itoa(a.ended), a.now, a.totals[p]})
			a.totals[p] = protocol.Totals{}
		}()
	}
	if bad || p < a.model.Liars {
		a.totals[p].Bad += took.Microseconds()
	} else {
		a.totals[p].Good += took.Microseconds()
	}
}

// Now implements Fleet: processes report, and controllers decide.
func (a *Adapting) Now(at time.Duration, rng *rand.Rand) time.Duration {
	a.now = at
	dead := 0
	if a.model.Mute != nil {
		dead = a.model.Mute(at)
	}
	next := at + time.Hour
	for p, due := range a.due {
		if at == 0 {
			a.due[p] = time.Duration(rng.Int64N(int64(reporting)))
		} else if due <= at {
			if p < processes-dead && !a.model.Each {
				a.late = append(a.late, report{strconv.Itoa(p), at + a.model.Late + time.Duration(rng.Int64N(int64(10*time.Millisecond))), a.totals[p]})
			}
			a.due[p] += reporting
		}
		next = min(next, a.due[p])
	}
	for i, l := range a.controllers {
		if l.due <= at {
			a.decide(l, at)
			l.due += adapt.Window
		}
		if a.model.Reign > 0 && l.ends <= at {
			l = a.leader(at + lease)
			a.controllers[i] = l
		}
		next = min(next, l.due)
	}
	return next
}

func (a *Adapting) decide(l *leader, at time.Duration) {
	rest := a.late[:0]
	for _, r := range a.late {
		if r.seen <= at {
			a.reported[r.client] = r
		} else {
			rest = append(rest, r)
		}
	}
	a.late = rest
	totals := map[string]protocol.Totals{}
	for client, r := range a.reported {
		if at-r.seen < time.Minute {
			totals[client] = r.totals
		} else { // it is forgotten
			delete(a.reported, client)
		}
	}
	a.limit = l.Decide(at, a.limit, totals).Limit
	a.least, a.most = min(a.least, a.limit), max(a.most, a.limit)
}
