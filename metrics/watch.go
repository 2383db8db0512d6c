package metrics

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	// Names and Group are those of Options. Under a group limits, weights and
	// callers are added up; of the waits it is the longest. "_other" is such a group
	// without a limit. A name keeps its own series while something is held or
	// waited for, and for ten minutes longer. A place that is free goes to the name
	// with the most waiting callers, then with the most weight held.
	Names int
	Group func(semaphore string) string
}

// Watch has the figures of all semaphores of an engine, as a Watcher sees them. It is safe
// for concurrent use. As a [Source] it has sema.limit, sema.leases.active, sema.queue.size,
// sema.queue.oldest, sema.leases.reclaimed and sema.engine.up. For a semaphore with keys it
// also has sema.keys.in_turn and sema.keys.full, by level. No key is ever a label. For one with pools it has
// sema.pool.limit, sema.pool.used and sema.pool.waiting, by pool: of a group the first 16 by name, and none of "_other". The first scrape
// may find sema.engine.up alone, when the Watcher needs longer than five seconds for its
// first look at everything. While the engine does not answer, the gauges but for
// sema.engine.up are left out: nobody knows them.
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
	ends      map[string]float64 // since the last scrape, by label without a bound
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
	x := &Watch{watcher: w, names: names, cancel: cancel, reclaimed: map[string]float64{}, ends: map[string]float64{}}
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
		if e.Kind == "ended" {
			label := x.names.label(e.Semaphore)
			x.mu.Lock()
			if _, ok := x.ends[label]; !ok && len(x.ends) >= maxNames { // nobody scrapes
				label = Other
			}
			x.ends[label]++
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
		return []Family{Of(EngineUp, []Series{{Value: 0}}), Of(LeasesReclaimed, x.ended(nil))}
	}
	sums, demands := map[string]watch.Summary{}, map[string]demand{}
	for _, s := range list {
		if s.Limit > 0 { // else it is gone since, or was never seen
			label := x.names.label(s.Name)
			sums[label] = sum(sums[label], s)
			demands[label] = demand{Waiting: sums[label].Waiting, Used: sums[label].Used}
		}
	}
	labels := x.names.choose(time.Now(), demands)
	shown := map[string]watch.Summary{}
	for label, s := range sums {
		if !labels[label] {
			label = Other
		}
		shown[label] = sum(shown[label], s)
	}
	all := map[string][]Series{LeasesReclaimed: x.ended(labels), EngineUp: {{Value: 1}}}
	for _, label := range slices.Sorted(maps.Keys(shown)) {
		s, name := shown[label], []Label{{Name: LabelName, Value: label}}
		add := func(metric string, value float64) {
			all[metric] = append(all[metric], Series{Labels: name, Value: value})
		}
		if label != Other { // a sum of limits limits nothing
			add(Limit, float64(s.Limit))
			if s.Observed != nil {
				add(LimitEnough, float64(s.Observed.Enough))
			}
			if s.Auto != nil {
				add(LimitBad, float64(s.Auto.Bad)/1000)
			}
			for _, p := range s.Pools[:min(len(s.Pools), engine.MaxPools)] {
				labels := append(slices.Clone(name), Label{Name: LabelPool, Value: p.Pool})
				for metric, n := range map[string]int{PoolLimit: p.Limit, PoolUsed: p.Used, PoolWaiting: p.Waiting} {
					all[metric] = append(all[metric], Series{Labels: labels, Value: float64(n)})
				}
			}
		}
		add(LeasesActive, float64(s.Used))
		add(QueueSize, float64(s.Waiting))
		add(QueueOldest, s.Oldest.Seconds())
		for level := range s.Keys {
			if slices.Max(s.Keys[level:]) == 0 {
				break // the first level has series as soon as any has: the alert about idle room goes by it
			}
			labels := append(slices.Clone(name), Label{Name: LabelLevel, Value: strconv.Itoa(level + 1)})
			all[KeysInTurn] = append(all[KeysInTurn], Series{Labels: labels, Value: float64(s.InTurn[level])})
			all[KeysFull] = append(all[KeysFull], Series{Labels: labels, Value: float64(s.Full[level])})
		}
	}
	var families []Family
	for _, f := range All() {
		if series, ok := all[f.Name]; ok {
			families = append(families, Of(f.Name, series))
		}
	}
	return families
}

// sum is one summary of two.
func sum(a, b watch.Summary) watch.Summary {
	a.Limit += b.Limit
	a.Used += b.Used
	a.Waiting += b.Waiting
	for i := range a.Keys {
		a.Keys[i] += b.Keys[i]
		a.InTurn[i] += b.InTurn[i]
		a.Full[i] += b.Full[i]
	}
	a.Pools = sumPools(a.Pools, b.Pools)
	a.Oldest = max(a.Oldest, b.Oldest)
	if a.Auto == nil {
		a.Auto = b.Auto
	}
	if a.Observed == nil {
		a.Observed = b.Observed
	}
	return a
}

// sumPools adds up pools of the same name. Both lists are sorted by name, and stay as they are.
func sumPools(a, b []engine.PoolState) (list []engine.PoolState) {
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0].Pool, b[0].Pool); {
		case c < 0:
			list, a = append(list, a[0]), a[1:]
		case c > 0:
			list, b = append(list, b[0]), b[1:]
		default:
			list = append(list, engine.PoolState{Pool: a[0].Pool, Limit: a[0].Limit + b[0].Limit, Used: a[0].Used + b[0].Used, Waiting: a[0].Waiting + b[0].Waiting})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(list, a...), b...)
}

// ended is how many leases ended, by label. Labels that have no place any more are
// forgotten, unless who has one is unknown.
func (x *Watch) ended(used map[string]bool) []Series {
	x.mu.Lock()
	defer x.mu.Unlock()
	if used != nil {
		for label, n := range x.ends {
			if !used[label] {
				label = Other
			}
			x.reclaimed[label] += n
		}
		clear(x.ends)
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
	for _, label := range slices.Sorted(maps.Keys(x.reclaimed)) {
		series = append(series, Series{Labels: []Label{{Name: LabelName, Value: label}}, Value: x.reclaimed[label]})
	}
	return series
}
