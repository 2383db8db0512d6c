package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sema/cmd/sema/internal/top"
	"sema/engine"
	seen "sema/watch"
)

const topHelp = `Watch all semaphores on the terminal, or one with its holders and waiters.

  enter    show one semaphore: who holds it, who waits and why
  /        filter by name; esc ends the filter
  s        sort by waiting callers, name, use or longest wait
  l, u     set the limit; unset it
  p        pause, or unpause: while paused, no permits are granted
  r        revoke the permit under the cursor (in the view of one semaphore)
  t        list the keys, or holders and waiters (in the view of one semaphore)
  arrows, page up and down, home, end, or k j g G
  esc, q   back; quit

Keys that change something ask first. NO_COLOR is respected. --once prints the
list and ends.`

// topProgram is set by tests.
var topProgram []tea.ProgramOption

type topFlags struct {
	once   bool
	sort   string
	filter string
	rows   int
	every  time.Duration
}

func (p *program) topCommand() *cobra.Command {
	f := &topFlags{}
	cmd := p.newCommand("top [flags]", "Watch semaphores on the terminal", topHelp,
		func(cmd *cobra.Command, _ []string) error { return p.top(cmd.Context(), f) })
	cmd.Flags().BoolVar(&f.once, "once", false, "print the list and end")
	choiceFlag(cmd, &f.sort, "sort", "waiting", "what to sort by", top.Orders...)
	cmd.Flags().StringVar(&f.filter, "filter", "", "only names that contain this, in upper or lower case")
	cmd.Flags().IntVar(&f.rows, "rows", 0, "with --once: print at most so many (0: all)")
	cmd.Flags().Var(durationOf(&f.every, time.Second), "every", "time between looks: seconds, or 500ms")
	p.jsonFlag(cmd, `top --once prints an object; times are seconds, with fractions:
  total (of those that match; --rows may show fewer)
  semaphores: as "sema ls --json" has them`)
	return cmd
}

func (p *program) top(ctx context.Context, f *topFlags) error {
	in, isIn := p.stdin.(*os.File)
	out, isOut := p.stdout.(*os.File)
	switch {
	case f.rows < 0:
		return usage("--rows 10", "--rows %d is negative", f.rows)
	case f.every < 100*time.Millisecond:
		return usage("--every 1", "--every %v: want 100ms or more", f.every)
	case !f.once && p.json:
		return usage(p.command("top", "--once --json"), "--json needs --once")
	case !f.once && !(isIn && isOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))):
		return usage(p.command("top", "--once"), "standard input and output have to be a terminal")
	case !f.once && p.getenv("TERM") == "dumb":
		return usage(p.command("top", "--once"), "this terminal cannot be drawn on: TERM is dumb")
	}
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	o := top.Options{Where: at.where(), Order: f.sort, Filter: f.filter, Every: f.every, In: in, Out: out, Env: p.env, Program: topProgram}
	if f.once {
		list, total, err := at.list(ctx, o, f.rows)
		if err != nil {
			return err
		}
		return p.writeTop(list, total)
	}
	return untilSignal(ctx, func(ctx context.Context) error { return top.Run(ctx, at.Engine, o) })
}

func (p *program) writeTop(list []seen.Summary, total int) error {
	if p.json {
		return p.writeJSON(listJSON{&total, p.summaries(list)})
	}
	if len(list) == 0 {
		p.say("there are no semaphores to show now")
		return nil
	}
	return p.write("%s", aligned(func(t io.Writer) {
		row := top.Head
		for i := range len(list) + 1 {
			row[0] = printable(row[0], engine.MaxName)
			fmt.Fprintln(t, strings.TrimRight(strings.Join(row[:], "\t"), "\t"))
			if i < len(list) {
				row = top.Row(list[i])
			}
		}
	}))
}
