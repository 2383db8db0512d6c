//go:build unix

package cli

import (
	"cmp"
	"math"
	"runtime"
	"syscall"
	"time"
)

// openFiles is how many files this process may have open; 0: unknown.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // the type depends on the system
}

// tcpUserTimeout is Linux's TCP_USER_TIMEOUT, which package syscall does not name. The connections of a listener
// inherit it.
const tcpUserTimeout = 18

// userTimeout fits net.ListenConfig.Control.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil // TCP's default applies
	}
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
		return cmp.Or(failed, err)
	}
}
