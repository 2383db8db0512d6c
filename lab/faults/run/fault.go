package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"sema/lab/faults/ground"
)

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
