package metrics

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/watch"
)

// watchTimeout bounds how long a scrape waits for the engine. Prometheus gives
// up after ten seconds unless it is told otherwise.
const watchTimeout = 5 * time.Second

// WatchOptions of a Watch. The zero value of each field is its default.
type WatchOptions struct {
	// Names and Group are those of Options. Under a group, and under Other,
	// limits, weights and callers are added up; of the waits it is the longest.
	Names int
	Group func(semaphore string) string
}

// Watch has the figures of all semaphores of an engine, as a Watcher sees them.
// It is safe for concurrent use, and a [Source] of sema.limit,
// sema.leases.active, sema.queue.size, sema.queue.oldest,
// sema.leases.reclaimed and sema.engine.up. The first scrape may find
// sema.engine.up alone, when the Watcher needs longer than five seconds for its
// first look at everything. While the engine does not answer, the gauges but
// for sema.engine.up are left out: nobody knows them.
//
// A lease that ended is seen when two looks are compared, so
// sema.leases.reclaimed is close rather than exact: a permit that came and went
// between two looks is missed, and a release in the last moments of a lease is
// counted, too. An engine that takes a dead process's permits back at once, as
// files do, leaves no lease to end.
//
// It costs what listening to all semaphores costs the Watcher: a look at each in
// every Interval, at most its Rate. Give it a Watcher with a longer Interval if
// that is too much.
type Watch struct {
	watcher *watch.Watcher
	names   *Names
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	reclaimed map[string]float64 // by label
}

// NewWatch begins to count over a Watcher, which stays the caller's to close,
// after the Watch. A nil options means the defaults. It fails only on values out
// of range, with an *engine.ArgumentError.
func NewWatch(w *watch.Watcher, options *WatchOptions) (*Watch, error) {
	if options == nil {
		options = &WatchOptions{}
	}
	if w == nil {
		return nil, &engine.ArgumentError{Package: "metrics", What: "watcher", Value: nil, Want: "a watcher that watch.New has made"}
	}
	names, err := NewNames(options.Names, options.Group)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &Watch{watcher: w, names: names, cancel: cancel, reclaimed: map[string]float64{}}
	x.running.Go(func() { x.listen(ctx) })
	return x, nil
}

// Close ends the counting. The Watcher stays open. Figures can still be had;
// sema.leases.reclaimed does not grow any more.
func (x *Watch) Close() {
	x.cancel()
	x.running.Wait()
}

// listen counts the leases that end.
func (x *Watch) listen(ctx context.Context) {
	for e := range x.watcher.Events(ctx, watch.Filter{}) {
		if e.Kind == watch.Ended {
			x.mu.Lock()
			x.reclaimed[x.names.Of(e.Semaphore)]++
			x.mu.Unlock()
		}
	}
}

// Families implements [Source].
func (x *Watch) Families(ctx context.Context) []Family {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	list, _, err := x.watcher.Summaries(ctx, watch.Query{})
	if err != nil {
		return []Family{family(EngineUp, []Series{{Value: 0}}), family(LeasesReclaimed, x.ended(nil))}
	}
	sums, labels := map[string]*watch.Summary{}, map[string]bool{}
	for _, s := range list {
		if s.Limit == 0 { // gone since, or never seen
			continue
		}
		label := x.names.Of(s.Name)
		sum := sums[label]
		if sum == nil {
			sum = &watch.Summary{Name: label}
			sums[label], labels[label] = sum, true
		}
		sum.Limit += s.Limit
		sum.Used += s.Used
		sum.Waiting += s.Waiting
		sum.Oldest = max(sum.Oldest, s.Oldest)
	}
	x.names.free(labels)
	var limit, active, size, oldest []Series
	for label, sum := range sums {
		name := []Label{{LabelName, label}}
		limit = append(limit, Series{Labels: name, Value: float64(sum.Limit)})
		active = append(active, Series{Labels: name, Value: float64(sum.Used)})
		size = append(size, Series{Labels: name, Value: float64(sum.Waiting)})
		oldest = append(oldest, Series{Labels: name, Value: sum.Oldest.Seconds()})
	}
	for _, series := range [][]Series{limit, active, size, oldest} {
		sortByName(series)
	}
	return []Family{
		family(Limit, limit), family(LeasesActive, active), family(QueueSize, size), family(QueueOldest, oldest),
		family(LeasesReclaimed, x.ended(labels)), family(EngineUp, []Series{{Value: 1}}),
	}
}

// ended is how many leases ended, by label. Labels that are not in use any more
// are forgotten, unless in use is unknown.
func (x *Watch) ended(used map[string]bool) []Series {
	x.mu.Lock()
	defer x.mu.Unlock()
	if used != nil {
		for label := range x.reclaimed {
			if !used[label] && label != Other {
				delete(x.reclaimed, label)
			}
		}
		for label := range used { // so that a rate has a start
			x.reclaimed[label] += 0
		}
	}
	var series []Series
	for label, n := range x.reclaimed {
		series = append(series, Series{Labels: []Label{{LabelName, label}}, Value: n})
	}
	sortByName(series)
	return series
}

func sortByName(series []Series) {
	slices.SortFunc(series, func(a, b Series) int { return cmp.Compare(a.Labels[0].Value, b.Labels[0].Value) })
}
