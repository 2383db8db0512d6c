//go:build unix

package cli

import (
	"cmp"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// caught are the signals that leave the queue while sema waits, and reach the
// command while it runs. One that sema was told to ignore, as nohup does with
// HUP, stays ignored: by the command too, which inherits that.
func caught() []os.Signal {
	list := []os.Signal{}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !ignored(s) {
			list = append(list, s)
		} else if s == syscall.SIGQUIT {
			signal.Ignore(s) // Go does not: it would end the program with a trace of all goroutines
		}
	}
	return list
}

// ignored says whether a signal was ignored when sema was started. Go knows
// that of INT and HUP only; shells without job control ignore INT and QUIT
// together, for their background jobs.
func ignored(s syscall.Signal) bool {
	if s == syscall.SIGQUIT {
		s = syscall.SIGINT
	}
	return signal.Ignored(s)
}

// alsoIgnored are signals which the command has to be told to ignore.
func alsoIgnored() []syscall.Signal {
	if ignored(syscall.SIGQUIT) {
		return []syscall.Signal{syscall.SIGQUIT}
	}
	return nil
}

// foreground says whether this process is of the terminal's foreground group.
// A terminal that is not ours to control has no other.
func foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// ownOnly refuses a file with secrets that everybody on this host can read, or
// others can write.
func ownOnly(what, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return usage("another file", "%s: %v", what, err)
	}
	if info.IsDir() {
		return usage("a file", "%s %s: is a directory", what, printable(path, 200))
	}
	if info.Mode().Perm()&0o026 != 0 {
		return usage("chmod 600 "+quote(path), "%s %s: others can read or write it", what, printable(path, 200))
	}
	return nil
}

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
