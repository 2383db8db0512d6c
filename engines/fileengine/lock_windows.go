package fileengine

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockedByte is beyond the end of every log: on Windows no other process can read a locked
// range.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

// lockFile locks an open file, against all other processes that open it. Without wait, ok
// is false if another process has the lock.
func lockFile(f *os.File, wait bool) (ok bool, err error) {
	flags := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func unlockFile(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockedByte())
}
