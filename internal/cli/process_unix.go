//go:build unix

package cli

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running command: its first process, and the process group that
// was made for it.
type process struct {
	group int
	done  chan int // the exit code, when the first process has ended
	held  func() bool
	tty   *terminal
}

// startProcess starts a command in a process group of its own, of which watch
// is told before anything else. held says
// whether a command that was suspended may run on.
func startProcess(cmd *exec.Cmd, watch func(group int), held func() bool) (*process, error) {
	cmd.SysProcAttr = attributes()
	p := &process{done: make(chan int, 1), held: held}
	started := make(chan error, 1)
	go func() {
		// "Kill me when my parent dies" is about the thread that started the
		// process, so this one stays until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.group = cmd.Process.Pid
		watch(p.group)
		p.tty = controlling()
		if wanted(cmd) && p.tty.lend(p.group) {
			p.signal(unix.SIGCONT) // it may have been quicker, and been stopped for it
		}
		started <- nil
		code := p.wait()
		_ = cmd.Wait() // the process has been waited for: this ends the copying of its streams
		p.done <- code
	}()
	return p, <-started
}

// wait sees the first process to its end, through stops and continuations.
func (p *process) wait() (code int) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.group, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return exitSignal + int(unix.SIGKILL) // cannot happen: it is our child
		case status.Exited():
			return status.ExitStatus()
		case status.Signaled():
			if p.tty != nil {
				p.tty.broken = true
			}
			return exitSignal + int(status.Signal())
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
}

// kill ends the group at once.
func (p *process) kill() { p.signal(unix.SIGKILL) }

// gone says whether nobody is left in the group, after its first process ended.
func (p *process) gone() bool {
	// As the first process of a container we inherit the orphans, and they
	// count until they have been waited for.
	for pid := 1; pid > 0; {
		pid, _ = unix.Wait4(-p.group, nil, unix.WNOHANG, nil)
	}
	return unix.Kill(-p.group, 0) == unix.ESRCH
}

// close takes the terminal back.
func (p *process) close() { p.tty.close() }
