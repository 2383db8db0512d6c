package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"sema"
	"sema/engine"
)

// show has jobs of three kinds share what there is, and tells who runs and who waits.
func show(ctx context.Context, e sema.Engine, out io.Writer) (err error) {
	r, err := newRunner(e, 100, "db=4,gpu=3,licence=1")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	s := &stage{runner: r, stop: stop, began: make(chan string)}
	defer func() {
		stop(nil)
		s.all.Wait()
		err = errors.Join(err, r.close())
	}()
	var first func()
	for _, step := range []struct {
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
		end := s.start(ctx, job{name: step.name, needs: step.needs})
		if first == nil {
			first = end
		}
		if step.waits {
			err = s.waits(ctx, step.name)
		} else {
			err = s.begins(ctx)
		}
		if err = errors.Join(err, s.say(ctx, out, step.say)); err != nil {
			return err
		}
	}
	first()
	return errors.Join(s.begins(ctx), s.begins(ctx), s.say(ctx, out, "simulation 1 has ended: simulation 2 and training 2 run"))
}

// stage has jobs run until they are told to end.
type stage struct {
	*runner
	all   sync.WaitGroup
	began chan string             // the names of jobs, as they begin
	stop  context.CancelCauseFunc // ends all
}

// start gives a job to the runner. It runs until the context ends, or end is called.
func (s *stage) start(ctx context.Context, j job) (end func()) {
	told, end := context.WithCancel(ctx)
	j.run = func(ctx context.Context) error {
		select {
		case s.began <- j.name:
			<-told.Done()
		case <-ctx.Done():
		}
		return nil
	}
	s.all.Go(func() {
		defer end()
		if err := s.run(ctx, j); err != nil {
			s.stop(err)
		}
	})
	return end
}

// begins waits until a job begins.
func (s *stage) begins(ctx context.Context) error {
	select {
	case <-s.began:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waits looks until the job waits.
func (s *stage) waits(ctx context.Context, name string) error {
	for {
		state, err := s.sem.State(ctx)
		if err != nil || slices.ContainsFunc(state.Waiters, func(w engine.Waiter) bool { return w.Client.Label == name }) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// say prints what happens, and how much is used.
func (s *stage) say(ctx context.Context, out io.Writer, what string) error {
	state, err := s.sem.State(ctx)
	if err != nil {
		return err
	}
	for _, p := range state.Pools {
		fmt.Fprintf(out, "%s %d of %d  ", p.Pool, p.Used, p.Limit)
	}
	fmt.Fprintln(out, what)
	return nil
}
