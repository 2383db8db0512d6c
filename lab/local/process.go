package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
)

// Process is the example once more, as a child.
type Process struct {
	cmd    *exec.Cmd
	prints *bufio.Reader
}

// Again starts the example once more, with these variables in its environment beside
// those of this process. It is killed when ctx ends.
func Again(ctx context.Context, env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Process{cmd, bufio.NewReader(pipe)}, cmd.Start()
}

// Line passes on the next line that the process prints.
func (p *Process) Line(out io.Writer) error {
	line, err := p.prints.ReadString('\n')
	if err != nil {
		return errors.Join(err, p.cmd.Wait())
	}
	_, err = io.WriteString(out, line)
	return err
}

// Rest passes on what the process prints until it ends.
func (p *Process) Rest(out io.Writer) error {
	_, err := io.Copy(out, p.prints)
	return errors.Join(err, p.cmd.Wait())
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits until the process has ended.
func (p *Process) Wait() { _ = p.cmd.Wait() }
