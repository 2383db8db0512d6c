package cli

import (
	"os"
	"os/exec"
)

// process is a running command. Windows has no process groups to signal: all
// that can be done is to end its first process.
type process struct {
	cmd  *exec.Cmd
	done chan int
}

func startProcess(cmd *exec.Cmd, _ func(int), _ func() bool) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan int, 1)}
	go func() {
		_ = cmd.Wait() // the exit code says it
		p.done <- cmd.ProcessState.ExitCode()
	}()
	return p, nil
}

// signal: the console has sent it to the command as well.
func (p *process) signal(os.Signal) {}
func (p *process) terminate()       { p.kill() }
func (p *process) kill()            { _ = p.cmd.Process.Kill() }
func (p *process) gone() bool       { return true }
func (p *process) close()           {}
