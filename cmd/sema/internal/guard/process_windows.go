package guard

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a running command. Windows has no process groups to signal: all that can be
// done is to end its first process.
type Process struct {
	Events <-chan Event

	cmd *exec.Cmd
}

// Adopt does nothing: there are no orphans to adopt.
func Adopt() (stop func()) { return func() {} }

// Start runs a command.
func Start(c Command) (*Process, error) {
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	events := make(chan Event, 2)
	go func() {
		_ = cmd.Wait() // the exit code says it
		events <- Event{Kind: Ended, Code: cmd.ProcessState.ExitCode()}
		events <- Event{Kind: Gone}
	}()
	return &Process{events, cmd}, nil
}

// Signal does nothing: the console has sent it to the command as well.
func (p *Process) Signal(syscall.Signal) {}

// Until does nothing: there is no guard.
func (p *Process) Until(time.Time) {}

// Terminate kills the first process.
func (p *Process) Terminate() { p.Kill() }

// Kill kills the first process.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Close and Wait do nothing: there is no guard.
func (p *Process) Close() {}
func (p *Process) Wait()  {}
