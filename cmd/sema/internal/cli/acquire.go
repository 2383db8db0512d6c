package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"sema"
	"sema/internal/class"
)

const acquireHelp = `Take a permit, print its id and end. The permit stays taken until somebody
releases it or its lease ends. Only "sema renew" renews it. This is for scripts
and unit files that cannot put a command under "sema run". "sema run" is safer:
it gives the permit back however the command ends.

  permit=$(sema acquire -n 3 --lease 10m downloads) || exit
  …
  sema release downloads "$permit"

While sema waits, a signal leaves the queue.`

func (p *program) acquireCommand() *cobra.Command {
	f := &takeFlags{}
	cmd := p.newCommand("acquire [flags] NAME", "Take a permit for a script, and print it", acquireHelp, func(cmd *cobra.Command, args []string) error {
		if err := f.check(p, cmd); err != nil {
			return err
		}
		signals := catchSignals()
		defer signals.stop()
		label := cmp.Or(f.label, "sema acquire")
		h, err := p.take(cmd.Context(), f, args[0], sema.Options{Renew: sema.NoRenewal, Detached: true, Label: label}, signals)
		if err != nil {
			return err
		}
		defer h.close()
		if p.json {
			err = p.writeJSON(acquireJSON{args[0], h.ID(), h.Token(), h.Weight(), h.limit, f.lease.Seconds()})
		} else {
			err = p.write("%s\n", h.ID())
		}
		if err != nil {
			// Nobody knows the permit's name now.
			return class.Join(err, h.Release())
		}
		return nil
	})
	f.register(cmd)
	cmd.Flags().Lookup("label").Usage = `what others see beside the permit (default: "sema acquire")`
	p.jsonFlag(cmd, "acquire prints an object:\n  name, permit, token, weight, limit (as stored), lease_seconds")
	return cmd
}

type acquireJSON struct {
	Name   string  `json:"name"`
	Permit string  `json:"permit"`
	Token  int64   `json:"token"`
	Weight int     `json:"weight"`
	Limit  int     `json:"limit"`
	Lease  float64 `json:"lease_seconds"`
}
