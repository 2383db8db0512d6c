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

// fleet is processes that share one semaphore, whose limit internal/adapt finds.
type fleet struct {
	model       model
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

func newFleet(m model) *fleet {
	f := &fleet{model: m, reported: map[string]report{}, limit: start, least: start, most: start}
	for i := range max(1, m.leaders) {
		f.controllers = append(f.controllers, f.leader(time.Duration(i)*adapt.Window/3))
	}
	return f
}

// leader is a controller that begins at a time.
func (f *fleet) leader(at time.Duration) *leader {
	return &leader{Controller: adapt.Controller{Min: smallest, Max: largest}, due: at, ends: at + f.model.reign}
}

// begin is called when a call of a process begins.
func (f *fleet) begin(p int, waited bool) {
	f.used++
	if waited {
		f.totals[p].Waited++
	}
}

// end is called when one has ended.
func (f *fleet) end(p int, took time.Duration, bad bool) {
	f.used--
	if f.model.each {
		defer func() {
			f.ended++
			f.late = append(f.late, report{strconv.Itoa(f.ended), f.now, f.totals[p]})
			f.totals[p] = protocol.Totals{}
		}()
	}
	if bad || p < f.model.liars {
		f.totals[p].Bad += took.Microseconds()
	} else {
		f.totals[p].Good += took.Microseconds()
	}
}

// step lets processes report and controllers decide, and returns when it has to be called again.
func (f *fleet) step(at time.Duration, rng *rand.Rand) time.Duration {
	f.now = at
	dead := 0
	if f.model.mute != nil {
		dead = f.model.mute(at)
	}
	next := at + time.Hour
	for p, due := range f.due {
		if at == 0 {
			f.due[p] = time.Duration(rng.Int64N(int64(reporting)))
		} else if due <= at {
			if p < processes-dead && !f.model.each {
				f.late = append(f.late, report{strconv.Itoa(p), at + f.model.late + time.Duration(rng.Int64N(int64(10*time.Millisecond))), f.totals[p]})
			}
			f.due[p] += reporting
		}
		next = min(next, f.due[p])
	}
	for i, l := range f.controllers {
		if l.due <= at {
			f.decide(l, at)
			l.due += adapt.Window
		}
		if f.model.reign > 0 && l.ends <= at {
			l = f.leader(at + lease)
			f.controllers[i] = l
		}
		next = min(next, l.due)
	}
	return next
}

func (f *fleet) decide(l *leader, at time.Duration) {
	rest := f.late[:0]
	for _, r := range f.late {
		if r.seen <= at {
			f.reported[r.client] = r
		} else {
			rest = append(rest, r)
		}
	}
	f.late = rest
	totals := map[string]protocol.Totals{}
	for client, r := range f.reported {
		if at-r.seen < time.Minute {
			totals[client] = r.totals
		} else { // it is forgotten
			delete(f.reported, client)
		}
	}
	f.limit = l.Decide(at, f.limit, totals).Limit
	f.least, f.most = min(f.least, f.limit), max(f.most, f.limit)
}
