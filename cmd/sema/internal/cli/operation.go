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

	json string // the fields that --json prints
	done string // the field that --json prints beside the names
	no   bool   // it is false
}

const pauseHelp = `Grant no permits of a semaphore until "sema unpause NAME". Holders keep their
permits, waiters keep their places, and newcomers queue. A pause stays when
nobody uses the semaphore. "sema show", "ls" and "why" say that it is paused.`

const unpauseHelp = `End the pause of a semaphore, and serve those who wait. Nothing changes if the
semaphore is not paused.`

const rmHelp = `Forget a semaphore that nobody uses, and its limit with it. The next user of the
name stores a new limit. If somebody holds a permit or waits for one, nothing
changes and the exit code is 75.`

const releaseHelp = `Give back a permit that "sema acquire" printed. The next waiter gets it at once.`

const revokeHelp = `Tell the holder of a permit to stop. The holder learns at its next renewal that
the permit is lost, and "sema run" then stops its command. The weight is free
when the holder has given the permit back, or when the lease has ended. A waiter
whose id is given leaves the queue.

"sema show NAME" lists permits. "sema release NAME PERMIT" takes a permit back
at once; its holder notices only at its next renewal.`

var operations = []operation{
	{name: "pause", short: "Grant nobody a permit, until unpause", help: pauseHelp, json: "name, paused (true)", do: (*sema.Operator).Pause, done: "paused"},
	{name: "unpause", short: "Grant permits again", help: unpauseHelp, json: "name, paused (false)", do: (*sema.Operator).Unpause, done: "paused", no: true},
	{name: "rm", short: "Remove a semaphore that nobody uses", help: rmHelp, json: "name, removed (true)", do: (*sema.Operator).Remove, done: "removed"},
	{name: "release", short: "Give back a permit", help: releaseHelp, json: "name, permit, released (true)", doTo: (*sema.Operator).Release, done: "released"},
	{name: "revoke", short: "Tell the holder of a permit to stop", help: revokeHelp, json: "name, permit, revoked (true)", doTo: (*sema.Operator).Revoke, done: "revoked"},
}

func (p *program) operationCommand(op operation) *cobra.Command {
	words := "NAME"
	if op.doTo != nil {
		words = "NAME PERMIT"
	}
	cmd := p.newCommand(op.name+" [flags] "+words, op.short, op.help, func(cmd *cobra.Command, args []string) error {
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
	})
	p.jsonFlag(cmd, op.name+" prints an object:\n  "+op.json)
	return cmd
}
