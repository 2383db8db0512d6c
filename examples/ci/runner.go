package main

import (
	"context"

	"sema"
	"sema/engine"
)

// runner runs jobs as soon as there is what they need.
type runner struct {
	sem *sema.Semaphore
}

// newRunner makes a runner that shares what there is with all others of the engine. jobs is how many run at once in all,
// whatever they need.
func newRunner(e sema.Engine, jobs int, there engine.Pools) (*runner, error) {
	sem, err := sema.New(e, "ci", jobs, &sema.Options{Pools: there})
	if err != nil {
		return nil, err
	}
	return &runner{sem}, nil
}

// job is a program to run, and how much it needs of which pools.
type job struct {
	name  string
	needs engine.Pools
	run   func(ctx context.Context) error
}

// options are what an acquisition for the job takes.
func (j job) options() []sema.AcquireOption {
	options := []sema.AcquireOption{sema.Label(j.name)}
	for pool, n := range j.needs.All() {
		options = append(options, sema.Take(pool, n))
	}
	return options
}

// run waits until there is all that a job needs, and runs it. Its context ends before another job may use what it has.
func (r *runner) run(ctx context.Context, j job) error {
	return r.sem.Do(ctx, j.run, j.options()...)
}

func (r *runner) close() error { return r.sem.Close() }
