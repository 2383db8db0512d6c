package child

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"sema/lab/expect"
)

// Tested is a process of a test. It is killed when the test ends.
type Tested struct {
	*Process
	tb testing.TB
}

// Run starts a process for a test. With -short it skips the test.
func Run(tb testing.TB, role string, job any) *Tested {
	tb.Helper()
	cmd, err := Command(role, job)
	expect.OK(tb, err)
	return RunCommand(tb, cmd)
}

// RunCommand is Run, for a Command that was changed.
func RunCommand(tb testing.TB, cmd *exec.Cmd) *Tested {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it takes processes")
	}
	p, err := Start(cmd)
	expect.OK(tb, err)
	tb.Cleanup(p.Kill)
	return &Tested{p, tb}
}

// Says wants the next line to be a word, and so many values after it, which are
// pointers as for fmt.Sscan.
func (p *Tested) Says(word string, values ...any) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	line, err := p.Line(ctx)
	if err != nil {
		p.tb.Fatalf("process %d does not say %q: %v", p.PID(), word, err)
	}
	said, rest, _ := strings.Cut(line, " ")
	if n, _ := fmt.Sscan(rest, values...); said != word || n != len(values) {
		p.tb.Fatalf("process %d says %q instead of %q and %d values", p.PID(), line, word, len(values))
	}
}

// Tell tells it a line.
func (p *Tested) Tell(line string) {
	p.tb.Helper()
	expect.OK(p.tb, p.Order(line))
}

// Ends has the process end by itself, and wants it to end well.
func (p *Tested) Ends() {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	expect.OK(p.tb, p.End(ctx))
}

// Uses is what it uses.
func (p *Tested) Uses() Usage {
	p.tb.Helper()
	u, err := p.Usage()
	expect.OK(p.tb, err)
	return u
}
