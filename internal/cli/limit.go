package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"sema"
)

const limitHelp = `Print the limit of a semaphore, or with N set it.

A limit that was set this way is pinned: it is kept when nobody uses the
semaphore, and holds for everybody, whatever their -n says. A larger limit
serves waiters at once. A smaller one takes no permit away; new ones are
granted when less than it is held.

--json prints an object:
  name, limit, pinned, previous (only with N: the limit before, null: none)`

func (p *program) limitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "limit [flags] NAME [N]",
		Short:             "Print or set the limit of a semaphore",
		Long:              limitHelp,
		Args:              needArgs(1, 2, "NAME [N]"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return p.printLimit(cmd.Context(), args[0])
			}
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usage("sema limit "+quote(args[0])+" 3", "limit %q: want a number", printable(args[1], 60))
			}
			if err := sema.ValidateLimit(n); err != nil {
				return err
			}
			return p.setLimit(cmd.Context(), args[0], n)
		},
	}
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
	session, closing, err := p.session(name)
	if err != nil {
		return err
	}
	defer closing()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	st, err := state(ctx, session, name)
	if err != nil {
		return err
	}
	if p.json {
		return p.writeJSON(limitJSON{name, st.Limit, st.Pinned})
	}
	return p.write("%d\n", st.Limit)
}

func (p *program) setLimit(ctx context.Context, name string, n int) error {
	session, closing, err := p.session(name)
	if err != nil {
		return err
	}
	defer closing()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	before, err := session.State(ctx)
	if err == nil {
		err = session.SetLimit(ctx, n, true)
	}
	if err != nil {
		return unreachable("limit", name, err)
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
