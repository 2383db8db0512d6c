//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// heeded are the signals that leave the queue while sema waits, and reach the
// command while it runs. One that sema was told to ignore, as nohup does with
// HUP, stays ignored: by the command too, which inherits that.
func heeded() []os.Signal {
	var list []os.Signal
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// ends says whether a signal ends a wait: all but a change of the window.
func ends(s os.Signal) bool { return s != syscall.SIGWINCH }
