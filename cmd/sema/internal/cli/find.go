package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
	"sema/internal/loop"
	"sema/internal/view"
	seen "sema/watch"
)

const findHelp = `Find holders and waiters in all semaphores by TEXT. TEXT is the caller's own id
of a permit (as in PUT …/permits/job-17), a permit, a key (see sema run --key),
also for those below it, a host, or a part of a label. On Redis this reads all
keys of the database. The exit code is 1 if nobody is found.

--revoke tells each holder that is found to stop, as "sema revoke" does.`

func (p *program) findCommand() *cobra.Command {
	revoke := false
	cmd := p.newCommand("find [flags] TEXT", "Find holders and waiters in all semaphores", findHelp,
		func(cmd *cobra.Command, args []string) error { return p.find(cmd.Context(), args[0], revoke) })
	p.jsonFlag(cmd, `find prints an object:
  holders, waiters: lists as those of "sema show --json", each with name, that of
    the semaphore
  missed: how many semaphores could not be read
  revoked: how many permits were revoked`)
	cmd.Flags().BoolVar(&revoke, "revoke", false, "revoke the permits that are found")
	return cmd
}

func (p *program) find(ctx context.Context, text string, revoke bool) error {
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	ctx, cancel := context.WithTimeout(ctx, 6*callTime) // a large database takes time
	defer cancel()
	w, err := seen.New(at.Engine, nil)
	if err != nil {
		return err
	}
	defer w.Close()
	var found *view.Found
	err = loop.Repeat(ctx, func() (err error) {
		found = view.NewFound()
		found.Missed, err = w.Each(ctx, nil, func(name string, st engine.State) { found.Add(view.Of(name, st), text) })
		return err
	})
	if err != nil {
		return unreachable("list", "", err)
	}
	found.Sort()
	var failed, printed error
	revoked, nobody := 0, len(found.Holders)+len(found.Waiters) == 0
	if revoke {
		revoked, failed = revokeAll(ctx, at.Engine, found.Holders)
	}
	switch {
	case p.json:
		printed = p.writeJSON(struct {
			*view.Found
			Revoked int `json:"revoked"`
		}{found, revoked})
	case nobody:
		p.say("nobody holds or waits as %s", quote(printable(text, 100)))
	default:
		printed = p.write("%s", aligned(func(t io.Writer) { foundTable(t, found) }))
	}
	if found.Missed > 0 {
		p.say("%d semaphores cannot be read", found.Missed)
	}
	if revoke && !p.json {
		p.say("revoked %d of %d permits", revoked, len(found.Holders))
	}
	if err := cmp.Or(failed, printed); err != nil || !nobody {
		return err
	}
	return &exit{code: exitAbsent}
}

// revokeAll revokes permits, and says how many were there still.
func revokeAll(ctx context.Context, e sema.Engine, list []view.FoundHolder) (revoked int, failure error) {
	for _, h := range list {
		err := operate(ctx, e, "revoke", h.Name, func(ctx context.Context, o *sema.Operator) error { return o.Revoke(ctx, h.Permit) })
		if err != nil {
			failure = err
			continue
		}
		revoked++
	}
	return revoked, failure
}

// foundTable is for human eyes. Text that others wrote is made printable.
func foundTable(t io.Writer, found *view.Found) {
	keyed := slices.ContainsFunc(found.Holders, func(h view.FoundHolder) bool { return h.Key != "" }) ||
		slices.ContainsFunc(found.Waiters, func(w view.FoundWaiter) bool { return w.Key != "" })
	pooled := slices.ContainsFunc(found.Holders, func(h view.FoundHolder) bool { return h.Takes != "" }) ||
		slices.ContainsFunc(found.Waiters, func(w view.FoundWaiter) bool { return w.Takes != "" })
	fmt.Fprintf(t, "NAME\tPERMIT\t\t%s%sCALLER\tHOST\tPID\tLABEL\n", keyCell(keyed, "KEY"), takesCell(pooled, "TAKES"))
	row := func(name, permit, state string, key engine.Key, takes engine.Pools, caller, host string, pid int, label string) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s%s%s\t%s\t%d\t%s\n", printable(name, engine.MaxName), permit, state, keyCell(keyed, key), takesCell(pooled, takes), printable(caller, 60), printable(host, 60), pid, printable(label, 60))
	}
	for _, h := range found.Holders {
		state := "holds"
		if h.Revoked {
			state = "revoked"
		}
		row(h.Name, h.Permit, state, h.Key, h.Takes, h.Caller, h.Host, h.PID, h.Label)
	}
	for _, w := range found.Waiters {
		row(w.Name, w.Permit, "waits for "+brief(time.Duration(w.Waiting*float64(time.Second))), w.Key, w.Takes, w.Caller, w.Host, w.PID, w.Label)
	}
}
