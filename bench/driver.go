package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"sema/bench/internal/driver"
)

// newDriver is the process that works; the runner starts it.
func newDriver() *cobra.Command {
	var o driver.Options
	var holdUS, leaseMS int64
	c := &cobra.Command{
		Use:    "driver",
		Short:  "Let workers acquire and release, as commands on standard input say",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Hold = time.Duration(holdUS) * time.Microsecond
			o.Lease = time.Duration(leaseMS) * time.Millisecond
			return driver.Serve(c.Context(), o, os.Stdin, os.Stdout)
		},
	}
	f := c.Flags()
	f.StringVar(&o.URL, "url", "", "Redis server")
	f.StringVar(&o.Contestant, "contestant", "", "who works")
	f.StringVar(&o.Name, "name", "", "name of the semaphore")
	f.IntVar(&o.Limit, "limit", 1, "limit of the semaphore")
	f.IntVar(&o.Workers, "workers", 1, "how many work at once")
	f.Int64Var(&holdUS, "hold-us", 0, "microseconds to hold a permit")
	f.Int64Var(&leaseMS, "lease-ms", 10_000, "milliseconds of a lease")
	return c
}
