package cli

import (
	"context"

	"github.com/spf13/cobra"
)

const revokeHelp = `Tell the holder of a permit to stop: at its next renewal it learns that it has
lost the permit, and "sema run" stops its command. The weight is free when the
holder has given it back, or when its lease has ended. "sema show NAME" lists
permits; "sema release NAME PERMIT" takes one back at once, unseen by its
holder until its next renewal.

--json prints an object:
  name, permit, revoked (true)`

func (p *program) revokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke [flags] NAME PERMIT",
		Short: "Tell the holder of a permit to stop",
		Long:  revokeHelp,
		Args:  needArgs(2, 2, "NAME PERMIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			s, closing, err := p.existing(args[0], defaultLease)
			if err != nil {
				return err
			}
			defer closing()
			if err := s.Revoke(ctx, args[1]); err != nil {
				return unreachable("revoke", args[0], err)
			}
			if p.json {
				return p.writeJSON(struct {
					Name    string `json:"name"`
					Permit  string `json:"permit"`
					Revoked bool   `json:"revoked"`
				}{args[0], args[1], true})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
