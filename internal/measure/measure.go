// Package measure times the same work on several contestants side by side. On
// a busy machine a figure means little and a ratio of two runs no more; so
// every round runs all contestants one after the other, and what is reported
// is the median of the rounds with their spread, and ratios taken round by
// round.
package measure

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Contestant is something to be measured.
type Contestant struct {
	Name string
	// Do is one unit of work. It runs in all workers at once; worker counts
	// them from 0. It returns how long the work waited for what is measured,
	// or what else is to go into the histogram of latencies. Each worker has a
	// context of its own, as requests have; all end with the first error.
	Do func(ctx context.Context, worker int) (time.Duration, error)
	// Units is how many units of work one Do does, where one alone would take
	// no longer than the stopwatch does. 0 means 1.
	Units int
}

// Plan says how much to run.
type Plan struct {
	Workers int           // goroutines that call Do again and again, 1 or more
	Warmup  time.Duration // of each contestant, once, not counted
	Round   time.Duration // of each contestant in each round
	Rounds  int           // 1 or more
}

// Round is what one contestant did in one round.
type Round struct {
	Done    int64
	Elapsed time.Duration
	Waits   *hdrhistogram.Histogram // nanoseconds
	Mallocs uint64                  // heap objects that the whole process allocated meanwhile
}

// Rate is how many units of work were done in a second.
func (r Round) Rate() float64 { return float64(r.Done) / r.Elapsed.Seconds() }

// Series is what one contestant did in all rounds.
type Series struct {
	Name   string
	Rounds []Round
}

// Rate is the spread of the rounds' rates.
func (s Series) Rate() Spread {
	rates := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		rates[i] = r.Rate()
	}
	return Of(rates...)
}

// Done is how many units of work were done in all rounds.
func (s Series) Done() (n int64) {
	for _, r := range s.Rounds {
		n += r.Done
	}
	return n
}

// Mallocs is the spread of the rounds' heap objects per unit of work.
func (s Series) Mallocs() Spread {
	var figures []float64
	for _, r := range s.Rounds {
		if r.Done > 0 {
			figures = append(figures, float64(r.Mallocs)/float64(r.Done))
		}
	}
	return Of(figures...)
}

// Waits is the histogram of all rounds together, in nanoseconds.
func (s Series) Waits() *hdrhistogram.Histogram {
	all := NewHistogram()
	for _, r := range s.Rounds {
		all.Merge(r.Waits)
	}
	return all
}

// Spread is the median of some figures, with the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Of makes the spread of figures; of none it is zero.
func Of(figures ...float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return Spread{Median: middle, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Ratio is the spread of a's rate over b's, taken round by round: what slowed
// down the machine for a while slowed down both.
func Ratio(a, b Series) Spread {
	n := min(len(a.Rounds), len(b.Rounds))
	ratios := make([]float64, 0, n)
	for i := range n {
		if rate := b.Rounds[i].Rate(); rate > 0 {
			ratios = append(ratios, a.Rounds[i].Rate()/rate)
		}
	}
	return Of(ratios...)
}

// NewHistogram holds latencies from 100 ns to ten minutes with two digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(10*time.Minute), 2)
}

// Run measures the contestants, in every round all of them, each round
// beginning with another. It stops at the first error, and when ctx ends.
// progress, if not nil, is called before each contestant's turn.
func Run(ctx context.Context, plan Plan, contestants []Contestant, progress func(round int, name string)) ([]Series, error) {
	if plan.Workers < 1 || plan.Rounds < 1 || plan.Round <= 0 {
		return nil, fmt.Errorf("measure: plan %+v: want 1 or more workers and rounds, and a round above 0", plan)
	}
	all := make([]Series, len(contestants))
	for i, c := range contestants {
		all[i].Name = c.Name
	}
	for round := range plan.Rounds {
		for k := range contestants {
			i := (k + round) % len(contestants)
			c := contestants[i]
			if progress != nil {
				progress(round, c.Name)
			}
			if round == 0 && plan.Warmup > 0 {
				if _, err := run(ctx, plan.Workers, plan.Warmup, c); err != nil {
					return nil, err
				}
			}
			r, err := run(ctx, plan.Workers, plan.Round, c)
			if err != nil {
				return nil, err
			}
			all[i].Rounds = append(all[i].Rounds, r)
		}
	}
	return all, nil
}

// run lets the workers work until time is up. Work that has begun is finished
// and counted, and so is its time.
func run(ctx context.Context, workers int, length time.Duration, c Contestant) (Round, error) {
	histograms := make([]*hdrhistogram.Histogram, workers)
	counts := make([]int64, workers)
	var stop atomic.Bool
	var failed error
	var once sync.Once
	var group sync.WaitGroup
	units := int64(max(1, c.Units))
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range workers {
		histograms[w] = NewHistogram()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			own, done := context.WithCancel(all)
			defer done()
			for !stop.Load() {
				wait, err := c.Do(own, w)
				if err != nil {
					once.Do(func() { failed = fmt.Errorf("measure: %s: %w", c.Name, err) })
					stop.Store(true)
					cancel() // nobody waits for what the failed one held
					return
				}
				counts[w] += units
				_ = histograms[w].RecordValue(max(100, min(int64(wait), int64(10*time.Minute))))
			}
		})
	}
	timer := time.AfterFunc(length, func() { stop.Store(true) })
	group.Wait()
	timer.Stop()
	r := Round{Elapsed: time.Since(began), Waits: NewHistogram()}
	runtime.ReadMemStats(&after)
	r.Mallocs = after.Mallocs - before.Mallocs
	for w := range workers {
		r.Done += counts[w]
		r.Waits.Merge(histograms[w])
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return r, failed
}
