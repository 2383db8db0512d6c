package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sema"
)

const pauseHelp = `Grant nobody a permit of a semaphore any more, until "sema unpause NAME".
Holders keep their permits, waiters go on waiting, and newcomers queue. A pause
outlives an idle semaphore. "sema show", "ls" and "why" say that it is paused.

--json prints an object:
  name, paused (true)`

const unpauseHelp = `End what "sema pause NAME" began, and serve those who wait. For a semaphore that
is not paused, nothing changes.

--json prints an object:
  name, paused (false)`

func (p *program) pauseCommand() *cobra.Command {
	return p.pausing("pause", "Grant nobody a permit, until unpause", pauseHelp, true, (*sema.Operator).Pause)
}

func (p *program) unpauseCommand() *cobra.Command {
	return p.pausing("unpause", "Grant permits again", unpauseHelp, false, (*sema.Operator).Unpause)
}

func (p *program) pausing(verb, short, long string, paused bool, do func(*sema.Operator, context.Context) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " [flags] NAME",
		Short:             short,
		Long:              help(long, exitCodesHelp),
		Args:              needArgs(1, 1, "NAME"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.operate(cmd.Context(), verb, args[0], func(ctx context.Context, o *sema.Operator) error { return do(o, ctx) })
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(map[string]any{"name": args[0], "paused": paused})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
