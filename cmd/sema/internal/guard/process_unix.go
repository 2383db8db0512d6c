//go:build unix && !(linux && (amd64 || arm64))

package guard

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running command: its first process, and the process group that was made
// for it. Nobody kills it when sema is killed: that needs Linux.
type Process struct {
	Events chan Event

	group   int
	held    func() bool
	tty     *terminal
	looking sync.Once
}

// Adopt does nothing: there are no orphans to adopt.
func Adopt() (stop func()) { return func() {} }

// Start runs a command in a process group of its own.
func Start(c Command) (*Process, error) {
	start := func(path string, args []string) (*exec.Cmd, error) {
		cmd := &exec.Cmd{
			Path: path, Args: args, Env: c.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		return cmd, cmd.Start()
	}
	cmd, err := start(c.Path, c.Args)
	if errors.Is(err, syscall.ENOEXEC) { // as execvp does it
		cmd, err = start("/bin/sh", append([]string{"/bin/sh", c.Path}, c.Args[1:]...))
	}
	if err != nil {
		return nil, err
	}
	p := &Process{Events: make(chan Event, 4), group: cmd.Process.Pid, held: c.Held, tty: controlling()}
	if wanted() && p.tty.lend(p.group) {
		p.Signal(unix.SIGCONT) // it may have been quicker, and been stopped for it
	}
	go func() { p.Events <- Event{Kind: Ended, Code: p.wait()} }()
	return p, nil
}

// Until does nothing: there is no guard.
func (p *Process) Until(time.Time) {}

// wait sees the first process to its end, through stops and continuations.
func (p *Process) wait() (code int) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.group, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return -int(unix.SIGKILL) // cannot happen: it is our child
		case status.Stopped():
			p.stopped(status.StopSignal())
		case status.Signaled() && p.tty != nil:
			p.tty.broken = true
			if s := status.Signal(); p.tty.lent && (s == unix.SIGINT || s == unix.SIGQUIT) {
				_ = unix.Kill(0, s) // the key was for all of our job, a script around us too
			}
			fallthrough
		default:
			return Code(syscall.WaitStatus(status))
		}
	}
}

// stopped decides what becomes of a command that was stopped: it gets the
// terminal that it missed, or sema is suspended with it, or it is left alone.
func (p *Process) stopped(by unix.Signal) {
	switch by {
	case unix.SIGTTIN, unix.SIGTTOU:
		if p.tty.lend(p.group) {
			p.Signal(unix.SIGCONT)
		}
	case unix.SIGTSTP:
		p.tty.takeBack()
		suspend()
		if !p.held() {
			p.Kill() // what has lost its permit does not run on
			return
		}
		p.tty.lend(p.group)
		p.Signal(unix.SIGCONT)
	}
}

// suspend stops this process and the others of its job, as ^Z would have done
// had they been the terminal's foreground, and returns when it runs again. It
// needs the signal's default action, which os/signal cannot bring back once the
// signal was caught: so sema never catches it.
func suspend() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	_ = unix.Kill(0, unix.SIGTSTP)
	select {
	case <-resumed:
	case <-time.After(200 * time.Millisecond): // nobody could resume us, so the kernel did not stop us
	}
}

// Signal sends a signal to the whole group.
func (p *Process) Signal(s syscall.Signal) {
	_ = unix.Kill(-p.group, s) // a group that is gone needs none
}

// Terminate asks the group to end; those that are stopped too.
func (p *Process) Terminate() {
	p.Signal(unix.SIGTERM)
	p.Signal(unix.SIGCONT)
	p.look()
}

// Kill ends the group at once.
func (p *Process) Kill() {
	p.Signal(unix.SIGKILL)
	p.look()
}

// look tells when nobody is left in the group.
func (p *Process) look() {
	p.looking.Do(func() {
		go func() { // ends with the group, or with sema
			for unix.Kill(-p.group, 0) != unix.ESRCH {
				time.Sleep(5 * time.Millisecond)
			}
			p.Events <- Event{Kind: Gone}
		}()
	})
}

// Close takes the terminal back.
func (p *Process) Close() { p.tty.close() }

// Wait does nothing: there is no guard.
func (p *Process) Wait() {}
