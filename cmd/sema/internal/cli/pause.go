package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sema"
)

const pauseHelp = `Grant nobody a permit of a semaphore any more, until "sema unpause NAME". Who
holds a permit keeps it; who waits goes on waiting, and newcomers queue. A pause
outlives an idle semaphore. "sema show", "ls" and "why" say that it is paused.

--json prints an object:
  name, paused (true)`

const unpauseHelp = `End what "sema pause NAME" began, and serve those who wait. For a semaphore that
is not paused, nothing changes.

--json prints an object:
  name, paused (false)`

type pauseJSON struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

func (p *program) pauseCommand() *cobra.Command {
	return p.pausing("pause", "Grant nobody a permit, until unpause", pauseHelp, true, (*sema.Semaphore).Pause)
}

func (p *program) unpauseCommand() *cobra.Command {
	return p.pausing("unpause", "Grant permits again", unpauseHelp, false, (*sema.Semaphore).Unpause)
}

func (p *program) pausing(verb, short, long string, paused bool, do func(*sema.Semaphore, context.Context) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " [flags] NAME",
		Short:             short,
		Long:              help(long, exitCodesHelp),
		Args:              needArgs(1, 1, "NAME"),
		ValidArgsFunction: p.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			if err := p.setPaused(ctx, verb, args[0], do); err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(pauseJSON{args[0], paused})
			}
			return nil
		},
	}
	p.jsonFlag(cmd)
	return cmd
}

func (p *program) setPaused(ctx context.Context, verb, name string, do func(*sema.Semaphore, context.Context) error) error {
	session, closeSession, err := p.session(name)
	if err != nil {
		return err
	}
	defer closeSession()
	if _, err := state(ctx, session, name); err != nil { // a pause would give it a limit that nobody chose
		return err
	}
	s, closing, err := p.existing(name, defaultLease)
	if err != nil {
		return err
	}
	defer closing()
	return absent(name, unreachable(verb, name, do(s, ctx)))
}
