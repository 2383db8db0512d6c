package cli

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// die ends the program by a signal, so that a shell sees what ended the
// command. It returns where that is impossible: as the first process of a
// container.
func die(s syscall.Signal) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // no core: it would be ours
	// Not through os/signal: Go's own default for QUIT and others is a trace of
	// all goroutines.
	var action [8]uintptr // struct sigaction, all zero: the default
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	var set unix.Sigset_t
	set.Val[(s-1)/64] = 1 << ((s - 1) % 64)
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), s)
}
