package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"sema"
)

const renewHelp = `Give a permit that "sema acquire" printed a whole new lease. Renew it well
before the lease ends: one that has ended is not revived, and the exit code is
then 76.

--json prints an object:
  name, permit, token, lease_seconds`

func (p *program) renewCommand() *cobra.Command {
	var lease time.Duration
	cmd := &cobra.Command{
		Use:               "renew [flags] NAME PERMIT",
		Short:             "Renew the lease of a permit",
		Long:              renewHelp,
		Args:              needArgs(2, 2, "NAME PERMIT"),
		ValidArgsFunction: p.completeNamePermit,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lease == 0 {
				return usage("--lease 30s", "lease 0s: want more than nothing")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			s, closing, err := p.existing(args[0], lease)
			if err != nil {
				return err
			}
			defer closing()
			permit, err := s.Resume(ctx, args[1])
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
		},
	}
	cmd.Flags().Var(durationOf(&lease, defaultLease), "lease", "how long the permit lives from now on")
	p.jsonFlag(cmd)
	return cmd
}

// existing opens a semaphore for work on permits that were acquired before.
// Closing it leaves them alone.
func (p *program) existing(name string, lease time.Duration) (s *sema.Semaphore, closing func(), err error) {
	engine, closeEngine, err := p.engine(lease)
	if err != nil {
		return nil, nil, err
	}
	// The limit is of no account: nothing is acquired.
	s, err = sema.New(engine, name, 1, &sema.Options{Lease: lease, Renew: sema.NoRenewal, Detached: true})
	if err != nil {
		closeEngine()
		return nil, nil, err
	}
	return s, func() { _ = s.Close(); closeEngine() }, nil
}
