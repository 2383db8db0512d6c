package metrics

import (
	"slices"
	"strings"
	"time"
)

// The metrics. Durations are seconds.
const (
	LeasesActive    = "sema.leases.active"    // gauge: the weight that is held; the engine's
	Limit           = "sema.limit"            // gauge: the weight that may be held; the engine's
	QueueSize       = "sema.queue.size"       // gauge: how many callers wait; the engine's
	QueueOldest     = "sema.queue.oldest"     // gauge: how long the one who came first has waited; the engine's
	LimitEnough     = "sema.limit.enough"     // gauge: the limit that is enough for 99 % of the acquisitions, of one that is only watched; the engine's
	LimitBad        = "sema.limit.bad"        // gauge: part of the time held that went badly, in the last window of the limit's controller; the engine's
	KeysInTurn      = "sema.keys.in_turn"     // gauge by level: how many keys wait and are below their caps; the engine's
	KeysFull        = "sema.keys.full"        // gauge by level: how many keys wait and are at their caps; the engine's
	PoolLimit       = "sema.pool.limit"       // gauge by pool: how much there is of it; the engine's
	PoolUsed        = "sema.pool.used"        // gauge by pool: how much of it is held; the engine's
	PoolWaiting     = "sema.pool.waiting"     // gauge by pool: how many waiters want some of it; the engine's
	LeasesReclaimed = "sema.leases.reclaimed" // counter: permits whose lease ended without a release; the engine's
	EngineUp        = "sema.engine.up"        // gauge: 1 if the engine answers, else 0; without labels
	AcquireWait     = "sema.acquire.wait"     // histogram: from the call to the permit; this process's
	LeaseDuration   = "sema.lease.duration"   // histogram: from the permit to its end; this process's
	Acquires        = "sema.acquires"         // counter by result: see [ResultOf]; this process's
	LeasesLost      = "sema.leases.lost"      // counter by reason: permits that were not released; this process's
)

// The labels.
const (
	LabelName   = "sema.name"
	LabelResult = "result"
	LabelReason = "reason"
	LabelPool   = "pool"
	LabelLevel  = "level" // of keys: how many names they have, 1 … 3
)

// Kind is what a figure means.
type Kind int

// The kinds of metrics.
const (
	Gauge     Kind = iota // goes up and down
	Counter               // only grows, from 0 at the start of the process
	Histogram             // how many values were how large
)

// Family is a metric with all its series at one moment.
type Family struct {
	Name   string // such as sema.acquire.wait
	Unit   string // as OpenTelemetry writes it: "s", or a noun in braces
	Help   string // one line
	Kind   Kind
	Series []Series // sorted by labels
}

// Series is one line of a metric.
type Series struct {
	Labels []Label // LabelName first, but for sema.engine.up, which has none
	Value  float64 // of a gauge or counter
	Spread Spread  // of a histogram
}

// Label is a name and a value.
type Label struct{ Name, Value string }

// Spread says how many values were how large.
type Spread struct {
	Bounds []float64 // ascending; not to be changed
	Counts []uint64  // of values up to the bound and above the one before; the last is of values above all
	Sum    float64   // of all values
}

// Count is how many values there were.
func (s Spread) Count() uint64 {
	n := uint64(0)
	for _, c := range s.Counts {
		n += c
	}
	return n
}

// DefaultBounds are the upper bounds of the histograms' buckets, in seconds.
// Waits and holds are as short as a call to a server and as long as a batch job.
func DefaultBounds() []float64 {
	return []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
}

// newSpread is a Spread of no values.
func newSpread(bounds []float64) Spread {
	return Spread{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// add counts a duration; one below 0 counts as 0.
func (s *Spread) add(d time.Duration) {
	seconds := max(0, d).Seconds()
	at, _ := slices.BinarySearch(s.Bounds, seconds)
	s.Counts[at]++
	s.Sum += seconds
}

// clone is a copy that shares the bounds.
func (s Spread) clone() Spread {
	s.Counts = slices.Clone(s.Counts)
	return s
}

// PrometheusName is the name as Prometheus has it: sema_acquire_wait_seconds.
func (f Family) PrometheusName() string {
	name := strings.ReplaceAll(f.Name, ".", "_")
	if f.Unit == "s" {
		name += "_seconds"
	}
	if f.Kind == Counter {
		name += "_total"
	}
	return name
}

// PrometheusName is the label's name as Prometheus has it: sema_name.
func (l Label) PrometheusName() string { return strings.ReplaceAll(l.Name, ".", "_") }

// about is what there is to know of each metric, in the order they are shown.
var about = []Family{
	{Name: Limit, Unit: "{permit}", Help: "Weight that may be held at once."},
	{Name: LeasesActive, Unit: "{permit}", Help: "Weight that is held."},
	{Name: QueueSize, Unit: "{caller}", Help: "Callers that wait for a permit."},
	{Name: QueueOldest, Unit: "s", Help: "How long the caller that came first has waited."},
	{Name: LimitEnough, Unit: "{permit}", Help: "With this limit 99 % of the acquisitions would not have waited for it; of a limit that is only watched."},
	{Name: LimitBad, Unit: "1", Help: "Part of the time held that went badly in the last window of the controller that finds the limit, 0 to 1."},
	{Name: KeysInTurn, Unit: "{key}", Help: "Keys that wait for others or for free weight, by how many names they have."},
	{Name: KeysFull, Unit: "{key}", Help: "Keys that wait for weight that they hold themselves, at their caps, by how many names they have."},
	{Name: PoolLimit, Unit: "{unit}", Help: "How much there is of a pool."},
	{Name: PoolUsed, Unit: "{unit}", Help: "How much of a pool is held."},
	{Name: PoolWaiting, Unit: "{waiter}", Help: "Waiters that want some of a pool."},
	{Name: LeasesReclaimed, Unit: "{permit}", Kind: Counter, Help: "Permits whose lease ended without a release."},
	{Name: EngineUp, Unit: "1", Help: "1 if the engine answers, else 0."},
	{Name: Acquires, Unit: "{acquire}", Kind: Counter, Help: "Acquisitions of this process by their result."},
	{Name: AcquireWait, Unit: "s", Kind: Histogram, Help: "From the call of an acquisition to its permit."},
	{Name: LeaseDuration, Unit: "s", Kind: Histogram, Help: "From a permit's grant to its end."},
	{Name: LeasesLost, Unit: "{permit}", Kind: Counter, Help: "Permits of this process that ended otherwise than by a release."},
}

// All are the metrics of semaphores without series, in the order they are shown.
func All() []Family { return slices.Clone(about) }

// Of is the metric of that name, with these series. Without such a metric its Name is "".
func Of(name string, series []Series) (f Family) {
	if i := slices.IndexFunc(about, func(f Family) bool { return f.Name == name }); i >= 0 {
		f = about[i]
	}
	f.Series = series
	return f
}
