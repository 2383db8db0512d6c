//go:build linux && (amd64 || arm64)

package guard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sema/cmd/sema/internal/early"
)

// Process is a command that was started under a guard.
type Process struct {
	// Events tells what happens to the command. Nothing comes after Close.
	Events <-chan Event

	guard                    int // its process id
	orders, queries, reports *os.File
	closed, broken           atomic.Bool   // by Close; the guard has died
	killing, gone            atomic.Bool   // the guard kills the command's processes; none is left
	done                     chan struct{} // closed when read has ended
	sentinel                 int           // its process id, or 0. It is known after done
	ending                   bool          // after Close, both of them end at once
}

// Adopt makes this process the parent of all orphans below it. If a guard is
// killed, it finds the command's processes that way. As the first process of a
// container it also takes notice of their ends, until stop: nothing else may
// wait for children then.
func Adopt() (stop func()) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4
	if os.Getpid() != 1 {
		return func() {}
	}
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		defer close(done)
		for range signals {
			reapAll()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// reapAll takes notice of the children that have ended.
func reapAll() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != unix.EINTR && pid <= 0 {
			return
		}
	}
}

// Start runs a command. Adopt was called before.
func Start(c Command) (*Process, error) {
	p, free, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	defer free()
	events := make(chan Event, 8) // more than there can be
	x := &Process{Events: events, done: make(chan struct{})}
	var pipes [3][2]int
	for i := range pipes {
		if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			for _, made := range pipes[:i] {
				_, _ = unix.Close(made[0]), unix.Close(made[1])
			}
			return nil, os.NewSyscallError("pipe2", err)
		}
	}
	p.orders, p.passOn = uintptr(pipes[0][0]), uintptr(pipes[0][1])
	p.queries, p.reports = uintptr(pipes[1][0]), uintptr(pipes[2][1])

	errno := x.fork(p)
	for _, theirs := range []uintptr{p.orders, p.queries, p.reports} {
		_ = unix.Close(int(theirs))
	}
	x.orders, x.queries, x.reports = file(pipes[0][1], "orders"), file(pipes[1][1], "queries"), file(pipes[2][0], "reports")
	if errno != 0 {
		_, _, _ = x.orders.Close(), x.queries.Close(), x.reports.Close()
		return nil, os.NewSyscallError("fork", errno)
	}
	go x.read(events)
	return x, nil
}

// file makes a file that does not keep a thread while it is read.
func file(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// fork makes the guard, which makes the others, with all signals blocked.
//
// The kernel tells them the death of the thread that made them. Threads of Go
// end before the process only with a goroutine that is locked to its thread,
// and there is none. If one did, the guard would see that sema lives.
func (x *Process) fork(p *plan) syscall.Errno {
	runtime.LockOSThread() // the mask is the thread's
	defer runtime.UnlockOSThread()
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	all := ^uint64(0)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&p.mask)), 8, 0, 0)
	pid, err := forkGuard(p)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&p.mask)), 0, 8, 0, 0)
	x.guard = int(pid)
	return err
}

// read passes on what the guard reports, until it is dead or Close is called.
func (x *Process) read(events chan<- Event) {
	defer close(x.done)
	defer func() { _ = x.reports.Close() }()
	var message [16]byte
	var failure error
	overdue := false
	for {
		if _, err := io.ReadFull(x.reports, message[:]); err != nil {
			switch {
			case x.closed.Load():
			case failure != nil:
				events <- Event{Kind: Failed, Err: failure}
			default:
				x.broken.Store(true)
				events <- Event{Kind: Broken}
			}
			return
		}
		kind, value := binary.NativeEndian.Uint64(message[:8]), binary.NativeEndian.Uint64(message[8:])
		switch {
		case kind == reportFailed:
			failure = syscall.Errno(value) // the process that was to be the command still has to end
		case kind == reportEnded && failure != nil:
			events <- Event{Kind: Failed, Err: failure}
		case kind == reportEnded:
			events <- Event{Kind: Ended, Code: Code(syscall.WaitStatus(value))}
		case kind == reportGone:
			x.gone.Store(true)
			events <- Event{Kind: Gone}
		case kind == reportOverdue && !overdue:
			overdue = true
			x.killing.Store(true)
			events <- Event{Kind: Overdue}
		case kind == reportSentinel:
			x.sentinel = int(value)
		}
	}
}

// order sends an order to the guard. One that is dead needs none.
func (x *Process) order(kind, value uint64) { _ = send(x.orders, kind, value) }

func send(to *os.File, kind, value uint64) error {
	var message [16]byte
	binary.NativeEndian.PutUint64(message[:8], kind)
	binary.NativeEndian.PutUint64(message[8:], value)
	_, err := to.Write(message[:])
	return err
}

// Signal passes a signal on to the command's first process, unless the whole
// process group has got it.
func (x *Process) Signal(s syscall.Signal) {
	if send(x.queries, 0, uint64(s)) != nil {
		x.order(orderSignal, uint64(s)) // nobody can tell
	}
}

// Until has the guard kill the command at a moment, in place of an earlier one.
func (x *Process) Until(deadline time.Time) {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock) != nil {
		return
	}
	// The clock is read first: a pause in between makes the moment earlier. 0
	// would mean never.
	x.order(orderUntil, uint64(max(1, clock.Nano()+int64(time.Until(deadline)))))
}

// Terminate asks all processes of the command to end; those that are stopped
// too.
func (x *Process) Terminate() {
	if !ownProc() {
		x.order(orderSignal, uint64(unix.SIGTERM))
		x.order(orderSignal, uint64(unix.SIGCONT))
		return
	}
	for _, pid := range descendants(x.guard) {
		_ = unix.Kill(pid, unix.SIGTERM)
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// Kill ends all processes of the command. Gone tells when they have ended,
// unless the guard is dead: then Kill returns when they have.
func (x *Process) Kill() {
	if x.broken.Load() {
		x.killAdopted()
		return
	}
	x.killing.Store(true)
	x.order(orderKill, 0)
}

// killAdopted kills what a dead guard has left to us. The sentinel is killed
// as well: it has nobody to pass anything on to.
func (x *Process) killAdopted() {
	if !ownProc() {
		return
	}
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for {
		reapAll()
		left := 0
		for _, pid := range descendants(os.Getpid()) {
			if unix.Kill(pid, unix.SIGKILL) == nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		<-pause.C
	}
}

// Close ends guard and sentinel: the command's life is closed then, and Wait follows. What is left of the command is left
// alone. A guard that still kills goes on.
func (x *Process) Close() {
	x.closed.Store(true)
	if !x.broken.Load() {
		_ = unix.Kill(x.guard, unix.SIGCONT) // it may have been stopped
	}
	x.order(orderDone, 0)
	_, _ = x.orders.Close(), x.queries.Close() // the second ends the sentinel
	if x.ending = !x.killing.Load() || x.gone.Load() || x.broken.Load(); x.ending {
		<-x.done // the guard has told the sentinel's process id
	}
	_ = x.reports.Close() // this ends read, however long the guard takes
}

// Wait waits for the ends of guard and sentinel: the first process of a container may not do so.
func (x *Process) Wait() {
	if x != nil && x.ending {
		await(x.guard)
		await(x.sentinel)
		reapAll() // what the guard has left to us
	}
}

// await takes notice of the end of a child.
func await(pid int) {
	for pid > 0 {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// newPlan prepares all that the forked processes need. They have a copy of it;
// until they are forked nothing of it may be collected, so free comes after.
func newPlan(c Command) (p *plan, free func(), err error) {
	path, err1 := syscall.BytePtrFromString(c.Path)
	argv, err2 := syscall.SlicePtrFromStrings(c.Args)
	shell, err3 := syscall.SlicePtrFromStrings(append([]string{"/bin/sh", c.Path}, c.Args[1:]...)) // as execvp does it
	envp, err4 := syscall.SlicePtrFromStrings(c.Env)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, nil, err
	}
	p = &plan{
		parent: uintptr(os.Getpid()), life: noFile,
		path: uintptr(unsafe.Pointer(path)), argv: uintptr(unsafe.Pointer(&argv[0])),
		shell: uintptr(unsafe.Pointer(&shell[0])), envp: uintptr(unsafe.Pointer(&envp[0])),
		limit: early.Limit, restore: early.Known,
	}
	if c.Life != nil {
		raw, err := c.Life.SyscallConn() // Fd would make it a blocking file
		if err == nil {
			err = raw.Control(func(fd uintptr) { p.life = fd })
		}
		if err != nil {
			return nil, nil, fmt.Errorf("life: %w", err)
		}
	}
	for _, s := range c.Ignore {
		p.ignore |= 1 << (s - 1)
	}
	copy(p.names[0][:], sentinelName)
	copy(p.names[1][:], guardName)
	copy(p.binSh[:], "/bin/sh")
	if ownProc() { // else only the command's first process can be killed
		copy(p.children[:], "/proc/thread-self/children")
	}
	return p, func() { runtime.KeepAlive([]any{path, argv, shell, envp, c.Life}) }, nil
}
