package measure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"sema/internal/watchdog"
)

// Lane is a contestant with one caller, which takes turns with others of its process.
type Lane struct {
	Name string
	Gate Gate
}

// Timed has the times of a lane's pairs, in nanoseconds. The least and greatest value of
// each are the bounds of the middle 95 % over resampled laps.
type Timed struct {
	Pairs         int     `json:"pairs"`
	P10           Spread  `json:"p10_ns"`
	P50           Spread  `json:"p50_ns"`
	P90           Spread  `json:"p90_ns"`
	Ratio         Spread  `json:"ratio"`                    // its p50 over the first lane's: how many the first does while it does one
	ScriptP50NS   float64 `json:"script_p50_ns,omitempty"`  // of a script's call, by the server's histogram, whose buckets double
	ScriptMeanNS  float64 `json:"script_mean_ns,omitempty"` // by the server's sum of microseconds
	ScriptsOfPair float64 `json:"scripts_of_pair,omitempty"`
}

// lane is a Lane that runs.
type lane struct {
	Lane
	lap     []pair // of the lap that runs
	pairs   []pair
	scripts [2]scripts // of the lap that runs, and in all
}

type pair struct {
	ns  float64
	lap int
}

// RunLaps lets lanes take turns of a slice each, a few milliseconds, and times every pair. So
// whatever slows down the machine slows down all of them. laps is how many count. A lap in which the machine stood
// still, by a timer that was late or time that was stolen from it, counts for none; if all
// were so, it goes on until one counts, for at most ten times as many.
func RunLaps(ctx context.Context, s Store, slice time.Duration, wanted int, lanes []Lane) (result []Timed, laps, stalled int, err error) {
	if slice <= 0 || wanted < 1 || len(lanes) == 0 {
		return nil, 0, 0, fmt.Errorf("%d laps of %d slices of %v: want 1 or more, 1 or more, above 0", wanted, len(lanes), slice)
	}
	all := make([]*lane, len(lanes))
	for i, l := range lanes {
		l.Gate.Units = max(1, l.Gate.Units)
		all[i] = &lane{Lane: l}
	}
	var late atomic.Int64
	defer watchdog.Watch(func(time.Time, time.Duration) { late.Add(1) })()
	for lap := -1; lap < wanted || laps == 0 && lap < 10*wanted; lap++ { // the first one warms up
		stood := late.Load() + stolen()
		runtime.Gosched()
		for k := range all {
			if err := all[(k+lap+1)%len(all)].run(ctx, s, slice, laps); err != nil {
				return nil, 0, 0, err
			}
		}
		counts := lap >= 0 && late.Load()+stolen() == stood
		for _, l := range all {
			l.take(counts)
		}
		switch {
		case counts:
			laps++
		case lap >= 0:
			stalled++
		}
	}
	if laps == 0 {
		return nil, 0, 0, fmt.Errorf("the machine stood still in each of %d laps", stalled)
	}
	return timed(all, laps), laps, stalled, nil
}

// mostPairs bounds a slice whose pairs take next to no time: more of them say no more.
const mostPairs = 100

// run lets a lane have its slice.
func (l *lane) run(ctx context.Context, s Store, slice time.Duration, lap int) error {
	before, err := s.scripts(ctx)
	if err != nil {
		return err
	}
	held := func() {}
	began := time.Now()
	for last, end := began, began.Add(slice); last.Before(end) && len(l.lap) < mostPairs; {
		if err := l.Gate.Work(ctx, 0, held); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		now := time.Now()
		l.lap = append(l.lap, pair{float64(now.Sub(last)) / float64(l.Gate.Units), lap})
		last = now
	}
	after, err := s.scripts(ctx)
	l.scripts[0] = after.less(before)
	return err
}

// take has the lap that ended count, or not.
func (l *lane) take(counts bool) {
	if counts {
		l.pairs = append(l.pairs, l.lap...)
		l.scripts[1] = l.scripts[1].plus(l.scripts[0])
	}
	l.lap = l.lap[:0]
}

// draws is how many draws of the laps bound a figure.
const draws = 500

// timed makes the figures of all lanes: as they were, and as other draws of the same
// laps would have been, each lap drawn for all lanes at once.
func timed(all []*lane, laps int) []Timed {
	for _, l := range all {
		slices.SortFunc(l.pairs, func(a, b pair) int { return cmp.Compare(a.ns, b.ns) })
	}
	weights := make([]int, laps)
	for i := range weights {
		weights[i] = 1
	}
	figures := make([][4][]float64, len(all)) // of the run, then of the draws
	random := rand.New(rand.NewPCG(1, 2))
	for range draws + 1 {
		first := 0.0
		for i, l := range all {
			at := l.quantiles(weights)
			if i == 0 {
				first = at[1]
			}
			for k, f := range []float64{at[0], at[1], at[2], over(at[1], first)} {
				figures[i][k] = append(figures[i][k], f)
			}
		}
		clear(weights)
		for range weights {
			weights[random.IntN(laps)]++
		}
	}
	result := make([]Timed, len(all))
	for i, l := range all {
		spreads := [4]Spread{}
		for k, f := range figures[i] {
			drawn := slices.Sorted(slices.Values(f[1:]))
			spreads[k] = Spread{f[0], min(f[0], drawn[draws/40]), max(f[0], drawn[draws-1-draws/40])}
		}
		count := len(l.pairs) * l.Gate.Units
		result[i] = Timed{
			Pairs: count, P10: spreads[0], P50: spreads[1], P90: spreads[2], Ratio: spreads[3],
			ScriptP50NS: l.scripts[1].median(), ScriptMeanNS: over(l.scripts[1].ns, l.scripts[1].calls), ScriptsOfPair: over(l.scripts[1].calls, float64(count)),
		}
	}
	return result
}

// quantiles are p10, p50 and p90 of a lane's pairs, each counted as often as its lap is.
func (l *lane) quantiles(weights []int) (at [3]float64) {
	all := 0
	for _, p := range l.pairs {
		all += weights[p.lap]
	}
	below, k := 0, 0
	for _, p := range l.pairs {
		below += weights[p.lap]
		for k < 3 && float64(below) >= []float64{0.1, 0.5, 0.9}[k]*float64(all) {
			at[k] = p.ns
			k++
		}
	}
	return at
}

// stolen is how much of its processors' time the machine did not get, in ticks of the
// kernel. It is 0 where that is not told.
func stolen() int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[8], 10, 64)
	return n
}

// scripts is what a server has done in scripts so far.
type scripts struct {
	calls, ns float64
	buckets   map[int64]float64 // how many took no longer than so many microseconds
}

// scripts asks the server. A server that keeps no histograms tells the rest.
func (s Store) scripts(ctx context.Context) (scripts, error) {
	sum := scripts{buckets: map[int64]float64{}}
	if s.Redis == nil {
		return sum, nil
	}
	stats, err := s.Redis.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return sum, err
	}
	counted := sample{}
	counted.add(nil, stats["Commandstats"])
	sum.calls, sum.ns = float64(counted.calls), float64(counted.script)
	reply, err := s.Redis.Do(ctx, "LATENCY", "HISTOGRAM", "evalsha").Result()
	if err != nil {
		return sum, nil // Redis 6.2 has none
	}
	for _, command := range pairsOf(reply) {
		for what, values := range pairsOf(command) {
			if what != "histogram_usec" {
				continue
			}
			for bound, count := range pairsOf(values) {
				us, _ := strconv.ParseInt(bound, 10, 64)
				n, _ := count.(int64)
				sum.buckets[us] += float64(n)
			}
		}
	}
	return sum, nil
}

// pairsOf reads a map, which older protocols send as a list.
func pairsOf(v any) map[string]any {
	all := map[string]any{}
	switch v := v.(type) {
	case map[any]any:
		for key, value := range v {
			all[fmt.Sprint(key)] = value
		}
	case []any:
		for i := 1; i < len(v); i += 2 {
			all[fmt.Sprint(v[i-1])] = v[i]
		}
	}
	return all
}

func (s scripts) plus(o scripts) scripts { return s.with(o, 1) }
func (s scripts) less(o scripts) scripts { return s.with(o, -1) }
func (s scripts) with(o scripts, sign float64) scripts {
	sum := scripts{s.calls + sign*o.calls, s.ns + sign*o.ns, map[int64]float64{}}
	for _, bounds := range []map[int64]float64{s.buckets, o.buckets} {
		for us := range bounds {
			sum.buckets[us] = s.upTo(us) + sign*o.upTo(us)
		}
	}
	return sum
}

// upTo is how many took no longer than so many microseconds. The server leaves out
// buckets in which nothing was added.
func (s scripts) upTo(us int64) (count float64) {
	for bound, n := range s.buckets {
		if bound <= us {
			count = max(count, n)
		}
	}
	return count
}

// median is that of the histogram, in nanoseconds: within a bucket as if its calls were
// spread evenly.
func (s scripts) median() float64 {
	bounds := []int64{}
	all := 0.0
	for us, n := range s.buckets {
		bounds, all = append(bounds, us), max(all, n)
	}
	slices.Sort(bounds)
	below := 0.0
	for _, us := range bounds {
		if n := s.buckets[us]; n >= all/2 && all > 0 {
			from := math.Floor(float64(us) / 2)
			return 1000 * (from + (float64(us)-from)*over(all/2-below, n-below))
		}
		below = s.buckets[us]
	}
	return 0
}
