package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sema/internal/fixture/history"
	"sema/lab/faults"
	"sema/lab/faults/ground"
)

// plan describes a round. It depends only on the seed and the list of faults.
type plan struct {
	seed       uint64
	semaphores []history.Semaphore
	jobs       []job
	fault      string // the one fault, or faults.Mixed
	steps      []step
}

// step is some faults at once, and a pause.
type step struct {
	faults []occurrence
	pause  time.Duration
}

// occurrence is a fault in a step, after so long.
type occurrence struct {
	fault *ground.Fault
	after time.Duration
	lasts time.Duration
	seed  uint64
}

// makePlan plans the load of a round. Originals know no weights, slots and
// changing limits.
func makePlan(seed uint64, bug *planted) *plan {
	p := &plan{seed: seed}
	random := rand.New(rand.NewPCG(seed, 1))
	rates := rand.New(rand.NewPCG(seed, 4)) // what came before they did stays
	some := func(percent int) bool { return random.IntN(100) < percent }
	for i := range 4 {
		s := history.Semaphore{
			Name:  fmt.Sprintf("round-%d-%d", seed, i),
			Limit: 1 + random.IntN(8), Lease: between(random, 1500*time.Millisecond, 4*time.Second).Round(time.Millisecond),
			Unfair: some(15), Slots: some(30), Weights: some(30), Resized: some(25),
		}
		if i == 0 { // one of limit 1, always
			s.Limit, s.Weights = 1, false
		}
		if some(30) {
			s.Keep = between(random, 5*time.Millisecond, 50*time.Millisecond).Round(time.Millisecond)
		}
		if bug != nil && bug.original != nil {
			s.Weights, s.Slots, s.Resized = false, false, false
		} else if i > 1 && (some(60) || bug != nil && bug.keys) { // keys share it
			s.Keys, s.Caps = 2+random.IntN(4), []int{1 + random.IntN(s.Limit)}
			if some(33) { // of up to three names
				s.Keys = 2
				for range 2 {
					s.Caps = append(s.Caps, 1+random.IntN(slices.Min(s.Caps)))
				}
			}
		}
		if pools := bug != nil && bug.pools; i > 0 && (bug == nil || bug.original == nil) && (pools || !s.Resized && some(40)) {
			s.Resized, s.Pools = false, history.Pools{"db": 1 + random.IntN(4), "gpu": 1 + random.IntN(2)} // an operator's limit may come first, and knows no pools
		}
		if i == 3 && s.Pools != nil || rates.IntN(4) == 0 && s.Pools != nil {
			s.Cooled, s.Rates = true, map[string]time.Duration{}
			for _, pool := range []string{"rpm", "tpm"} {
				s.Pools[pool], s.Rates[pool] = 5+rates.IntN(50), between(rates, 300*time.Millisecond, 1500*time.Millisecond).Round(time.Millisecond)
			}
		}
		p.semaphores = append(p.semaphores, s)
	}
	for i := range 6 + random.IntN(5) {
		p.jobs = append(p.jobs, job{
			Site: i % ground.Sites, Semaphores: p.semaphores, Goroutines: 4 + random.IntN(13), Seed: random.Uint64(), Resizes: i == 0,
		})
	}
	return p
}

// addFaults plans the faults. only is the one to be played; if it is empty, rounds
// of an even seed have one fault, those of an odd seed several.
func (p *plan) addFaults(only string, list []ground.Fault) error {
	random := rand.New(rand.NewPCG(p.seed, 2))
	p.fault = only
	if p.fault == "" {
		p.fault = faults.Mixed
		if p.seed%2 == 0 { // seeds that follow one another go through all faults
			p.fault = list[p.seed/2%uint64(len(list))].Name
		}
	}
	if p.fault != faults.Mixed {
		i := slices.IndexFunc(list, func(f ground.Fault) bool { return f.Name == p.fault })
		if i < 0 {
			return fmt.Errorf("faults: there is no fault %q here, but: %q", p.fault, names(list))
		}
		list = list[i : i+1]
	}
	for range 20 { // more than a round has time for
		p.steps = append(p.steps, makeStep(random, list))
	}
	return nil
}

// makeStep chooses a fault, and now and then another beside it.
func makeStep(random *rand.Rand, list []ground.Fault) step {
	one := func() occurrence {
		f := &list[random.IntN(len(list))]
		o := occurrence{fault: f, seed: random.Uint64()}
		if f.End != nil {
			lasts := f.Lasts
			if lasts == ([2]time.Duration{}) {
				lasts = [2]time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond}
			}
			o.lasts = between(random, lasts[0], lasts[1])
		}
		return o
	}
	a, b := one(), one()
	s := step{faults: []occurrence{a}, pause: between(random, 2*time.Second, 3*time.Second)}
	if random.IntN(5) < 2 && a.fault.Name != b.fault.Name && !a.fault.Alone && !b.fault.Alone {
		b.after = between(random, 0, time.Second)
		s.faults = append(s.faults, b)
	}
	return s
}

func names(list []ground.Fault) []string {
	all := make([]string, len(list))
	for i, f := range list {
		all[i] = f.Name
	}
	return all
}

// workerFaults are those of the processes of a round.
func workerFaults(c *crew) []ground.Fault {
	// hit begins a fault of one worker.
	hit := func(do func(*process) error) func(context.Context, *rand.Rand) (ground.Extent, error) {
		return func(_ context.Context, r *rand.Rand) (ground.Extent, error) {
			p := c.pick(r)
			if p == nil {
				return ground.Extent{}, errors.New("faults: no worker is left to be hit")
			}
			return ground.Extent{Workers: []int{p.job.ID}}, do(p)
		}
	}
	stopped := make(chan *process, len(c.live))
	return []ground.Fault{
		{Name: "kill -9 of a worker", Begin: hit(func(p *process) error { p.kill(); return c.replace(p) })},
		{Name: "a worker exits with all it holds", Begin: hit(func(p *process) error { p.exit(); return c.replace(p) })},
		{
			Name: "SIGSTOP of a worker, SIGCONT", Lasts: [2]time.Duration{c.lease / 5, 3 * c.lease / 2},
			Begin: hit(func(p *process) error { stopped <- p; return p.Stop() }),
			End: func(context.Context) error {
				p := <-stopped
				defer c.putBack(p)
				return p.Continue()
			},
		},
	}
}
