//go:build unix && !(linux && (amd64 || arm64))

package cli

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sema/cmd/sema/internal/guard"
)

// process is a running command: its first process, and the process group that
// was made for it. Nobody kills it when sema is killed: that needs Linux.
type process struct {
	group    int
	happened chan guard.Event
	held     func() bool
	tty      *terminal
	looking  sync.Once
}

func adopt() (stop func()) { return func() {} }

// startProcess starts a command in a process group of its own.
func startProcess(c command) (*process, error) {
	cmd := exec.Command(c.path, c.args[1:]...)
	cmd.Args[0], cmd.Env = c.args[0], c.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	if errors.Is(err, syscall.ENOEXEC) { // as execvp does it
		cmd = exec.Command("/bin/sh", append([]string{c.path}, c.args[1:]...)...)
		cmd.Env = c.env
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	p := &process{group: cmd.Process.Pid, happened: make(chan guard.Event, 4), held: c.held}
	p.tty = controlling()
	if wanted() && p.tty.lend(p.group) {
		p.signal(unix.SIGCONT) // it may have been quicker, and been stopped for it
	}
	go func() { p.happened <- guard.Event{Kind: guard.Ended, Code: p.wait()} }()
	return p, nil
}

func (p *process) events() <-chan guard.Event { return p.happened }

// until: there is no guard.
func (p *process) until(time.Time) {}

// wait sees the first process to its end, through stops and continuations.
func (p *process) wait() (code int) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.group, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return -int(unix.SIGKILL) // cannot happen: it is our child
		case status.Exited():
			return status.ExitStatus()
		case status.Signaled():
			if p.tty != nil {
				p.tty.broken = true
				if s := status.Signal(); p.tty.lent && (s == unix.SIGINT || s == unix.SIGQUIT) {
					_ = unix.Kill(0, s) // the key was for all of our job, a script around us too
				}
			}
			return -int(status.Signal())
		case status.Stopped():
			p.stopped(status.StopSignal())
		}
	}
}

// stopped decides what becomes of a command that was stopped: it gets the
// terminal that it missed, or sema is suspended with it, or it is left alone.
func (p *process) stopped(by unix.Signal) {
	switch by {
	case unix.SIGTTIN, unix.SIGTTOU:
		if p.tty.lend(p.group) {
			p.signal(unix.SIGCONT)
		}
	case unix.SIGTSTP:
		p.tty.takeBack()
		suspend()
		if !p.held() {
			p.kill() // what has lost its permit does not run on
			return
		}
		p.tty.lend(p.group)
		p.signal(unix.SIGCONT)
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

// signal sends a signal to the whole group.
func (p *process) signal(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		_ = unix.Kill(-p.group, n) // a group that is gone needs none
	}
}

// terminate asks the group to end; those that are stopped too.
func (p *process) terminate() {
	p.signal(unix.SIGTERM)
	p.signal(unix.SIGCONT)
	p.look()
}

// kill ends the group at once.
func (p *process) kill() {
	p.signal(unix.SIGKILL)
	p.look()
}

// look tells when nobody is left in the group.
func (p *process) look() {
	p.looking.Do(func() {
		go func() { // ends with the group, or with sema
			for !p.gone() {
				time.Sleep(5 * time.Millisecond)
			}
			p.happened <- guard.Event{Kind: guard.Gone}
		}()
	})
}

// gone says whether nobody is left in the group.
func (p *process) gone() bool { return unix.Kill(-p.group, 0) == unix.ESRCH }

// close takes the terminal back.
func (p *process) close() { p.tty.close() }
