//go:build unix && !linux

package cli

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// die ends the program by a signal, so that a shell sees what ended the
// command. It returns for those whose default in Go is a trace of all
// goroutines.
func die(s syscall.Signal) {
	switch s {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL:
		signal.Reset(s)
		_ = unix.Kill(unix.Getpid(), s)
		select {} // it is on its way
	}
}
