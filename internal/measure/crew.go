package measure

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// grace is how long after its time a round may take to finish the work begun.
// A caller that still waits then is sent away, uncounted: polling contestants may
// let somebody starve for ever.
const grace = 5 * time.Second

// Gate is a contestant at work, for all workers of a process.
type Gate struct {
	// Work waits for a permit, calls held while it has it, and gives it back.
	// It returns ctx's error when ctx ends before the permit is there.
	Work func(ctx context.Context, worker int, held func()) error
	// Check, if not nil, is called after each round.
	Check func(ctx context.Context) error
	// Close may be nil.
	Close func() error
	// Units is how many pairs one Work does, 0 means 1. Of several at once the
	// single waits are not timed.
	Units int
	// Workers is for how many it is, whatever the setup says. 0: for all.
	Workers int
	// Unlimited gates limit nothing, so nobody counts what is held at once.
	Unlimited bool
}

// Times makes a gate do its work several times at once: for work that takes no
// longer than to read the clock.
func (g Gate) Times(n int) Gate {
	one := g.Work
	g.Units = n
	g.Work = func(ctx context.Context, worker int, held func()) error {
		for range n {
			if err := one(ctx, worker, held); err != nil {
				return err
			}
		}
		return nil
	}
	return g
}

// Crew is the workers of one process at one gate.
type Crew struct {
	gate    Gate
	hold    time.Duration
	stamps  bool
	workers []*worker

	stop    atomic.Bool
	holding atomic.Int64
	most    atomic.Int64
}

// worker is one caller, again and again.
type worker struct {
	crew *Crew
	held func() // made once, so that it costs no allocation

	asked, last time.Time
	wait, slept time.Duration // of the pair that is under way

	did    Round
	waits  *hdrhistogram.Histogram // nanoseconds
	stamps []Stamp
	index  int
}

// NewCrew makes so many workers, which hold each permit for so long.
func NewCrew(gate Gate, workers int, hold time.Duration) *Crew {
	c := &Crew{gate: gate, hold: hold}
	c.gate.Units = max(1, gate.Units)
	for i := range workers {
		// From 100 ns to ten minutes, with two digits.
		w := &worker{crew: c, index: i, waits: hdrhistogram.New(100, int64(10*time.Minute), 2), held: func() {}}
		if c.gate.Units == 1 {
			w.held = w.holding
		}
		c.workers = append(c.workers, w)
	}
	return c
}

// Play lets the crew play in turns with others of this process.
func (c *Crew) Play(ctx context.Context, length time.Duration) (Round, error) {
	a, err := c.work(ctx, length)
	return sum(length, a), err
}

// work lets all workers work for that long. Work that has begun is finished and
// counted, and so is its time.
func (c *Crew) work(ctx context.Context, length time.Duration) (Answer, error) {
	// No deadline: go-redis would take it over to its connections, and work in
	// the middle of a request is to be finished.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := grace
	if c.stamps {
		patience = grace / 50 // two who pass a token end up with one of them waiting
	}
	defer time.AfterFunc(length+patience, cancel).Stop()
	for _, w := range c.workers {
		w.did, w.stamps = Round{}, nil
		w.waits.Reset()
	}
	c.stop.Store(false)
	c.most.Store(0)
	runtime.GC() // collects the garbage of earlier rounds
	var failed error
	var once sync.Once
	var group sync.WaitGroup
	objects, cpu, began := mallocs(), cpuTime(), time.Now()
	defer time.AfterFunc(length, func() { c.stop.Store(true) }).Stop()
	for _, w := range c.workers {
		group.Go(func() {
			own, cancelOwn := context.WithCancel(ctx) // as each request has
			defer cancelOwn()
			err := w.loop(own, began)
			switch {
			case err == nil:
			case ctx.Err() != nil: // a caller that is sent away has not failed
				w.did.Unserved = 1
				if c.gate.Units == 1 {
					w.record(time.Since(w.asked))
				}
			default:
				once.Do(func() { failed = err })
				c.stop.Store(true)
				cancel() // nobody waits for what the failed one held
			}
		})
	}
	group.Wait()
	a := Answer{Round: Round{ElapsedNS: 1, CPUNS: cpuTime() - cpu, Mallocs: mallocs() - objects, MaxHeld: c.most.Load()}}
	all := hdrhistogram.New(100, int64(10*time.Minute), 2)
	for _, w := range c.workers {
		a.add(w.did)
		a.Stamps = append(a.Stamps, w.stamps...)
		all.Merge(w.waits)
	}
	for _, bar := range all.Distribution() {
		if bar.Count > 0 {
			a.Waits = append(a.Waits, [2]int64{twoDigits(bar.To), bar.Count})
		}
	}
	return a, failed
}

// loop goes on until the round's time is up or something fails.
func (w *worker) loop(ctx context.Context, began time.Time) error {
	for w.last = began; !w.crew.stop.Load(); {
		w.asked = w.last
		if err := w.crew.gate.Work(ctx, w.index, w.held); err != nil {
			return err
		}
		w.last = time.Now()
		w.did.ElapsedNS = int64(w.last.Sub(began))
		w.did.Done += int64(w.crew.gate.Units)
		if w.crew.gate.Units == 1 {
			w.did.HoldNS += int64(w.slept)
			w.record(w.wait)
		}
	}
	return nil
}

func (w *worker) record(wait time.Duration) {
	_ = w.waits.RecordValue(max(100, min(int64(wait), int64(10*time.Minute))))
}

// holding is what a worker does while it has the permit.
func (w *worker) holding() {
	c, got := w.crew, time.Now()
	w.wait, w.slept = got.Sub(w.asked), 0
	if !c.gate.Unlimited {
		now := c.holding.Add(1)
		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); {
			most = c.most.Load()
		}
	}
	if c.hold > 0 {
		time.Sleep(c.hold)
		w.slept = time.Since(got) // timers are coarse
	}
	if c.stamps {
		w.stamps = append(w.stamps, Stamp{got.UnixNano(), time.Now().UnixNano(), int64(w.index)})
	}
	if !c.gate.Unlimited { // before the release, so that most is never too high
		c.holding.Add(-1)
	}
}

// twoDigits rounds, to keep the list of waits short.
func twoDigits(ns int64) int64 {
	if ns < 100 {
		return ns
	}
	unit := math.Pow10(int(math.Log10(float64(ns))) - 1)
	return int64(math.Round(float64(ns)/unit) * unit)
}

// mallocs counts the heap objects allocated so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
