package cli

import (
	"context"

	"github.com/spf13/cobra"

	"sema"
)

// operation is a command that does something to a semaphore, or to a permit of it
// by its id.
type operation struct {
	name, short, help string

	do   func(*sema.Operator, context.Context) error
	doTo func(o *sema.Operator, ctx context.Context, permit string) error // instead of do

	done string // the field that --json prints beside the names
	no   bool   // it is false
}

const pauseHelp = `Grant nobody a permit of a semaphore any more, until "sema unpause NAME".
Holders keep their permits, waiters go on waiting, and newcomers queue. A pause
outlives an idle semaphore. "sema show", "ls" and "why" say that it is paused.

--json prints an object:
  name, paused (true)`

const unpauseHelp = `End what "sema pause NAME" began, and serve those who wait. For a semaphore that
is not paused, nothing changes.

--json prints an object:
  name, paused (false)`

const rmHelp = `Forget a semaphore that nobody uses, and its limit with it: whoever uses the
name next stores a limit anew. While somebody holds a permit or waits for one,
nothing is changed and the exit code is 75.

--json prints an object:
  name, removed (true)`

const releaseHelp = `Give back a permit that "sema acquire" printed. The next waiter has it at once.

--json prints an object:
  name, permit, released (true)`

const revokeHelp = `Tell the holder of a permit to stop: at its next renewal it learns that it has
lost the permit, and "sema run" stops its command. The weight is free when the
holder has given it back, or when its lease has ended. "sema show NAME" lists
permits; "sema release NAME PERMIT" takes one back at once, unseen by its
holder until its next renewal.

--json prints an object:
  name, permit, revoked (true)`

var operations = []operation{
	{name: "pause", short: "Grant nobody a permit, until unpause", help: pauseHelp, do: (*sema.Operator).Pause, done: "paused"},
	{name: "unpause", short: "Grant permits again", help: unpauseHelp, do: (*sema.Operator).Unpause, done: "paused", no: true},
	{name: "rm", short: "Remove a semaphore that nobody uses", help: rmHelp, do: (*sema.Operator).Remove, done: "removed"},
	{name: "release", short: "Give back a permit", help: releaseHelp, doTo: (*sema.Operator).Release, done: "released"},
	{name: "revoke", short: "Tell the holder of a permit to stop", help: revokeHelp, doTo: (*sema.Operator).Revoke, done: "revoked"},
}

func (p *program) operationCommand(op operation) *cobra.Command {
	words, n, complete := "NAME", 1, p.completeName
	if op.doTo != nil {
		words, n, complete = "NAME PERMIT", 2, p.completeNamePermit
	}
	cmd := &cobra.Command{
		Use:               op.name + " [flags] " + words,
		Short:             op.short,
		Long:              help(op.help, exitCodesHelp),
		Args:              needArgs(n, n, words),
		ValidArgsFunction: complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			done := map[string]any{"name": args[0], op.done: !op.no}
			err := p.operate(cmd.Context(), op.name, args[0], func(ctx context.Context, o *sema.Operator) error {
				if op.doTo == nil {
					return op.do(o, ctx)
				}
				done["permit"] = args[1]
				return op.doTo(o, ctx, args[1])
			})
			if err != nil || !p.json {
				return err
			}
			return p.writeJSON(done)
		},
	}
	p.jsonFlag(cmd)
	return cmd
}
