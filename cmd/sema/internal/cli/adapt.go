package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const adaptHelp = `Find the limit of a semaphore from the reports of its holders, between --min and
--max, until INT or TERM.

  sema adapt vendor --min 2 --max 200

Holders report with sema run --adapt report --overload-exit 75, or as programs
with an Adapt without a range. If several processes adapt one semaphore, one at
a time sets the limit; when it dies, another takes over within seconds. An
operator's limit replaces theirs until sema limit --unset.

Each change is a line: time, limit before and after, and why.`

func (p *program) adaptCommand() *cobra.Command {
	var a sema.Adapt
	cmd := p.newCommand("adapt [flags] NAME", "Find the limit of a semaphore from what its holders report", adaptHelp, func(cmd *cobra.Command, args []string) error {
		if a.Min < 1 || a.Max < a.Min {
			return usage(p.command("adapt", quote(args[0]), "--min 2 --max 200"), "--min %d --max %d: want two limits, the smaller one first", a.Min, a.Max)
		}
		return p.adapt(cmd.Context(), args[0], a)
	})
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&a.Min, "min", 0, "the smallest limit; at least the largest weight that anybody takes")
	cmd.Flags().IntVar(&a.Max, "max", 0, "the largest limit")
	p.jsonFlag(cmd, `adapt prints an object for each change:
  name, from, limit, bad (part of the time held that went badly, 0 to 1), why`)
	return cmd
}

type adaptedJSON struct {
	Name  string  `json:"name"`
	From  int     `json:"from"`
	Limit int     `json:"limit"`
	Bad   float64 `json:"bad"`
	Why   string  `json:"why"`
}

func (p *program) adapt(ctx context.Context, name string, a sema.Adapt) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	err = decide(ctx, at.Engine, name, a, func(c sema.Event) {
		var err error
		if p.json {
			err = p.writeJSON(adaptedJSON{c.Semaphore, c.From, c.Limit, c.Bad, c.Why})
		} else {
			err = p.write("%s: limit %d, was %d: %s\n", printable(c.Semaphore, 100), c.Limit, c.From, c.Why)
		}
		if err != nil {
			fail(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// decide decides about the limit of a semaphore until ctx ends.
func decide(ctx context.Context, e sema.Engine, name string, a sema.Adapt, told func(sema.Event)) error {
	s, err := sema.New(e, name, a.Min, &sema.Options{Adapt: &a, Observer: sema.Observer{LimitChanged: told}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return s.Decide(ctx)
}

// readAdapt reads MIN:MAX, or report for a process that leaves the limit to others.
func readAdapt(text string) (*sema.Adapt, error) {
	if text == "report" {
		return &sema.Adapt{}, nil
	}
	low, high, ok := strings.Cut(text, ":")
	least, err := strconv.Atoi(low)
	most, err2 := strconv.Atoi(high)
	if !ok || err != nil || err2 != nil || least < 1 || most < least || most > engine.MaxLimit {
		return nil, usage("--adapt 2:200, or --adapt report", "--adapt %s: want the smallest and the largest limit", printable(text, 60))
	}
	return &sema.Adapt{Min: least, Max: most}, nil
}

// adaptFlags are those of sema run.
type adaptFlags struct {
	adapt    string
	overload []int
	is       *sema.Adapt // nil: the limit is what it was set to
}

func (f *adaptFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.adapt, "adapt", "", "MIN:MAX: find the limit between them from exit codes; report: only report them to sema adapt")
	cmd.Flags().IntSliceVar(&f.overload, "overload-exit", []int{exitConflict}, "with --adapt: exit codes that mean overload")
}

// check reads the flags. Without -n the limit begins at the smallest.
func (f *adaptFlags) check(cmd *cobra.Command, t *takeFlags) (err error) {
	if !cmd.Flags().Changed("adapt") {
		if cmd.Flags().Changed("overload-exit") {
			return usage("--adapt 2:200", "--overload-exit needs --adapt")
		}
		return nil
	}
	if f.is, err = readAdapt(f.adapt); err != nil {
		return err
	}
	if err = checkCodes("overload-exit", f.overload); err != nil {
		return err
	}
	if f.is.Min > 0 && !t.limitGiven {
		t.limit = f.is.Min
	}
	if f.is.Min > 0 && t.weight > f.is.Min {
		return usage(fmt.Sprintf("--adapt %d:%d", t.weight, max(f.is.Max, t.weight)), "weight %d is above the smallest limit %d", t.weight, f.is.Min)
	}
	return nil
}

// checkCodes returns an error if a flag has something else than a code of failure.
func checkCodes(flag string, codes []int) error {
	for _, code := range codes {
		if code < 1 || code > 255 {
			return usage(fmt.Sprintf("--%s %d", flag, exitConflict), "--%s %d: want 1 … 255", flag, code)
		}
	}
	return nil
}

// adapted is a limit that a server finds.
type adapted struct {
	name string
	is   sema.Adapt
}

// readAdapts reads NAME=MIN:MAX of each.
func readAdapts(list []string) (all []adapted, err error) {
	for _, text := range list {
		i := strings.LastIndexByte(text, '=')
		if i < 1 {
			return nil, usage("--adapt vendor=2:200", "--adapt %s: want NAME=MIN:MAX", printable(text, 100))
		}
		a, err := readAdapt(text[i+1:])
		if err == nil {
			err = checkName(text[:i])
		}
		if err == nil && a.Max == 0 {
			err = usage("--adapt vendor=2:200", "--adapt %s: a server holds nothing that it could report", printable(text, 100))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, adapted{text[:i], *a})
	}
	return all, nil
}
