package cli

import (
	"syscall"
	"time"
)

// openFiles is how many files this process may have open; 0: unknown.
func openFiles() int { return 0 }

// userTimeout fits net.ListenConfig.Control. It does nothing: TCP's default applies.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
