// Package adaptive is a fleet of processes that share a server whose capacity they do
// not know, in virtual time, from one seed: what package internal/adapt is tried on.
package adaptive

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"

	"sema/internal/adapt"
)

// model is what a fleet and its server are like.
type model struct {
	of      func(at time.Duration) int // the server's capacity
	slow    bool                       // beyond its capacity it serves all slower, and refuses nobody
	callers func(at time.Duration) int // so many of each process call, all the time; nil: more than any limit
	long    time.Duration              // of the run
	calm    time.Duration              // from when on it is measured

	late    time.Duration              // how old the reports are that the controller sees
	liars   int                        // so many processes call everything bad
	mute    func(at time.Duration) int // so many processes report no longer; nil: none
	each    bool                       // each call is a process of its own, and reports once, when it ends
	leaders int                        // so many controllers at once, which know nothing of each other; 0: one
	reign   time.Duration              // after which another controller takes over; 0: never
}

const (
	service   = 200 * time.Millisecond // a call takes, on average
	refusal   = 20 * time.Millisecond
	goal      = 3 * service // a slow server's calls are bad from here on
	processes = 20
	callers   = 40 // of each process, at the most
	start     = 10 // the limit at first
	sampling  = 100 * time.Millisecond
)

// When something changes in a model in which something does, and changes again.
const (
	then  = 120 * time.Second
	later = 240 * time.Second
	end   = 360 * time.Second
)

// result is what a run came to. Parts are of the time from model.calm on.
type result struct {
	mean        float64 // of the limit
	least, most int     // that it was
	used        float64 // of the capacity
	refused     float64 // of the time that permits were held
	down, up    int     // windows from then until the limit is no longer too high, and from later until it is high enough
}

// call is one that is under way.
type call struct {
	process int
	began   time.Duration
	ends    float64 // by the server's own clock, in seconds; of a refused one by the world's
	refused bool
}

type calls []*call

func (c calls) Len() int           { return len(c) }
func (c calls) Less(i, j int) bool { return c[i].ends < c[j].ends }
func (c calls) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *calls) Push(x any)        { *c = append(*c, x.(*call)) }
func (c *calls) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

// caller is one that waits.
type caller struct {
	number int // in the order they came
	came   time.Duration
}

// world is one run.
type world struct {
	model
	rng     *rand.Rand
	fleet   *fleet
	now     time.Duration
	clock   float64 // of the server: it goes slower when it is slow
	served  calls
	refused calls
	waiting [processes][]caller
	came    int            // callers so far
	called  [processes]int // callers of each that wait or call
	held    int

	result                                                             result
	timeHeld, timeRefused, timeServed, timeCapacity, sumLimit, sumTime float64
}

// run is one run of a model from a seed.
func run(m model, seed uint64) result {
	w := &world{model: m, rng: rand.New(rand.NewPCG(seed, 0xada)), fleet: newFleet(m)}
	w.comeAll()
	sample := sampling
	due := w.fleet.step(0, w.rng)
	for w.now < m.long {
		w.admit()
		next := min(due, sample)
		ended := w.next()
		if ended != nil {
			if t := w.when(ended); t <= next {
				next = max(t, w.now)
			} else {
				ended = nil
			}
		}
		w.pass(next)
		switch {
		case ended != nil:
			w.end(ended)
		case next == due:
			due = w.fleet.step(w.now, w.rng)
		default:
			w.sample()
			w.comeAll()
			sample += sampling
		}
	}
	r := &w.result
	r.least, r.most = w.fleet.least, w.fleet.most
	r.mean, r.used, r.refused = w.sumLimit/w.sumTime, w.timeServed/w.timeCapacity, w.timeRefused/max(w.timeHeld, 1e-9)
	return *r
}

// comeAll has callers come that do not call yet, and should.
func (w *world) comeAll() {
	for p := range w.called {
		for w.called[p] < w.wanted() {
			w.called[p]++
			w.come(p)
		}
	}
}

// wanted is how many callers of each process are to call.
func (w *world) wanted() int {
	if w.callers == nil {
		return callers
	}
	return min(callers, w.callers(w.now))
}

// come has a caller of a process wait.
func (w *world) come(p int) {
	w.came++
	w.waiting[p] = append(w.waiting[p], caller{w.came, w.now})
}

// admit begins the calls that may begin, of those that have waited longest.
func (w *world) admit() {
	for {
		first := -1
		for p, line := range w.waiting {
			if len(line) > 0 && (first < 0 || line[0].number < w.waiting[first][0].number) && w.fleet.used < w.fleet.limit {
				first = p
			}
		}
		if first < 0 {
			return
		}
		c := w.waiting[first][0]
		w.waiting[first] = w.waiting[first][1:]
		w.begin(first, c.came < w.now)
	}
}

func (w *world) begin(p int, waited bool) {
	w.fleet.begin(p, waited)
	w.held++
	c := &call{process: p, began: w.now}
	if !w.slow && len(w.served) >= w.of(w.now) {
		c.refused, c.ends = true, (w.now + refusal).Seconds()
		heap.Push(&w.refused, c)
		return
	}
	work := 0.0 // of four parts, so that few calls are much longer than most
	for range 4 {
		work += w.rng.ExpFloat64() * service.Seconds() / 4
	}
	c.ends = w.clock + work
	heap.Push(&w.served, c)
}

// pace is how fast the server's clock goes.
func (w *world) pace() float64 {
	if !w.slow {
		return 1
	}
	return min(1, float64(w.of(w.now))/float64(max(1, len(w.served))))
}

// next is the call that ends first.
func (w *world) next() *call {
	switch {
	case len(w.served) == 0 && len(w.refused) == 0:
		return nil
	case len(w.refused) == 0:
		return w.served[0]
	case len(w.served) == 0 || w.when(w.refused[0]) < w.when(w.served[0]):
		return w.refused[0]
	}
	return w.served[0]
}

func (w *world) when(c *call) time.Duration {
	if c.refused {
		return seconds(c.ends)
	}
	return w.now + seconds((c.ends-w.clock)/w.pace())
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s * 1e9)) }

// pass has time go on, and measures it.
func (w *world) pass(to time.Duration) {
	d := (to - w.now).Seconds()
	w.clock += d * w.pace()
	if w.now >= w.calm {
		c, l := float64(w.of(w.now)), float64(w.fleet.limit)
		w.timeHeld += d * float64(w.held)
		w.timeRefused += d * float64(len(w.refused))
		w.timeServed += d * min(float64(len(w.served)), c)
		w.timeCapacity += d * c
		w.sumLimit, w.sumTime = w.sumLimit+d*l, w.sumTime+d
	}
	w.now = to
}

func (w *world) end(c *call) {
	if c.refused {
		heap.Pop(&w.refused)
	} else {
		heap.Pop(&w.served)
	}
	w.held--
	took := w.now - c.began
	w.fleet.end(c.process, took, c.refused || w.slow && took > goal)
	if w.called[c.process] > w.wanted() {
		w.called[c.process]--
	} else {
		w.come(c.process) // again
	}
}

// sample notes when the limit has followed the capacity.
func (w *world) sample() {
	capacity, limit := w.of(w.now), w.fleet.limit
	windows := func(from time.Duration) int { return int((w.now - from + adapt.Window - 1) / adapt.Window) }
	if r := &w.result; w.now > later && r.up == 0 && limit >= capacity-capacity/20 {
		r.up = windows(later)
	} else if w.now > then && r.down == 0 && limit <= capacity+capacity/10 {
		r.down = windows(then)
	}
}
