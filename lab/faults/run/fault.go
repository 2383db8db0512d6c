package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"sema/lab/faults/ground"
)

// fault is a fault of the ground, or of a worker.
type fault struct {
	name    string
	lasts   func(*rand.Rand) time.Duration // between begin and end
	begin   func(context.Context, *rand.Rand) (extent, error)
	end     func(context.Context) error // nil: over when begin returns
	excuses ground.Excuse
	alone   bool
}

// extent is the part of the crew that a fault hits; the zero value: all of it.
type extent struct{ sites, workers []int }

// groundFaults are those of the ground.
func groundFaults(g ground.Ground) []fault {
	var all []fault
	for _, f := range g.Faults() {
		all = append(all, fault{
			name: f.Name, end: f.End, excuses: f.Excuses, alone: f.Alone,
			lasts: func(r *rand.Rand) time.Duration {
				return max(f.For, between(r, 1500*time.Millisecond, 2500*time.Millisecond))
			},
			begin: func(ctx context.Context, r *rand.Rand) (extent, error) {
				e, err := f.Begin(ctx, r)
				if f.Spreads {
					e.Sites = nil
				}
				return extent{sites: e.Sites}, err
			},
		})
	}
	return all
}

// workerFaults are those of the processes of a round.
func workerFaults(c *crew) []fault {
	// dies is a fault that ends a worker; another takes its place.
	dies := func(name string, die func(*process)) fault {
		return fault{name: name, begin: func(_ context.Context, r *rand.Rand) (extent, error) {
			p := c.pick(r)
			if p == nil {
				return extent{}, errNoWorker
			}
			die(p)
			return extent{workers: []int{p.job.ID}}, c.replace(p)
		}}
	}
	stopped := make(chan *process, len(c.live))
	return []fault{
		dies("kill -9 of a worker", (*process).kill),
		dies("a worker exits with all it holds", (*process).exit),
		{
			name:  "SIGSTOP of a worker, SIGCONT",
			lasts: func(r *rand.Rand) time.Duration { return between(r, c.lease/5, 3*c.lease/2) },
			begin: func(_ context.Context, r *rand.Rand) (extent, error) {
				p := c.pick(r)
				if p == nil {
					return extent{}, errNoWorker
				}
				stopped <- p
				return extent{workers: []int{p.job.ID}}, p.Stop()
			},
			end: func(context.Context) error {
				p := <-stopped
				defer c.putBack(p)
				return p.Continue()
			},
		},
	}
}

var errNoWorker = errors.New("faults: no worker is left to be hit")
