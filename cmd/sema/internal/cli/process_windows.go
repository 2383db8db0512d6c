package cli

import (
	"os"
	"os/exec"
	"time"

	"sema/cmd/sema/internal/guard"
)

// process is a running command. Windows has no process groups to signal: all
// that can be done is to end its first process.
type process struct {
	cmd      *exec.Cmd
	happened chan guard.Event
}

func adopt() (stop func()) { return func() {} }

func startProcess(c command) (*process, error) {
	cmd := exec.Command(c.path, c.args[1:]...)
	cmd.Args[0], cmd.Env = c.args[0], c.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, happened: make(chan guard.Event, 2)}
	go func() {
		_ = cmd.Wait() // the exit code says it
		p.happened <- guard.Event{Kind: guard.Ended, Code: cmd.ProcessState.ExitCode()}
		p.happened <- guard.Event{Kind: guard.Gone}
	}()
	return p, nil
}

func (p *process) events() <-chan guard.Event { return p.happened }

// signal: the console has sent it to the command as well.
func (p *process) signal(os.Signal) {}
func (p *process) until(time.Time)  {}
func (p *process) terminate()       { p.kill() }
func (p *process) kill()            { _ = p.cmd.Process.Kill() }
func (p *process) close()           {}
