//go:build unix

package server

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open; 0: unknown.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // the type depends on the system
}
