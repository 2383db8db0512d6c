package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// world is one run: a clock, a queue of events, a server and its clients.
type world struct {
	plan
	rng     *rand.Rand
	now     int64 // microseconds of true time
	queue   []event
	order   uint64 // of the last event scheduled
	server  *server
	nodes   []*node
	users   []*user
	check   checker
	back    int64 // by how much the server's clock went back: leases last longer by that
	ending  bool  // no new callers, no new faults
	starts  int   // callers with priority that have come
	steps   int   // events carried out
	grants  int
	longest int64 // that a caller waited
	tracing bool
	lines   []string // the last ones, if tracing
	failure error
}

// event is something that happens at a time.
type event struct {
	at    int64
	order uint64 // among those of one time
	do    func()
}

func (a event) before(b event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// after has f done some microseconds from now.
func (w *world) after(us int64, f func()) {
	w.order++
	w.queue = append(w.queue, event{w.now + max(0, us), w.order, f})
	for i := len(w.queue) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.queue[i].before(w.queue[up]) {
			break
		}
		w.queue[i], w.queue[up] = w.queue[up], w.queue[i]
		i = up
	}
}

// pop takes the next event.
func (w *world) pop() event {
	first, last := w.queue[0], len(w.queue)-1
	w.queue[0] = w.queue[last]
	w.queue[last] = event{}
	w.queue = w.queue[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down+1 < last && w.queue[down+1].before(w.queue[down]) {
			down++
		}
		if down >= last || !w.queue[down].before(w.queue[i]) {
			return first
		}
		w.queue[i], w.queue[down] = w.queue[down], w.queue[i]
		i = down
	}
}

// run carries out events until a time, or a failure.
func (w *world) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.failure == nil && w.steps < w.enough {
		e := w.pop()
		w.now = e.at
		w.steps++
		e.do()
	}
	if len(w.queue) == 0 || w.queue[0].at > until {
		w.now = max(w.now, until)
	}
}

// between is a number of lo … hi.
func (w *world) between(lo, hi int64) int64 { return lo + w.rng.Int64N(max(1, hi-lo+1)) }

// chance is true once in n times; never if n is 0.
func (w *world) chance(n int) bool { return n > 0 && w.rng.IntN(n) == 0 }

// fail ends the run.
func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("at %v: %s", w.time(), fmt.Sprintf(format, args...))
	}
}

func (w *world) time() time.Duration { return micros(w.now) }

// trace notes what happens. Formatting costs, so callers ask tracing first.
func (w *world) trace(format string, args ...any) {
	const kept = 40000
	if len(w.lines) >= 2*kept {
		w.lines = append(w.lines[:0], w.lines[kept:]...)
	}
	w.lines = append(w.lines, fmt.Sprintf("%12v  %s", w.time(), fmt.Sprintf(format, args...)))
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
