//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// foreground says whether this process is of the terminal's foreground group.
// A terminal that is not ours to control has no other.
func foreground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
