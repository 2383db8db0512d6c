package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"sema/lab/history"
)

// workerArg makes the program a worker.
const workerArg = "worker"

// process is a worker, seen from the runner.
type process struct {
	job    job
	cmd    *exec.Cmd
	orders io.WriteCloser
	events bytes.Buffer // what it said; to be read when it is gone
	errors bytes.Buffer
	done   chan struct{} // closed when it is gone

	killed int64 // when it was killed, or told to exit; 0: not
	hit    bool  // a fault hits it
}

// start starts a worker.
func start(j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	line, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	p := &process{job: j, cmd: exec.Command(self, workerArg), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.events, &p.errors
	p.cmd.SysProcAttr = dieWithParent()
	if p.orders, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("faults: a worker does not start: %w", err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	if _, err := p.orders.Write(append(line, '\n')); err != nil {
		p.kill()
		return nil, fmt.Errorf("faults: %w", err)
	}
	return p, nil
}

// kill kills the worker and waits until it is gone.
func (p *process) kill() {
	p.killed = history.Now()
	_ = p.cmd.Process.Kill()
	<-p.done
}

// exit has the worker end at once, with all that it holds.
func (p *process) exit() {
	p.killed = history.Now()
	if _, err := io.WriteString(p.orders, orderExit); err != nil {
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

// dump has the worker say where its goroutines are, and end.
func (p *process) dump() string {
	if quit(p.cmd.Process) == nil {
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
		}
	}
	p.kill()
	return p.errors.String()
}

// end has the worker finish by itself. It reports whether it did so in time.
func (p *process) end(within time.Duration) bool {
	_ = p.orders.Close()
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		return false
	}
}
