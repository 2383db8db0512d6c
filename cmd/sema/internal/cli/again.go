package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// watchFlag adds --watch: the time between two looks; 0: one look.
func watchFlag(cmd *cobra.Command, every *time.Duration) {
	cmd.Flags().Var(durationOf(every, 0), "watch", "look again every 2 seconds, until ^C; --watch=5s: every 5 seconds")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
}

// found is what a look found.
type found struct {
	doc   any    // for --json
	table string // for human eyes
	none  string // if table is "": what to say in its place
}

// show prints what look finds: once, or with --watch until a signal.
func (p *program) show(cmd *cobra.Command, every time.Duration, look func(context.Context, *openEngine) (found, error)) error {
	if cmd.Flags().Changed("watch") && every < 100*time.Millisecond {
		return usage("--watch=2s", "--watch=%v: want 100ms or more", every)
	}
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	if every > 0 {
		return untilSignal(cmd.Context(), func(ctx context.Context) error { return p.watch(ctx, at, every, look) })
	}
	f, err := look(cmd.Context(), at)
	switch {
	case err != nil:
		return err
	case p.json:
		return p.writeJSON(f.doc)
	case f.table == "":
		p.say("%s", f.none)
		return nil
	}
	return p.write("%s", f.table)
}

// watch prints what each look finds until ctx ends. After a look that failed the next one
// follows all the same.
func (p *program) watch(ctx context.Context, at *openEngine, every time.Duration, look func(context.Context, *openEngine) (found, error)) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	out := screen{file: p.terminal(p.stdout)}
	head, last := at.where(), "" // last is the last text that a look found
	for {
		f, err := look(ctx, at)
		absent, isAbsent := errors.AsType[*exit](err)
		now, failure := time.Now().Format(time.TimeOnly), ""
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			head, last = at.where()+" at "+now, cmp.Or(f.table, f.none+"\n")
		case isAbsent:
			head, last = at.where()+" at "+now, p.failure(absent)+"\n"
		default:
			failure = "not read at " + now + ": " + p.failure(err) + "\n"
		}
		switch {
		case p.json && err != nil:
			p.report(err)
			err = nil
		case p.json:
			err = p.writeJSON(f.doc)
		case out.file != nil:
			err = out.show(head + "\n" + failure + last)
		default:
			err = p.write("%s\n%s%s\n", head, failure, last)
		}
		if err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// screen draws a text in place of the one before. Nothing has to be restored, whatever ends
// the program: the last text stays, with the cursor below it.
type screen struct {
	file          *os.File // a terminal
	width, height int
	lines         int // of the last text
}

// show draws as much of text as fits, unless the shell has put us into the background: the
// terminal is somebody else's then.
func (s *screen) show(text string) error {
	if !foreground(s.file) {
		return nil
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	begin := "\r" + strings.Repeat("\x1b[A", s.lines)
	if s.lines > 0 && (s.width != width || s.height != height) {
		begin = "\x1b[H" // the terminal has moved the lines of the last text
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(1, height-1); len(lines) > most { // the last line of the screen is for the cursor
		lines = append(lines[:most-1], fmt.Sprintf("and %d more lines", len(lines)-most+1))
	}
	for i, line := range lines {
		if cells := []rune(line); len(cells) > width {
			lines[i] = string(cells[:width-1]) + "…"
		}
	}
	s.width, s.height, s.lines = width, height, len(lines)
	// Wide characters take two cells: the terminal is told not to wrap lines.
	_, err = fmt.Fprintf(s.file, "%s\x1b[J\x1b[?7l%s\n\x1b[?7h", begin, strings.Join(lines, "\n"))
	return err
}
