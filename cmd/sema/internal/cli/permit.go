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
	do    func(s *sema.Semaphore, ctx context.Context, permit string) error
	json  func(name, permit string) any // what --json prints when it is done
}

func (p *program) permitCommand(v permitVerb) *cobra.Command {
	cmd := &cobra.Command{
		Use:               v.name + " [flags] NAME PERMIT",
		Short:             v.short,
		Long:              help(v.help, exitCodesHelp),
		Args:              needArgs(2, 2, "NAME PERMIT"),
		ValidArgsFunction: p.completeNamePermit,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			s, closing, err := p.existing(args[0], defaultLease)
			if err != nil {
				return err
			}
			defer closing()
			if err := v.do(s, ctx, args[1]); err != nil {
				return unreachable(v.name, args[0], err)
			}
			if p.json {
				return p.writeJSON(v.json(args[0], args[1]))
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
