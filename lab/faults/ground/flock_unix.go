//go:build unix

package ground

import (
	"os"

	"golang.org/x/sys/unix"
)

// filesCanBeHarmed reports whether the file engine's locks and pipes can be
// reached from here.
const filesCanBeHarmed = true

// tryLock takes the lock of a file, if nobody has it.
func tryLock(f *os.File) error {
	return os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// leavePipe makes a named pipe that nobody has open.
func leavePipe(path string) error { return os.NewSyscallError("mkfifo", unix.Mkfifo(path, 0o600)) }
