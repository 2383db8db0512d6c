package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const limitHelp = `Print the limit of a semaphore, or with N set it, or with --unset unset it.

A limit that was set this way is pinned: it is kept when nobody uses the
semaphore, and holds for everybody, whatever their -n says. A larger limit
serves waiters at once. A smaller one takes no permit away; new ones are
granted when less than it is held.

--unset ends that: the limit stays while the semaphore is in use, and is
forgotten when it has been idle. To be rid of an idle semaphore now: sema rm.

--json prints an object:
  name, limit, pinned, previous (only with N: the limit before, null: none)`

func (p *program) limitCommand() *cobra.Command {
	unset := false
	cmd := &cobra.Command{
		Use:               "limit [flags] NAME [N]",
		Short:             "Print or set the limit of a semaphore",
		Long:              limitHelp,
		Args:              needArgs(1, 2, "NAME [N]"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case unset && len(args) == 2:
				return usage("one of them", "N and --unset exclude each other")
			case unset:
				return p.unsetLimit(cmd.Context(), args[0])
			case len(args) == 1:
				return p.printLimit(cmd.Context(), args[0])
			}
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usage("sema limit "+quote(args[0])+" 3", "limit %q: want a number", printable(args[1], 60))
			}
			if err := engine.ValidateLimit(n); err != nil {
				return err
			}
			return p.setLimit(cmd.Context(), args[0], n)
		},
	}
	cmd.Flags().BoolVar(&unset, "unset", false, "forget the limit once nobody uses the semaphore")
	p.jsonFlag(cmd)
	return cmd
}

type limitJSON struct {
	Name   string `json:"name"`
	Limit  int    `json:"limit"`
	Pinned bool   `json:"pinned"`
}

type limitSetJSON struct {
	limitJSON
	Previous *int `json:"previous"`
}

func (p *program) printLimit(ctx context.Context, name string) error {
	st, err := p.state(ctx, name)
	if err != nil {
		return err
	}
	return p.writeLimit(name, st)
}

func (p *program) writeLimit(name string, st sema.State) error {
	if p.json {
		return p.writeJSON(limitJSON{name, st.Limit, st.Pinned})
	}
	return p.write("%d\n", st.Limit)
}

func (p *program) setLimit(ctx context.Context, name string, n int) error {
	var before sema.State
	err := p.operate(ctx, "limit", name, func(ctx context.Context, o *sema.Operator) (err error) {
		if before, err = o.State(ctx); err != nil && !errors.Is(err, sema.ErrNotFound) {
			return err
		}
		return o.SetLimit(ctx, n)
	})
	if err != nil {
		return err
	}
	if p.json {
		v := limitSetJSON{limitJSON: limitJSON{name, n, true}}
		if before.Limit != 0 {
			v.Previous = &before.Limit
		}
		return p.writeJSON(v)
	}
	return p.write("%d\n", n)
}

func (p *program) unsetLimit(ctx context.Context, name string) error {
	var st sema.State
	err := p.operate(ctx, "unset limit", name, func(ctx context.Context, o *sema.Operator) error {
		err := o.UnsetLimit(ctx)
		if err == nil {
			st, err = o.State(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.writeLimit(name, st)
}
