package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/history"
)

// crew is the processes of a round, those that are gone included.
type crew struct {
	lease time.Duration // the longest of the semaphores

	mu   sync.Mutex
	all  []*process
	live []*process
}

// newCrew starts the processes.
func newCrew(p *plan) (*crew, error) {
	c := &crew{}
	for _, s := range p.semaphores {
		c.lease = max(c.lease, s.Lease)
	}
	for _, j := range p.jobs {
		if err := c.add(j); err != nil {
			c.killAll()
			return nil, err
		}
	}
	return c, nil
}

func (c *crew) add(j job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	j.ID = len(c.all) + 1
	p, err := start(j)
	if err != nil {
		return err
	}
	c.all, c.live = append(c.all, p), append(c.live, p)
	return nil
}

// pick is a process for a fault to hit, or nil: never one that sets limits, nor
// one that a fault hits already.
func (c *crew) pick(random *rand.Rand) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var able []*process
	for _, p := range c.live {
		if !p.job.Resizes && !p.hit {
			able = append(able, p)
		}
	}
	if len(able) == 0 {
		return nil
	}
	p := able[random.IntN(len(able))]
	p.hit = true
	return p
}

// putBack makes a process available for the next fault.
func (c *crew) putBack(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.hit = false
}

// replace starts a process in place of one that is gone.
func (c *crew) replace(p *process) error {
	c.mu.Lock()
	c.live = slices.DeleteFunc(c.live, func(q *process) bool { return q == p })
	c.mu.Unlock()
	j := p.job
	j.Seed++
	return c.add(j)
}

// end has all processes finish, and names those that did not in time.
func (c *crew) end(within time.Duration) (late []*process) {
	var all sync.WaitGroup
	ended := make([]bool, len(c.live))
	for i, p := range c.live {
		all.Go(func() { ended[i] = p.end(within) })
	}
	all.Wait()
	for i, p := range c.live {
		if !ended[i] {
			late = append(late, p)
		}
	}
	return late
}

// killAll ends whatever is left.
func (c *crew) killAll() {
	for _, p := range c.all {
		select {
		case <-p.Done():
		default:
			p.kill()
		}
	}
}

// record adds the processes and their reports to a round. All processes must
// have ended.
func (c *crew) record(r *history.Round) error {
	for _, p := range c.all {
		r.Workers = append(r.Workers, history.Worker{ID: p.job.ID, Site: p.job.Site, Gone: p.killed})
		events, err := history.Read(p.Said())
		if err != nil {
			return err
		}
		r.Events = append(r.Events, events...)
	}
	return nil
}

// workerRole makes the program a worker.
const workerRole = "worker"

// process is a worker, seen from the runner.
type process struct {
	*child.Process
	job    job
	errors bytes.Buffer // to be read when it is gone

	killed int64 // when it was killed, or told to exit; 0: not
	hit    bool  // a fault hits it
}

// start starts a worker.
func start(j job) (*process, error) {
	cmd, err := child.Command(workerRole, j)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	p := &process{job: j}
	cmd.Stderr = &p.errors
	if p.Process, err = child.Start(cmd); err != nil {
		return nil, fmt.Errorf("faults: a worker does not start: %w", err)
	}
	return p, nil
}

// kill kills the worker and waits until it is gone.
func (p *process) kill() {
	p.killed = history.Now()
	p.Kill()
}

// exit makes the worker exit at once, without releasing its permits.
func (p *process) exit() {
	p.killed = history.Now()
	if err := p.Order(orderExit); err != nil {
		p.Kill()
	}
	<-p.Done()
}

// dump makes the worker print the stacks of its goroutines, and exit.
func (p *process) dump() string {
	if p.Signal(syscall.SIGQUIT) == nil {
		within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Wait(within)
	}
	p.kill()
	return p.errors.String()
}

// end has the worker finish by itself. It reports whether it did so in time.
func (p *process) end(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = p.End(ctx)
	return ctx.Err() == nil
}
