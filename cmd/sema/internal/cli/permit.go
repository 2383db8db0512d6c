package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sema"
)

// permitVerb is something to be done to a permit, by its id.
type permitVerb struct {
	name  string
	short string
	help  string
	do    func(o *sema.Operator, ctx context.Context, permit string) error
	done  string // what --json says is true
}

func (p *program) permitCommand(v permitVerb) *cobra.Command {
	cmd := &cobra.Command{
		Use:               v.name + " [flags] NAME PERMIT",
		Short:             v.short,
		Long:              help(v.help, exitCodesHelp),
		Args:              needArgs(2, 2, "NAME PERMIT"),
		ValidArgsFunction: p.completeNamePermit,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.operate(cmd.Context(), v.name, args[0], func(ctx context.Context, o *sema.Operator) error { return v.do(o, ctx, args[1]) })
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(map[string]any{"name": args[0], "permit": args[1], v.done: true})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
