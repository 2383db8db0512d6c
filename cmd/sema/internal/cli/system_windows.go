package cli

import (
	"os"
	"syscall"
	"time"
)

// caught are the signals that leave the queue while sema waits. While the
// command runs, the console sends them to it as well.
func caught() []os.Signal { return []os.Signal{os.Interrupt} }

// alsoIgnored: nothing.
func alsoIgnored() []syscall.Signal { return nil }

// foreground: there are no jobs in the background.
func foreground(*os.File) bool { return true }

// ownOnly refuses nothing: the mode says nothing here of who can read a file.
func ownOnly(string, string) error { return nil }

// openFiles is how many files this process may have open; 0: unknown.
func openFiles() int { return 0 }

// userTimeout fits net.ListenConfig.Control. It does nothing: TCP's default applies.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }

// die does nothing: there are no signals.
func die(syscall.Signal) {}
