//go:build unix && !(linux && (amd64 || arm64))

package guard

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal, if there is one: a nil terminal does
// nothing. A command in a process group of its own must be the terminal's
// foreground group to read from it, and so that ^C and ^Z reach it.
type terminal struct {
	file   *os.File
	state  *term.State // as found
	own    int         // our process group
	lent   bool
	broken bool // the command may have left it in a state of its own
}

// controlling opens the controlling terminal.
func controlling() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, own: unix.Getpgrp()}
	t.state, _ = term.GetState(int(file.Fd())) // nil: nothing to put back
	return t
}

// wanted says whether a command is to have the terminal from its start. In a
// pipeline the terminal belongs to all of it, maybe to a pager behind us: there
// the command gets it only when it turns out to need it.
func wanted() bool {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return false
	}
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe == 0
}

// lend makes a group the foreground if we are it now, and says whether it is.
func (t *terminal) lend(group int) bool {
	if t == nil {
		return false
	}
	now, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil || now != t.own {
		return err == nil && now == group // in the background ourselves: it is not ours to give
	}
	if err := unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group); err != nil {
		return false
	}
	t.lent = true
	return true
}

// takeBack makes us the foreground again.
func (t *terminal) takeBack() {
	if t == nil || !t.lent {
		return
	}
	t.lent = false
	// Being in the background now, we would be stopped for this. Ignored only
	// for this moment: a command would inherit it.
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own)
	if t.broken && t.state != nil {
		_ = term.Restore(int(t.file.Fd()), t.state)
	}
}

func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		_ = t.file.Close()
	}
}
