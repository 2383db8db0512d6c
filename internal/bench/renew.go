package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"sema"
	"sema/internal/measure"
)

// period is how often sema renews permits of that lease by default: see
// sema.Options.
func period(lease time.Duration) time.Duration { return (lease - min(lease/10, time.Second)) / 3 }

// renew: what it costs to hold permits.
func renew(ctx context.Context, b *bench) (Result, error) {
	every := period(b.Lease)
	r := Result{
		About: fmt.Sprintf("hold permits with leases of %v, which are renewed every %v, for one and a half such periods; "+
			"measured over the last whole one; core: CPU time of %s as a part of one core",
			b.Lease, every.Round(10*time.Millisecond), map[bool]string{true: "the server's main thread", false: "this process"}[b.Redis != nil]),
		Unit:  "permits",
		Ratio: "the part of a core over that of the baseline (less is better)",
	}
	which := fmt.Sprintf("permits=%d", b.Permits)
	name := b.name("renew")
	idle := min(every/3, 3*time.Second)
	b.at("renew, %s", which)

	from, to, err := b.watch(ctx, name, idle, "idle")
	if err != nil {
		return r, err
	}
	idleCore := core(from, to)

	var lost atomic.Int64
	sems, closing, err := b.open([]string{name}, b.Permits, sema.Options{Lease: b.Lease, Observer: sema.Observer{Lost: func(sema.Event) { lost.Add(1) }}})
	defer closing()
	if err != nil {
		return r, err
	}
	b.tell(": acquiring")
	if err := hold(ctx, sems[0], b.Permits); err != nil {
		return r, err
	}
	// Whole periods only: every permit is renewed once in one, whenever it was
	// acquired.
	if _, _, err = b.watch(ctx, name, every/2, "holding"); err != nil {
		return r, err
	}
	if from, to, err = b.watch(ctx, name, every, "holding"); err != nil {
		return r, err
	}
	used, gone := core(from, to), lost.Load()
	ours := Row{Case: which, Who: "sema", Count: int64(b.Permits), Lost: &gone}
	baseline := Row{Case: which, Who: "idle, without permits", Baseline: true}
	if b.Redis != nil {
		calls := float64(to.calls-from.calls) / to.at.Sub(from.at).Seconds() * every.Seconds()
		ours.Calls = &calls
	}
	if _, ok := processCPU(); ok || b.Redis != nil {
		ours.Core, baseline.Core = &used, &idleCore
		if idleCore > 0 {
			ratio := measure.Of(used / idleCore)
			baseline.Ratio = &ratio
		}
	}
	r.Rows = []Row{ours, baseline}
	return r, nil
}

// watch takes a sample before and one after some time.
func (b *bench) watch(ctx context.Context, name string, d time.Duration, what string) (from, to sample, err error) {
	if from, err = b.sample(ctx, name); err != nil {
		return from, to, err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		left := time.Until(end)
		b.tell(fmt.Sprintf(": %s for %v more", what, left.Round(time.Second)))
		if err := sleep(ctx, min(left, time.Second)); err != nil {
			return from, to, err
		}
	}
	to, err = b.sample(ctx, name)
	return from, to, err
}
