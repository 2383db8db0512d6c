package main

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/history"
)

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
