package cli

import (
	"os"
	"syscall"
)

// caught are the signals that leave the queue while sema waits. While the
// command runs, the console sends them to it as well.
func caught() []os.Signal { return []os.Signal{os.Interrupt} }

// alsoIgnored: nothing.
func alsoIgnored() []syscall.Signal { return nil }
