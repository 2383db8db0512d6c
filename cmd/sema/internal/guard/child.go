//go:build linux && (amd64 || arm64)

package guard

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What runs in the forked processes is in this file, under these rules, since
// only the forking thread exists there and the Go runtime does not work:
//
//   - only raw system calls; nothing allocates, panics, or writes a pointer;
//   - every function is nosplit, so that no stack has to grow;
//   - all memory was allocated before the fork: it is the plan;
//   - all signals are blocked, so no handler of Go's runs.
//
// The linker refuses a build without optimisation, whose frames are too large
// for that. One for a debugger leaves this package out:
//
//	go build -gcflags='all=-N -l' -gcflags=sema/cmd/sema/internal/guard= ./cmd/sema

// plan is all that the forked processes need, and their scratch memory. It has
// no Go pointers: the runtime's write barrier does not work after a fork.
type plan struct {
	parent   uintptr // process id of sema
	path     uintptr // of the command: a C string, as are the lists below
	argv     uintptr
	shell    uintptr // argv for /bin/sh, if the command is a script without #!
	envp     uintptr
	orders   uintptr // what the guard reads
	reports  uintptr // what the guard writes
	queries  uintptr // what the sentinel reads
	passOn   uintptr // what the sentinel writes: orders to the guard
	life     uintptr // kept open; noFile: there is none
	limit    [2]uint64
	restore  bool   // put the limit of open files back
	mask     uint64 // signals the command has blocked
	ignore   uint64 // signals the command ignores in addition
	names    [2][16]byte
	binSh    [8]byte
	children [32]byte

	command uintptr // process id; 0: has ended
	self    uintptr
	left    bool // the guard has left sema's process group
	gone    bool // has been reported
	signals uintptr
	timer   uintptr
	keep    [5]uintptr
	poll    [3]pollFd
	record  record
	action  [4]uintptr // struct sigaction: the handler is its first word
	set     uint64
	seen    [64]int64 // the sentinel's: when the group was last sent a signal
	early   uint64    // signals that the command was sent before there was a sentinel
	moment  [4]int64  // struct itimerspec, struct timespec
	status  uint32
	buffer  [4096]byte
}

const noFile = ^uintptr(0)

type pollFd struct {
	fd      int32
	events  int16
	revents int16
}

// record is one message, in either direction. Pipes keep it whole.
type record struct {
	kind  uint64
	value uint64
}

// Orders to the guard.
const (
	orderUntil  = iota + 1 // kill all at that moment: nanoseconds of CLOCK_BOOTTIME
	orderSignal            // pass a signal on to the command
	orderKill              // kill all
	orderEarly             // from the command, before it runs: the signals it has been sent
	orderLate              // from the sentinel, first: the signals it has been sent
	orderDone              // end, and leave alone what is left
)

// Reports of the guard.
const (
	reportFailed   = iota + 1 // the command was not started: an error number
	reportEnded               // the command's first process has ended: its wait status
	reportGone                // no process of the command is left
	reportOverdue             // the moment has passed: all are being killed
	reportSentinel            // the sentinel's process id
)

// The processes' names. "pkill sema" does not match them.
const (
	sentinelName = "permit-sentinel"
	guardName    = "permit-guard"
)

//go:norace
//go:nosplit
//go:nocheckptr
func sys(trap, a, b, c, d uintptr) (uintptr, syscall.Errno) {
	r, _, err := syscall.RawSyscall6(trap, a, b, c, d, 0, 0)
	return r, err
}

// forkGuard returns in the parent only. All signals are blocked.
//
//go:norace
//go:nosplit
//go:nocheckptr
func forkGuard(p *plan) (uintptr, syscall.Errno) {
	pid, err := sys(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	if err == 0 && pid == 0 {
		guard(p)
	}
	return pid, err
}

// sentinel has each signal it is asked about passed on to the command, unless
// it has got it too. It dies with sema.
//
//go:norace
//go:nosplit
//go:nocheckptr
func sentinel(p *plan) {
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&p.names[0])), 0, 0)
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
	if parent, _ := sys(unix.SYS_GETPPID, 0, 0, 0, 0); parent != p.parent {
		quit(0)
	}
	p.keep = [5]uintptr{p.queries, p.passOn, noFile, noFile, noFile}
	closeOthers(p)
	awaitGuard(p) // the command has told what it was sent: what we were not, came before us
	_, _ = sys(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&p.set)), 8, 0, 0)
	p.record = record{orderLate, p.set}
	_, _ = sys(unix.SYS_WRITE, p.passOn, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
	for {
		n, err := sys(unix.SYS_READ, p.queries, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 || n != unsafe.Sizeof(p.record) {
			quit(0)
		}
		p.set = 1 << (p.record.value - 1)
		p.moment = [4]int64{}
		got, err := sys(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&p.set)), 0, uintptr(unsafe.Pointer(&p.moment)), 8)
		_, _ = sys(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&p.moment)), 0, 0)
		now := p.moment[0]*1_000_000_000 + p.moment[1]
		if err == 0 && uint64(got) == p.record.value {
			p.seen[got&63] = now
			continue
		}
		if now-p.seen[p.record.value&63] > merging {
			p.record.kind = orderSignal
			_, _ = sys(unix.SYS_WRITE, p.passOn, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
		}
	}
}

// awaitGuard returns when the guard has left the process group, or is dead.
//
//go:norace
//go:nosplit
//go:nocheckptr
func awaitGuard(p *plan) {
	own, _ := sys(unix.SYS_GETPGID, 0, 0, 0, 0)
	for {
		if group, err := sys(unix.SYS_GETPGID, p.self, 0, 0, 0); err != 0 || group != own {
			return
		}
		_, _ = sys(unix.SYS_SCHED_YIELD, 0, 0, 0, 0)
	}
}

// guard starts the command and watches over it.
//
//go:norace
//go:nosplit
//go:nocheckptr
func guard(p *plan) {
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&p.names[1])), 0, 0)
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0)
	// A guard that was stopped goes on when sema dies.
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGCONT), 0, 0)
	if orphaned(p) {
		quit(0) // before anything was started
	}
	p.self, _ = sys(unix.SYS_GETPID, 0, 0, 0, 0)
	pid, err := sys(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0)
	if err == 0 && pid == 0 {
		command(p)
	}
	if err != 0 {
		report(p, reportFailed, uint64(err))
		quit(0)
	}
	p.command = pid
	// The sentinel is a child of sema's, like the guard. It is started after the
	// command, which prepares itself meanwhile.
	pid, err = sys(unix.SYS_CLONE, unix.CLONE_PARENT|uintptr(unix.SIGCHLD), 0, 0, 0)
	if err == 0 && pid == 0 {
		sentinel(p)
	} else if err == 0 {
		report(p, reportSentinel, uint64(pid))
	}
	p.set = 1<<(unix.SIGCHLD-1) | 1<<(unix.SIGCONT-1)
	p.signals, _ = sys(unix.SYS_SIGNALFD4, noFile, uintptr(unsafe.Pointer(&p.set)), 8, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	p.timer, _ = sys(unix.SYS_TIMERFD_CREATE, unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK, 0, 0)
	p.keep = [5]uintptr{p.orders, p.reports, p.life, p.signals, p.timer}
	closeOthers(p)
	p.poll[0] = pollFd{fd: int32(p.orders), events: unix.POLLIN}
	p.poll[1] = pollFd{fd: int32(p.signals), events: unix.POLLIN}
	p.poll[2] = pollFd{fd: int32(p.timer), events: unix.POLLIN}
	for {
		_, _ = sys(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.poll)), uintptr(len(p.poll)), 0, 0)
		if p.poll[2].revents != 0 {
			_, _ = sys(unix.SYS_READ, p.timer, uintptr(unsafe.Pointer(&p.buffer)), 8, 0)
			report(p, reportOverdue, 0)
			killAll(p)
		}
		if p.poll[1].revents != 0 {
			_, _ = sys(unix.SYS_READ, p.signals, uintptr(unsafe.Pointer(&p.buffer)), unsafe.Sizeof(p.buffer), 0)
			reap(p)
		}
		if p.poll[0].revents != 0 {
			obey(p)
		}
		if orphaned(p) {
			killAll(p)
			quit(0)
		}
	}
}

// leave leaves sema's process group, and lets the command and the sentinel go on. It leaves
// the session, too. Otherwise, when the guard ends as a parent in another group of the same
// session, the kernel could take sema's group for orphaned. It would then send SIGHUP
// to the group if one of its processes is stopped.
//
//go:norace
//go:nosplit
//go:nocheckptr
func leave(p *plan) {
	if !p.left {
		p.left = true
		_, _ = sys(unix.SYS_SETSID, 0, 0, 0, 0)
	}
}

// obey carries out the next order.
//
//go:norace
//go:nosplit
//go:nocheckptr
func obey(p *plan) {
	n, err := sys(unix.SYS_READ, p.orders, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
	if err != 0 {
		return
	}
	if n != unsafe.Sizeof(p.record) { // closed by sema, and by the sentinel that dies with it
		killAll(p)
		quit(0)
	}
	switch p.record.kind {
	case orderUntil:
		at := int64(p.record.value)
		p.moment = [4]int64{0, 0, at / 1e9, at % 1e9}
		_, _ = sys(unix.SYS_TIMERFD_SETTIME, p.timer, unix.TFD_TIMER_ABSTIME, uintptr(unsafe.Pointer(&p.moment)), 0)
	case orderSignal:
		bit := uint64(1) << (p.record.value - 1)
		if p.early&bit != 0 {
			p.early &^= bit
		} else if p.command != 0 {
			_, _ = sys(unix.SYS_KILL, p.command, uintptr(p.record.value), 0, 0)
		}
	case orderEarly:
		p.early = p.record.value
		leave(p)
	case orderLate:
		p.early &^= p.record.value
	case orderKill:
		killAll(p)
	case orderDone: // an end takes half a millisecond, for which sema does not wait at once
		_, _ = sys(unix.SYS_CLOSE, p.life, 0, 0, 0)
		_, _ = sys(unix.SYS_CLOSE, p.reports, 0, 0, 0)
		quit(0)
	}
}

// command becomes the command.
//
//go:norace
//go:nosplit
//go:nocheckptr
func command(p *plan) {
	_, _ = sys(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0)
	if parent, _ := sys(unix.SYS_GETPPID, 0, 0, 0, 0); parent != p.self {
		quit(0)
	}
	if p.life != noFile {
		// A copy that the command inherits, out of the way of a shell's numbers.
		if _, err := sys(unix.SYS_FCNTL, p.life, unix.F_DUPFD, 100, 0); err != 0 {
			_, _ = sys(unix.SYS_FCNTL, p.life, unix.F_DUPFD, 10, 0)
		}
	}
	if p.restore {
		_, _ = sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&p.limit)), 0)
	}
	// Go's handlers must not run here once signals are let through.
	for s := uintptr(1); s <= 64; s++ {
		_, _ = sys(unix.SYS_RT_SIGACTION, s, 0, uintptr(unsafe.Pointer(&p.action)), 8)
		if p.ignore>>(s-1)&1 == 1 {
			p.action[0] = sigIgnore
		}
		if p.action[0] != sigIgnore {
			p.action[0] = sigDefault
		}
		p.action[1], p.action[2], p.action[3] = 0, 0, 0
		_, _ = sys(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&p.action)), 0, 8)
	}
	// The command gets what the group was sent since it was forked. Neither sema nor the
	// sentinel, which comes later, can know that.
	_, _ = sys(unix.SYS_RT_SIGPENDING, uintptr(unsafe.Pointer(&p.set)), 8, 0, 0)
	p.record = record{orderEarly, p.set}
	_, _ = sys(unix.SYS_WRITE, p.passOn, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
	// A kill -9 of the group must not find the guard in it, once there is a command
	// that could leave the group.
	awaitGuard(p)
	_, _ = sys(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&p.mask)), 0, 8)
	_, err := sys(unix.SYS_EXECVE, p.path, p.argv, p.envp, 0)
	if err == unix.ENOEXEC {
		_, err = sys(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&p.binSh)), p.shell, p.envp, 0)
	}
	report(p, reportFailed, uint64(err))
	quit(127)
}

const (
	sigDefault = 0
	sigIgnore  = 1
	sigSetMask = 2
)

// merging is how close two of the same signal may be to count as one: the
// kernel makes one of two that are waiting to be taken.
const merging = 50_000_000

//go:norace
//go:nosplit
//go:nocheckptr
func quit(code uintptr) {
	for {
		_, _ = sys(unix.SYS_EXIT_GROUP, code, 0, 0, 0)
	}
}

//go:norace
//go:nosplit
//go:nocheckptr
func orphaned(p *plan) bool {
	parent, _ := sys(unix.SYS_GETPPID, 0, 0, 0, 0)
	return parent != p.parent
}

//go:norace
//go:nosplit
//go:nocheckptr
func report(p *plan, kind, value uint64) {
	p.record = record{kind, value}
	_, _ = sys(unix.SYS_WRITE, p.reports, uintptr(unsafe.Pointer(&p.record)), unsafe.Sizeof(p.record), 0)
}

// reap takes notice of processes that have ended, and says whether none is
// left.
//
//go:norace
//go:nosplit
//go:nocheckptr
func reap(p *plan) bool {
	for {
		pid, err := sys(unix.SYS_WAIT4, noFile, uintptr(unsafe.Pointer(&p.status)), unix.WNOHANG, 0)
		switch {
		case err == unix.EINTR:
		case err != 0: // ECHILD
			if !p.gone {
				p.gone = true
				report(p, reportGone, 0)
			}
			return true
		case pid == 0:
			return false
		case pid == p.command:
			p.command = 0
			leave(p) // should the command have ended before it told anything
			report(p, reportEnded, uint64(p.status))
		}
	}
}

// killAll kills every process below the guard and returns when all have ended.
// Only its own children are killed each time: the children of a dead one become
// the guard's, and are next. A process of another user cannot be killed and is
// waited for.
//
//go:norace
//go:nosplit
//go:nocheckptr
func killAll(p *plan) {
	p.set = 1 << (unix.SIGCHLD - 1)
	for !reap(p) {
		killChildren(p)
		// The end of a grandchild, whose children become ours, is not told.
		p.moment = [4]int64{0, 20_000_000}
		_, _ = sys(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&p.set)), 0, uintptr(unsafe.Pointer(&p.moment)), 8)
	}
}

//go:norace
//go:nosplit
//go:nocheckptr
func killChildren(p *plan) {
	if p.command != 0 {
		_, _ = sys(unix.SYS_KILL, p.command, uintptr(unix.SIGKILL), 0, 0) // with or without /proc
	}
	file, err := sys(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&p.children)), unix.O_RDONLY, 0)
	if err != 0 {
		return
	}
	pid := uintptr(0)
	for {
		n, err := sys(unix.SYS_READ, file, uintptr(unsafe.Pointer(&p.buffer)), unsafe.Sizeof(p.buffer), 0)
		if err != 0 || n == 0 || n > unsafe.Sizeof(p.buffer) {
			break
		}
		for i := uintptr(0); i < n; i++ {
			if c := p.buffer[i]; c >= '0' && c <= '9' {
				pid = pid*10 + uintptr(c-'0')
				continue
			}
			if pid > 1 {
				_, _ = sys(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0, 0)
			}
			pid = 0
		}
	}
	_, _ = sys(unix.SYS_CLOSE, file, 0, 0, 0)
}

// closeOthers closes all files but those to keep.
//
//go:norace
//go:nosplit
//go:nocheckptr
func closeOthers(p *plan) {
	from := uintptr(0)
	for {
		next := noFile
		for i := 0; i < len(p.keep); i++ {
			if k := p.keep[i]; k >= from && k < next {
				next = k
			}
		}
		last := next - 1
		if next == noFile {
			last = 1<<32 - 1
		}
		if next != from {
			if _, err := sys(unix.SYS_CLOSE_RANGE, from, last, 0, 0); err != 0 {
				// Before Linux 5.9. Go and its callers count up from 0.
				for fd := from; fd <= last && fd < 1<<16; fd++ {
					_, _ = sys(unix.SYS_CLOSE, fd, 0, 0, 0)
				}
			}
		}
		if next == noFile {
			return
		}
		from = next + 1
	}
}
