//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// caught are the signals that leave the queue while sema waits, and reach the
// command while it runs. One that sema was told to ignore, as nohup does with
// HUP, stays ignored: by the command too, which inherits that.
func caught() []os.Signal {
	list := []os.Signal{}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !ignored(s) {
			list = append(list, s)
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
