package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const renewHelp = `Give a permit that "sema acquire" printed a new lease. Without --lease the lease
is as long as acquire was told, and never shorter than the rest of the old one.
Renew the permit well before its lease ends. A permit whose lease has ended
stays lost: the exit code is then 76.`

func (p *program) renewCommand() *cobra.Command {
	var lease time.Duration
	cmd := p.newCommand("renew [flags] NAME PERMIT", "Renew the lease of a permit", renewHelp, func(cmd *cobra.Command, args []string) error {
		if lease == 0 && cmd.Flags().Changed("lease") {
			return usage("--lease 30s", "lease 0s: want more than nothing")
		}
		at, err := p.open(cmp.Or(lease, defaultLease))
		if err != nil {
			return err
		}
		defer at.close()
		permit, lease, err := renew(cmd.Context(), at.Engine, args[0], args[1], lease)
		if err != nil {
			return unreachable("renew", args[0], err)
		}
		if p.json {
			return p.writeJSON(struct {
				Name   string  `json:"name"`
				Permit string  `json:"permit"`
				Token  int64   `json:"token"`
				Lease  float64 `json:"lease_seconds"`
			}{args[0], args[1], permit.Token(), lease.Seconds()})
		}
		return nil
	})
	cmd.Flags().Var(durationOf(&lease, 0), "lease", "length of the new lease (default: as acquire was told)")
	p.jsonFlag(cmd, "renew prints an object:\n  name, permit, token, lease_seconds")
	return cmd
}

// renew gives a permit a whole new lease, and leaves it to its holder. A lease of 0 is
// that of the permit.
func renew(ctx context.Context, e sema.Engine, name, id string, lease time.Duration) (*sema.Permit, time.Duration, error) {
	if _, err := engine.ParseID(id); err != nil {
		return nil, 0, err
	}
	var st sema.State
	err := operate(ctx, e, "renew", name, func(ctx context.Context, o *sema.Operator) (err error) {
		st, err = o.State(ctx)
		if errors.Is(err, sema.ErrNotFound) {
			err = fmt.Errorf("%w: %q has no permit %s", sema.ErrLost, name, id)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if lease == 0 {
		lease = leaseOf(st, id)
	}
	s, err := sema.New(e, name, st.Limit, &sema.Options{Lease: lease, Renew: sema.NoRenewal, Detached: true})
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = s.Close() }() // it leaves the permit alone
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	permit, err := s.Resume(ctx, id)
	return permit, lease, err
}

// leaseOf is how long a lease a permit's holder asked for. What is left may be more: an
// earlier renewal asked for it, or the holder's release of sema did not say.
func leaseOf(st sema.State, id string) time.Duration {
	for _, h := range st.Holders {
		if h.ID == id {
			return max(cmp.Or(h.Client.Lease, defaultLease), h.Left)
		}
	}
	return defaultLease // the permit is gone
}
