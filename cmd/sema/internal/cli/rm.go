package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"sema"
)

const rmHelp = `Forget a semaphore that nobody uses, and its limit with it: whoever uses the
name next stores a limit anew. While somebody holds a permit or waits for one,
nothing is changed and the exit code is 75.

--json prints an object:
  name, removed (true)`

func (p *program) rmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm [flags] NAME",
		Short:             "Remove a semaphore that nobody uses",
		Long:              help(rmHelp, exitCodesHelp),
		Args:              needArgs(1, 1, "NAME"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.operate(cmd.Context(), "remove", args[0], func(ctx context.Context, o *sema.Operator) error { return o.Remove(ctx) })
			if errors.Is(err, sema.ErrInUse) {
				return &exit{exitConflict, usage("sema show "+quote(args[0]), "%q is in use", args[0])}
			}
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(map[string]any{"name": args[0], "removed": true})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
