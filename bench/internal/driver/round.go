package driver

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sema/bench/internal/peers"
	"sema/bench/internal/wire"
	"sema/internal/measure"
)

// grace is how long after its time a round may take to finish the work begun.
// Who still waits then is sent away, uncounted: polling contestants may starve
// somebody for ever.
const grace = 5 * time.Second

// round runs rounds, one at a time, with the same workers.
type round struct {
	gate    peers.Gate
	pairs   int // in one Work
	timed   bool
	counts  bool // permits, so that what is held at once can be told
	workers []*worker

	stop    atomic.Bool
	holding atomic.Int64
	most    atomic.Int64
}

// worker is one caller, again and again.
type worker struct {
	round *round
	hold  time.Duration
	held  func() // called by Work; made once, so that it costs no allocation

	asked, last time.Time
	wait, slept time.Duration // of the pair that is under way

	done, holds int64
	unserved    bool
	waits       *hdrhistogram.Histogram
}

func newRound(gate peers.Gate, peer peers.Peer, o Options) *round {
	r := &round{gate: gate, pairs: max(1, peer.Pairs), timed: peer.Pairs <= 1, counts: peer.Kind != peers.Yardstick}
	for range o.Workers {
		w := &worker{round: r, hold: o.Hold, waits: measure.NewHistogram()}
		w.held = w.holding
		if !r.timed {
			w.held = func() {}
		}
		r.workers = append(r.workers, w)
	}
	return r
}

// run lets all workers work for that long.
func (r *round) run(ctx context.Context, length time.Duration) (wire.Answer, error) {
	// No deadline, which go-redis would take over to the connections: work in
	// the middle of a request is to be finished.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(length+grace, cancel).Stop()
	for _, w := range r.workers {
		w.done, w.holds, w.unserved = 0, 0, false
		w.waits.Reset()
	}
	r.stop.Store(false)
	r.most.Store(0)
	runtime.GC() // of what earlier rounds left
	var failed error
	var once sync.Once
	var group sync.WaitGroup
	objects, cpu, began := mallocs(), cpuTime(), time.Now()
	defer time.AfterFunc(length, func() { r.stop.Store(true) }).Stop()
	for _, w := range r.workers {
		group.Go(func() {
			// Callers have contexts of their own, as requests do.
			own, cancelOwn := context.WithCancel(ctx)
			defer cancelOwn()
			err := w.work(own, began)
			switch {
			case err == nil:
			case ctx.Err() != nil: // who is sent away has not failed
				w.unserved = true
				w.record(time.Since(w.asked))
			default:
				once.Do(func() { failed = err })
				r.stop.Store(true)
				cancel()
			}
		})
	}
	group.Wait()
	a := wire.Answer{CPUNS: cpuTime() - cpu, Mallocs: mallocs() - objects, MaxHeld: r.most.Load(), Waits: [][2]int64{}}
	if failed != nil {
		return a, failed
	}
	end, waits := began, measure.NewHistogram()
	for _, w := range r.workers {
		a.Done += w.done
		a.HoldNS += w.holds
		if w.unserved {
			a.Unserved++
		}
		waits.Merge(w.waits)
		if w.last.After(end) {
			end = w.last
		}
	}
	a.ElapsedNS = int64(max(end.Sub(began), 1))
	for _, bar := range waits.Distribution() {
		if bar.Count > 0 {
			a.Waits = append(a.Waits, [2]int64{twoDigits(bar.To), bar.Count})
		}
	}
	return a, nil
}

// work goes on until the round's time is up or something fails.
func (w *worker) work(ctx context.Context, began time.Time) error {
	for w.last = began; !w.round.stop.Load(); {
		w.asked = w.last
		if err := w.round.gate.Work(ctx, w.held); err != nil {
			return err
		}
		w.last = time.Now()
		w.done += int64(w.round.pairs)
		if w.round.timed {
			w.holds += int64(w.slept)
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
	got := time.Now()
	w.wait, w.slept = got.Sub(w.asked), 0
	if w.round.counts {
		now := w.round.holding.Add(1)
		for most := w.round.most.Load(); now > most && !w.round.most.CompareAndSwap(most, now); {
			most = w.round.most.Load()
		}
	}
	if w.hold > 0 {
		time.Sleep(w.hold)
		w.slept = time.Since(got)
	}
	if w.round.counts { // before the release, so that most is never too high
		w.round.holding.Add(-1)
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

// cpuTime is what the process has used so far, in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
