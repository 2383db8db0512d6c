// Package adaptive is a fleet of processes that share a server whose capacity they do
// not know, in virtual time, from one seed: what package internal/adapt and other
// limiters are tried on.
package adaptive

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// Model is what a fleet and its server are like.
type Model struct {
	Name    string
	Of      func(at time.Duration) int // the server's capacity
	Slow    bool                       // beyond its capacity it serves all slower, and refuses nobody
	Callers func(at time.Duration) int // so many of each process call, all the time; nil: more than any limit
	Long    time.Duration              // of the run
	Calm    time.Duration              // from when on it is measured

	Late    time.Duration              // how old the reports are that the controller sees
	Liars   int                        // so many processes call everything bad
	Mute    func(at time.Duration) int // so many processes report no longer; nil: none
	Each    bool                       // each call is a process of its own, and reports once, when it ends
	Leaders int                        // so many controllers at once, which know nothing of each other; 0: one
	Reign   time.Duration              // after which another controller takes over; 0: never
}

// Processes is how large each fleet is.
const Processes = 20

const (
	service   = 200 * time.Millisecond // a call takes, on average
	refusal   = 20 * time.Millisecond
	goal      = 3 * service // a slow server's calls are bad from here on
	processes = Processes
	callers   = 40 // of each process, at the most
	start     = 10 // the limit at first
	sampling  = 100 * time.Millisecond
)

// Fleet limits the calls of a model's processes. Its methods are called as the
// world's time goes on.
type Fleet interface {
	// Limit is that of all processes together.
	Limit() int

	// Free reports whether a call of a process may begin, Begin says that one has, and
	// whether it had to wait, and End that one has ended.
	Free(process int) bool
	Begin(process int, waited bool)
	End(process int, took time.Duration, bad bool)

	// Now does the work that is due at a time, and returns when to call it
	// again.
	Now(at time.Duration, rng *rand.Rand) (next time.Duration)
}

// Clocked is a Fleet that goes by a clock of its own, and is told that time passes.
type Clocked interface{ Pass(d time.Duration) }

// Sample is how it stood at a moment.
type Sample struct {
	At       time.Duration
	Limit    int
	Capacity int
	Served   int     // calls the server was at
	Bad      float64 // the part of the held weight that was refused or too slow, since the last sample
}

// Result is what a run came to. Parts are of the time from Model.Calm on.
type Result struct {
	Mean, Deviation float64 // of the limit
	Used            float64 // of the capacity
	Refused         float64 // of the time that permits were held
	Calls, Refusals int
	Samples         []Sample
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
	Model
	rng     *rand.Rand
	fleet   Fleet
	now     time.Duration
	clock   float64 // of the server: it goes slower when it is slow
	served  calls
	refused calls
	waiting [processes][]caller
	came    int            // callers so far
	called  [processes]int // callers of each that wait or call
	held    int

	result                                          Result
	timeHeld, timeRefused, timeServed, timeCapacity float64
	sinceHeld, sinceBad                             float64 // since the last sample
	sumLimit, sumSquares, sumTime                   float64
}

// Run is one run of a model from a seed.
func Run(m Model, fleet Fleet, seed uint64) Result {
	w := &world{Model: m, rng: rand.New(rand.NewPCG(seed, 0xada)), fleet: fleet}
	w.comeAll()
	sample := sampling
	due := fleet.Now(0, w.rng)
	for w.now < m.Long {
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
			due = fleet.Now(w.now, w.rng)
		default:
			w.sample()
			w.comeAll()
			sample += sampling
		}
	}
	r := &w.result
	r.Mean = w.sumLimit / w.sumTime
	r.Deviation = math.Sqrt(max(0, w.sumSquares/w.sumTime-r.Mean*r.Mean))
	r.Used, r.Refused = w.timeServed/w.timeCapacity, w.timeRefused/max(w.timeHeld, 1e-9)
	return *r
}

// comeAll has callers come that do not call yet, and should.
func (w *world) comeAll() {
	for p := range w.called {
		for w.called[p] < w.callers() {
			w.called[p]++
			w.come(p)
		}
	}
}

// callers is how many of each process are to call.
func (w *world) callers() int {
	if w.Callers == nil {
		return callers
	}
	return min(callers, w.Callers(w.now))
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
			if len(line) > 0 && (first < 0 || line[0].number < w.waiting[first][0].number) && w.fleet.Free(p) {
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
	w.fleet.Begin(p, waited)
	w.held++
	c := &call{process: p, began: w.now}
	if !w.Slow && len(w.served) >= w.Of(w.now) {
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
	if !w.Slow {
		return 1
	}
	return min(1, float64(w.Of(w.now))/float64(max(1, len(w.served))))
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
	if c, ok := w.fleet.(Clocked); ok {
		c.Pass(to - w.now)
	}
	d := (to - w.now).Seconds()
	w.clock += d * w.pace()
	bad := float64(len(w.refused))
	w.sinceHeld += d * float64(w.held)
	w.sinceBad += d * bad
	if w.now >= w.Calm {
		c, l := float64(w.Of(w.now)), float64(w.fleet.Limit())
		w.timeHeld += d * float64(w.held)
		w.timeRefused += d * bad
		w.timeServed += d * min(float64(len(w.served)), c)
		w.timeCapacity += d * c
		w.sumLimit, w.sumSquares, w.sumTime = w.sumLimit+d*l, w.sumSquares+d*l*l, w.sumTime+d
	}
	w.now = to
}

func (w *world) end(c *call) {
	if c.refused {
		heap.Pop(&w.refused)
		w.result.Refusals++
	} else {
		heap.Pop(&w.served)
	}
	w.result.Calls++
	w.held--
	took := w.now - c.began
	w.fleet.End(c.process, took, c.refused || w.Slow && took > goal)
	if w.called[c.process] > w.callers() {
		w.called[c.process]--
	} else {
		w.come(c.process) // again
	}
}

func (w *world) sample() {
	s := Sample{At: w.now, Limit: w.fleet.Limit(), Capacity: w.Of(w.now), Served: len(w.served)}
	if w.sinceHeld > 0 {
		s.Bad = w.sinceBad / w.sinceHeld
	}
	w.sinceHeld, w.sinceBad = 0, 0
	w.result.Samples = append(w.result.Samples, s)
}
