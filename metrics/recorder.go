package metrics

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"sema"
	"sema/engine"
)

// Options of a Recorder. The zero value of each field is its default.
type Options struct {
	// Names bounds how many semaphores have series of their own, 1 … 100,000.
	// Default 200.
	Names int

	// Group turns a semaphore's name into the value of the label sema.name.
	// Default: the name itself. It is called for every event.
	Group func(semaphore string) string

	// Bounds are the upper bounds of the histograms' buckets in seconds,
	// ascending, above 0 and finite. Default: 1 ms … 1 h in 14 steps.
	Bounds []float64
}

// Recorder counts what the callers of this process experience. Any number of
// Semaphores share one; it is safe for concurrent use. It is a [Source] of
// sema.acquires, sema.acquire.wait, sema.lease.duration and sema.leases.lost.
type Recorder struct {
	names  *Names
	bounds []float64

	mu     sync.RWMutex
	counts map[string]*counts // by label
}

// counts are the figures under one value of sema.name.
type counts struct {
	mu       sync.Mutex
	acquires [len(results)]uint64 // by the index in results
	lost     [len(reasons)]uint64 // by the index in reasons
	wait     Spread
	held     Spread
}

// NewRecorder makes a Recorder. A nil options means the defaults. It fails only
// on values out of range, with an *engine.ArgumentError.
func NewRecorder(options *Options) (*Recorder, error) {
	if options == nil {
		options = &Options{}
	}
	names, err := NewNames(options.Names, options.Group)
	if err != nil {
		return nil, err
	}
	bounds := slices.Clone(options.Bounds)
	if len(bounds) == 0 {
		bounds = DefaultBounds()
	}
	for i, b := range bounds {
		if !(b > 0) || math.IsInf(b, 1) || i > 0 && !(b > bounds[i-1]) {
			return nil, &engine.ArgumentError{Package: "metrics", What: "bounds", Value: bounds, Want: "finite numbers above 0, ascending"}
		}
	}
	return &Recorder{names: names, bounds: bounds, counts: map[string]*counts{}}, nil
}

// Observer is for Options.Observer of a Semaphore, of any number of them. A program
// that observes for itself as well joins its own with sema.Observer.And.
func (r *Recorder) Observer() sema.Observer { return Observer(r.acquired, r.ended) }

// acquired counts the end of an acquisition.
func (r *Recorder) acquired(semaphore, result string, waited time.Duration) {
	c := r.of(semaphore)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquires[slices.Index(results[:], result)]++
	if result == Acquired {
		c.wait.add(waited)
	}
}

// ended counts the end of a permit. reason is "" for a release.
func (r *Recorder) ended(semaphore, reason string, held time.Duration) {
	c := r.of(semaphore)
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason != "" {
		c.lost[slices.Index(reasons[:], reason)]++
	}
	c.held.add(held)
}

// of is where to count what happens to a semaphore.
func (r *Recorder) of(semaphore string) *counts {
	label := r.names.Of(semaphore)
	r.mu.RLock()
	c := r.counts[label]
	r.mu.RUnlock()
	if c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c = r.counts[label]; c == nil {
		c = &counts{wait: newSpread(r.bounds), held: newSpread(r.bounds)}
		r.counts[label] = c
	}
	return c
}

// Families implements [Source].
func (r *Recorder) Families(context.Context) []Family {
	type labelled struct {
		label string
		*counts
	}
	r.mu.RLock()
	all := make([]labelled, 0, len(r.counts))
	for label, c := range r.counts {
		all = append(all, labelled{label, c})
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b labelled) int { return cmp.Compare(a.label, b.label) })
	var acquires, waits, holds, lost []Series
	for _, c := range all {
		name := Label{Name: LabelName, Value: c.label}
		c.mu.Lock()
		for i, result := range results {
			acquires = append(acquires, Series{Labels: []Label{name, {Name: LabelResult, Value: result}}, Value: float64(c.acquires[i])})
		}
		for i, reason := range reasons {
			lost = append(lost, Series{Labels: []Label{name, {Name: LabelReason, Value: reason}}, Value: float64(c.lost[i])})
		}
		waits = append(waits, Series{Labels: []Label{name}, Spread: c.wait.clone()})
		holds = append(holds, Series{Labels: []Label{name}, Spread: c.held.clone()})
		c.mu.Unlock()
	}
	return []Family{Of(Acquires, acquires), Of(AcquireWait, waits), Of(LeaseDuration, holds), Of(LeasesLost, lost)}
}
