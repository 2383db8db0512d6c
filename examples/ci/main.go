// Ci shows jobs that need a licence, a GPU and connections to a database at once. All runners that share the
// semaphore together never use more of any than there is, and a job takes all that it needs in one step.
//
//	go run ./ci
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
)

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

// acquire waits until there is all that a job needs, and takes it in one step.
func acquire(ctx context.Context, sem *sema.Semaphore, job string, needs engine.Pools) (*sema.Permit, error) {
	options := []sema.AcquireOption{sema.Label(job)}
	for pool, n := range needs.All() {
		options = append(options, sema.Take(pool, n))
	}
	return sem.Acquire(ctx, options...)
}

// show has jobs of three kinds share what there is, and tells who runs and who waits.
func show(ctx context.Context, out io.Writer) error {
	sem, err := sema.New(memengine.New(), "ci", 100, &sema.Options{Pools: "db=4,gpu=3,licence=1"})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }() // gives back what jobs have
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	began := make(chan error, 2) // a job that waited begins, or fails
	var first *sema.Permit
	for _, job := range []struct {
		name  string
		needs engine.Pools
		waits bool
		say   string
	}{
		{"simulation 1", "db=1,gpu=1,licence=1", false, "simulation 1 runs"},
		{"simulation 2", "db=1,gpu=1,licence=1", true, "simulation 2 waits for the licence"},
		{"training 1", "gpu=1", false, "training 1 runs beside it"},
		{"training 2", "gpu=1", true, "training 2 waits: the last GPU is kept for simulation 2"},
		{"test", "db=2", false, "a test runs, with two connections"},
	} {
		if job.waits {
			go func() { _, err := acquire(ctx, sem, job.name, job.needs); began <- err }()
			err = waits(ctx, sem, job.name)
		} else {
			var permit *sema.Permit
			if permit, err = acquire(ctx, sem, job.name, job.needs); first == nil {
				first = permit
			}
		}
		if err == nil {
			err = say(ctx, sem, out, job.say)
		}
		if err != nil {
			return err
		}
	}
	if err := first.Release(); err != nil {
		return err
	}
	for range 2 {
		if err := <-began; err != nil {
			return err
		}
	}
	return say(ctx, sem, out, "simulation 1 has ended: simulation 2 and training 2 run")
}

// waits looks until the job waits.
func waits(ctx context.Context, sem *sema.Semaphore, job string) error {
	for {
		state, err := sem.State(ctx)
		if err != nil || slices.ContainsFunc(state.Waiters, func(w engine.Waiter) bool { return w.Client.Label == job }) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say prints what happens, and how much is used.
func say(ctx context.Context, sem *sema.Semaphore, out io.Writer, what string) error {
	state, err := sem.State(ctx)
	if err != nil {
		return err
	}
	for _, p := range state.Pools {
		fmt.Fprintf(out, "%s %d of %d  ", p.Pool, p.Used, p.Limit)
	}
	fmt.Fprintln(out, what)
	return nil
}
