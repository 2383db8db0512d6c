package cli

import (
	"context"

	"github.com/spf13/cobra"
)

const releaseHelp = `Give back a permit that "sema acquire" printed. The next waiter has it at once.

--json prints an object:
  name, permit, released (true)`

func (p *program) releaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release [flags] NAME PERMIT",
		Short: "Give back a permit",
		Long:  releaseHelp,
		Args:  needArgs(2, 2, "NAME PERMIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			s, closing, err := p.existing(args[0], defaultLease)
			if err != nil {
				return err
			}
			defer closing()
			if err := s.ReleaseID(ctx, args[1]); err != nil {
				return unreachable("release", args[0], err)
			}
			if p.json {
				return p.writeJSON(struct {
					Name     string `json:"name"`
					Permit   string `json:"permit"`
					Released bool   `json:"released"`
				}{args[0], args[1], true})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
