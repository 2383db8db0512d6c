package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// statusLine is one line on a terminal that is drawn anew.
type statusLine struct {
	p     *program
	file  *os.File // nil: no terminal, no line
	shown bool
}

// newStatusLine is a line on standard error, if that is a terminal.
func (p *program) newStatusLine() *statusLine {
	return &statusLine{p: p, file: p.terminal(p.stderr)}
}

// terminal returns w if that is a terminal that can be drawn on, else nil.
func (p *program) terminal(w io.Writer) *os.File {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) && p.getenv("TERM") != "dumb" {
		return file
	}
	return nil
}

// show draws the line, as much of it as fits, unless the shell has put us into
// the background: the terminal is somebody else's then.
func (l *statusLine) show(text string) {
	if l.file == nil || !foreground(l.file) {
		return
	}
	width, _, err := term.GetSize(int(l.file.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	_, _ = fmt.Fprintf(l.file, "\r%s\x1b[K", printable(text, width-2))
	l.shown = true
}

// clear takes the line away.
func (l *statusLine) clear() {
	if !l.shown {
		return
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	_, _ = fmt.Fprint(l.file, "\r\x1b[K")
	l.shown = false
}
