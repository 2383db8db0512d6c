// Package bench measures sema on an engine, each figure beside a baseline of
// the same run: what the same machine, network and server do at best without
// a semaphore. It judges nothing; it reports.
//
// Everything it makes has a name that begins with sema-bench- and a random
// part, and is removed before Run returns, also after an error or when the
// context ends.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/measure"
)

// Target is the engine to be measured.
type Target struct {
	// Open makes a new engine on the same store each time.
	Open func() (sema.Engine, error)
	// Redis is the client below it, or nil. It stays the caller's to close.
	Redis redis.UniversalClient
	// Process makes the command of another process that calls Peer with the
	// name and the same store. Nil: the store is this process's own memory.
	Process func(name string) (*exec.Cmd, error)
}

// Config says what to measure, and for how long. Check says whether it can be.
type Config struct {
	Scenarios  []string      // some of Scenarios
	Rounds     int           // 1 … 1000
	Round      time.Duration // of each contestant in each round, 1 ms … 1 h
	Warmup     time.Duration // of each contestant, 0 … 1 h
	Goroutines []int         // of uncontended and contended, each 1 … 100,000
	Names      int           // of many-names, 1 … 100,000
	Waiters    []int         // of queue, each 1 … 1,000,000
	Permits    int           // of renew and memory, 1 … 1,000,000
	Lease      time.Duration // of renew's permits, a second … an hour

	// Progress, if not nil, is told what is being measured, again and again.
	Progress func(text string)
	// Report is given each scenario's result as soon as there is one. An error
	// from it ends the run.
	Report func(Result) error
}

// Result is what one scenario found.
type Result struct {
	Scenario string `json:"scenario"`
	About    string `json:"about"` // what was done, in a sentence
	Unit     string `json:"unit"`  // of work, in the plural; what rates, counts and allocations are of
	Ratio    string `json:"ratio"` // what a row's ratio is of; "" if there is none
	Rows     []Row  `json:"rows"`
}

// Row is one contestant in one case. Nil fields were not measured, or mean
// nothing there.
type Row struct {
	Case     string          `json:"case"`
	Who      string          `json:"who"` // "sema", or the name of the baseline
	Baseline bool            `json:"baseline"`
	Count    int64           `json:"count"`                   // units of work measured
	Rate     *measure.Spread `json:"rate,omitempty"`          // units in a second
	P50      *float64        `json:"p50_seconds,omitempty"`   // of all rounds
	P99      *float64        `json:"p99_seconds,omitempty"`   // of all rounds
	Spread   *float64        `json:"p99_over_p50,omitempty"`  //
	OfIdeal  *float64        `json:"of_ideal,omitempty"`      // 1: permits are never idle but for one round trip
	Allocs   *float64        `json:"allocs,omitempty"`        // heap objects for each unit
	Script   *measure.Spread `json:"script_us,omitempty"`     // server time in scripts for each unit, microseconds
	CPU      *measure.Spread `json:"cpu_us,omitempty"`        // CPU time for each unit, microseconds
	Core     *float64        `json:"core,omitempty"`          // CPU time, as a part of one core
	Calls    *float64        `json:"calls,omitempty"`         // script calls in a renewal period
	Lost     *int64          `json:"lost,omitempty"`          // permits lost
	Permit   *float64        `json:"bytes_permit,omitempty"`  // for each permit held
	Waiter   *float64        `json:"bytes_waiter,omitempty"`  // for each waiter
	Ratio    *measure.Spread `json:"ratio,omitempty"`         // as Result.Ratio says
	RatioP99 *measure.Spread `json:"ratio_of_p99s,omitempty"` // likewise, of the 99th percentiles
}

// scenario is something to measure.
type scenario struct {
	name  string
	redis bool // means nothing without Redis
	run   func(ctx context.Context, b *bench) (Result, error)
}

var scenarios = []scenario{
	{name: "uncontended", run: uncontended},
	{name: "contended", run: contended},
	{name: "hand-off", run: handOff},
	{name: "many-names", run: manyNames},
	{name: "queue", run: queue},
	{name: "renew", run: renew},
	{name: "memory", redis: true, run: footprint},
}

// Scenarios are the names of all scenarios, in the order they run in. Without
// Redis those are left out that only Redis has.
func Scenarios(withRedis bool) []string {
	var names []string
	for _, s := range scenarios {
		if withRedis || !s.redis {
			names = append(names, s.name)
		}
	}
	return names
}

// Check says which value is out of range; the error is a *sema.ArgumentError.
func (c Config) Check(withRedis bool) error {
	for _, name := range c.Scenarios {
		if !slices.Contains(Scenarios(true), name) {
			return &sema.ArgumentError{What: "scenario", Value: name, Want: strings.Join(Scenarios(withRedis), ", ")}
		}
		if !slices.Contains(Scenarios(withRedis), name) {
			return &sema.ArgumentError{What: "scenario", Value: name, Want: strings.Join(Scenarios(false), ", ") + ", unless the engine is Redis"}
		}
	}
	for _, n := range []struct {
		what   string
		values []int
		most   int
	}{
		{"rounds", []int{c.Rounds}, 1000},
		{"goroutines", c.Goroutines, 100_000},
		{"names", []int{c.Names}, 100_000},
		{"waiters", c.Waiters, 1_000_000},
		{"permits", []int{c.Permits}, 1_000_000},
	} {
		if len(n.values) == 0 {
			return &sema.ArgumentError{What: n.what, Value: "(none)", Want: fmt.Sprintf("1 … %d", n.most)}
		}
		for _, v := range n.values {
			if v < 1 || v > n.most {
				return &sema.ArgumentError{What: n.what, Value: v, Want: fmt.Sprintf("1 … %d", n.most)}
			}
		}
	}
	for _, d := range []struct {
		what        string
		value       time.Duration
		least, most time.Duration
	}{
		{"round", c.Round, time.Millisecond, time.Hour},
		{"warm-up", c.Warmup, 0, time.Hour},
		{"lease", c.Lease, time.Second, time.Hour},
	} {
		if d.value < d.least || d.value > d.most {
			return &sema.ArgumentError{What: d.what, Value: d.value, Want: fmt.Sprintf("%v … %v", d.least, d.most)}
		}
	}
	return nil
}

// bench is one run.
type bench struct {
	Config
	Target
	prefix string // of all names
	step   string // what is being measured
}

// Run measures the scenarios one after the other. When ctx ends it stops and
// fails with ctx's error. Whatever it made on the engine is removed when it
// returns; if that fails, the error says instead what is left.
func Run(ctx context.Context, t Target, c Config) error {
	if err := c.Check(t.Redis != nil); err != nil {
		return err
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	b := &bench{Config: c, Target: t, prefix: "sema-bench-" + strings.ToLower(base32.StdEncoding.EncodeToString(random)) + "-"}
	for _, s := range scenarios {
		if !slices.Contains(c.Scenarios, s.name) {
			continue
		}
		b.at("%s", s.name)
		result, err := s.run(ctx, b)
		if err != nil {
			err = fmt.Errorf("bench: %s: %w", s.name, err)
		}
		if ctx.Err() != nil {
			err = ctx.Err() // whatever broke, broke of that
		}
		// Before the next one begins: what is left costs memory, and time.
		if left := b.clean(ctx); left != nil {
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("%w; and %w", err, left)
			}
			return left
		}
		if err != nil {
			return err
		}
		result.Scenario = s.name
		if err := c.Report(result); err != nil {
			return err
		}
	}
	return nil
}

// name is that of a semaphore of this run.
func (b *bench) name(of string) string { return b.prefix + of }

// at tells what is being measured now.
func (b *bench) at(format string, args ...any) {
	b.step = fmt.Sprintf(format, args...)
	b.tell("")
}

func (b *bench) tell(more string) {
	if b.Progress != nil {
		b.Progress(b.step + more)
	}
}

// plan is the configured one, for so many workers.
func (b *bench) plan(workers int) measure.Plan {
	return measure.Plan{Workers: workers, Warmup: b.Warmup, Round: b.Round, Rounds: b.Rounds}
}

// measure runs contestants by the plan.
func (b *bench) measure(ctx context.Context, workers int, contestants ...measure.Contestant) ([]measure.Series, error) {
	return measure.Run(ctx, b.plan(workers), contestants, b.turn)
}

// turn tells whose turn it is.
func (b *bench) turn(round int, who string) {
	b.tell(fmt.Sprintf(", round %d of %d: %s", round+1, b.Rounds, who))
}

// closeTime is how long semaphores may take to give back what they hold, and
// the other process to end.
const closeTime = 2 * time.Second

// open makes semaphores on an engine of their own. closing gives back all that
// they hold and returns when no call of theirs is on its way any more; it is
// to be called in any case.
func (b *bench) open(names []string, limit int, o sema.Options) (sems []*sema.Semaphore, closing func(), err error) {
	engine, err := b.Open()
	if err != nil {
		return nil, func() {}, err
	}
	closing = func() {
		// A closed engine refuses at once what one that is gone would keep
		// waiting.
		forced := time.AfterFunc(closeTime, func() { _ = engine.Close() })
		var group sync.WaitGroup
		for _, s := range sems {
			group.Go(func() { _ = s.Close() }) // what it could not give back, clean removes
		}
		group.Wait()
		forced.Stop()
		_ = engine.Close() // fails no more than what was just done
	}
	for _, name := range names {
		s, err := sema.New(engine, name, limit, &o)
		if err != nil {
			return nil, closing, err
		}
		sems = append(sems, s)
	}
	return sems, closing, nil
}

// pair acquires and releases.
func pair(ctx context.Context, s *sema.Semaphore) error {
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return p.Release()
}

// row is what a series says.
func row(which string, s measure.Series, baseline bool) Row {
	rate := s.Rate()
	return Row{Case: which, Who: s.Name, Baseline: baseline, Count: s.Done(), Rate: &rate}
}

// waits adds the percentiles.
func (r Row) waits(s measure.Series) Row {
	h := s.Waits()
	p50, p99 := seconds(h.ValueAtQuantile(50)), seconds(h.ValueAtQuantile(99))
	r.P50, r.P99 = &p50, &p99
	return r
}

// ratio adds a's rate over b's.
func (r Row) ratio(a, b measure.Series) Row {
	ratio := measure.Ratio(a, b)
	r.Ratio = &ratio
	return r
}

func (r Row) allocs(s measure.Series) Row {
	m := s.Mallocs().Median
	r.Allocs = &m
	return r
}

func seconds(nanoseconds int64) float64 { return time.Duration(nanoseconds).Seconds() }

// sleep ends early when ctx does.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
