package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"sema"
	"sema/internal/measure"
)

const ratioOfRates = "sema's rate over that of the baseline in the row, round by round"

// uncontended: room for everybody.
func uncontended(ctx context.Context, b *bench) (Result, error) {
	r := Result{
		About: "acquire and release one semaphore whose limit is the number of goroutines",
		Unit:  "pairs", Ratio: ratioOfRates,
	}
	for _, g := range b.Goroutines {
		which := fmt.Sprintf("goroutines=%d", g)
		b.at("uncontended, %s", which)
		name := b.name(fmt.Sprintf("uncontended-%d", g))
		rows, err := b.pairs(ctx, which, g, func(int) string { return name }, g)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, rows...)
	}
	return r, nil
}

// manyNames: one goroutine on each of many semaphores of one client.
func manyNames(ctx context.Context, b *bench) (Result, error) {
	names := make([]string, b.Names)
	for i := range names {
		names[i] = b.name(fmt.Sprintf("name-%d", i))
	}
	which := fmt.Sprintf("names=%d", b.Names)
	b.at("many-names, %s", which)
	rows, err := b.pairs(ctx, which, b.Names, func(worker int) string { return names[worker] }, 1)
	return Result{
		About: "acquire and release, one goroutine on each of many semaphores of one client",
		Unit:  "pairs", Ratio: ratioOfRates, Rows: rows,
	}, err
}

// pairs measures acquire and release beside its baselines, worker w on the
// semaphore name(w).
func (b *bench) pairs(ctx context.Context, which string, workers int, name func(worker int) string, limit int) ([]Row, error) {
	of := make([]int, workers) // which semaphore is whose
	var names []string
	for w := range of {
		if w == 0 || name(w) != name(w-1) {
			names = append(names, name(w))
		}
		of[w] = len(names) - 1
	}
	sems, closing, err := b.open(names, limit, sema.Options{})
	defer closing()
	if err != nil {
		return nil, err
	}
	baselines, closeBaselines, err := b.baselines(ctx, workers, name, limit)
	defer closeBaselines()
	if err != nil {
		return nil, err
	}
	contestants := append([]measure.Contestant{{Name: "sema", Do: func(ctx context.Context, w int) (time.Duration, error) {
		began := time.Now()
		err := pair(ctx, sems[of[w]])
		return time.Since(began), err
	}}}, baselines...)
	series, err := b.measure(ctx, workers, contestants...)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, s := range series {
		next := row(which, s, i > 0).allocs(s)
		if contestants[i].Units == 0 {
			next = next.waits(s)
		}
		if i > 0 {
			next = next.ratio(series[0], s)
		}
		rows = append(rows, next)
	}
	return rows, nil
}

// contendedLimit is the limit of the scenario contended.
const contendedLimit = 8

// contended: more goroutines than permits.
func contended(ctx context.Context, b *bench) (Result, error) {
	r := Result{
		About: fmt.Sprintf("acquire, hold and release one semaphore of limit %d; percentiles are of the waits for a permit; "+
			"of ideal: the rate over that of permits which lie idle for one round trip between two holders", contendedLimit),
		Unit: "permits", Ratio: ratioOfRates,
	}
	trip, err := b.roundTrip(ctx)
	if err != nil {
		return r, err
	}
	var workers []int
	for _, g := range b.Goroutines {
		if g > contendedLimit {
			workers = append(workers, g)
		}
	}
	if workers == nil {
		workers = []int{64}
	}
	for _, g := range workers {
		for _, hold := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
			rows, err := b.holds(ctx, g, hold, trip)
			if err != nil {
				return r, err
			}
			r.Rows = append(r.Rows, rows...)
		}
	}
	return r, nil
}

// roundTrip is the median time of a call that does nothing, or 0 where there is
// no server to be called.
func (b *bench) roundTrip(ctx context.Context) (time.Duration, error) {
	if b.Redis == nil {
		return 0, nil
	}
	b.at("contended, round trip")
	call, err := noop(ctx, b.Redis, 1, func(int) string { return b.name("contended") })
	if err != nil {
		return 0, err
	}
	plan := b.plan(1)
	plan.Rounds = 1
	series, err := measure.Run(ctx, plan, []measure.Contestant{{Name: "no-op call", Do: func(ctx context.Context, w int) (time.Duration, error) {
		began := time.Now()
		err := call(ctx, w)
		return time.Since(began), err
	}}}, nil)
	if err != nil {
		return 0, err
	}
	return time.Duration(series[0].Waits().ValueAtQuantile(50)), nil
}

// holder holds permits and knows how long it did.
type holder struct {
	hold  time.Duration
	slept atomic.Int64 // nanoseconds
	times atomic.Int64
}

// work holds a permit. Timers are coarse, so what counts is how long it took.
func (h *holder) work() {
	if h.hold == 0 {
		return
	}
	began := time.Now()
	time.Sleep(h.hold)
	h.slept.Add(int64(time.Since(began)))
	h.times.Add(1)
}

// ofIdeal is a rate over the one that the limit allows when every permit lies
// idle for gap between two holders.
func (h *holder) ofIdeal(rate float64, gap time.Duration) *float64 {
	if h.hold == 0 || h.times.Load() == 0 {
		return nil
	}
	mean := time.Duration(h.slept.Load() / h.times.Load())
	part := rate * (mean + gap).Seconds() / contendedLimit
	return &part
}

func (b *bench) holds(ctx context.Context, workers int, hold, trip time.Duration) ([]Row, error) {
	which := fmt.Sprintf("goroutines=%d hold=%v", workers, hold)
	b.at("contended, %s", which)
	sems, closing, err := b.open([]string{b.name(fmt.Sprintf("contended-%d-%v", workers, hold))}, contendedLimit, sema.Options{})
	defer closing()
	if err != nil {
		return nil, err
	}
	permits := make(chan struct{}, contendedLimit)
	ours, theirs := &holder{hold: hold}, &holder{hold: hold}
	series, err := b.measure(ctx, workers,
		measure.Contestant{Name: "sema", Do: func(ctx context.Context, _ int) (time.Duration, error) {
			began := time.Now()
			p, err := sems[0].Acquire(ctx)
			wait := time.Since(began)
			if err != nil {
				return 0, err
			}
			ours.work()
			return wait, p.Release()
		}},
		measure.Contestant{Name: aChannel, Do: func(ctx context.Context, _ int) (time.Duration, error) {
			began := time.Now()
			select {
			case permits <- struct{}{}:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			wait := time.Since(began)
			theirs.work()
			<-permits
			return wait, nil
		}})
	if err != nil {
		return nil, err
	}
	rows := []Row{row(which, series[0], false).waits(series[0]), row(which, series[1], true).waits(series[1]).ratio(series[0], series[1])}
	rows[0].OfIdeal = ours.ofIdeal(rows[0].Rate.Median, trip)
	rows[1].OfIdeal = theirs.ofIdeal(rows[1].Rate.Median, 0)
	for i := range rows {
		if *rows[i].P50 > 0 {
			spread := *rows[i].P99 / *rows[i].P50
			rows[i].Spread = &spread
		}
	}
	return rows, nil
}
