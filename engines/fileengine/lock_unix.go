//go:build unix

package fileengine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks an open file, against all other processes that open it. Without wait, ok
// is false if another process has the lock.
func lockFile(f *os.File, wait bool) (ok bool, err error) {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
