package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema/bench/internal/peers"
	"sema/bench/internal/runner"
)

// newRun is the run of the scenarios.
func newRun() *cobra.Command {
	r := runner.Runner{Progress: func(line string) { fmt.Fprintln(os.Stderr, line) }}
	var out string
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the scenarios and write down what came of them",
		Long: "Run the scenarios and write down what came of them.\n\nScenarios: " + strings.Join(scenarioNames(), ", ") +
			".\nContestants: " + strings.Join(contestantNames(), ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			r.Self = []string{self, "driver"}
			run, err := r.Run(c.Context())
			if err != nil {
				return err
			}
			return run.Save(out)
		},
	}
	f := c.Flags()
	f.IntVar(&r.Rounds, "rounds", 5, "how often each contestant has its turn")
	f.DurationVar(&r.Round, "round", time.Second, "how long a turn is")
	f.DurationVar(&r.Warmup, "warmup", 500*time.Millisecond, "how long each works before its first turn")
	f.DurationVar(&r.Lease, "lease", 10*time.Second, "lease of permits")
	f.StringSliceVar(&r.Scenarios, "scenario", nil, "scenarios to run (default all)")
	f.StringSliceVar(&r.Contestants, "contestant", nil, "contestants to run beside sema (default all)")
	f.StringVar(&r.URL, "url", "", "Redis server (default one of its own)")
	f.StringVar(&r.Drivers, "drivers", ".", "directory with the drivers of other languages")
	f.StringVar(&out, "out", "results.json", "file to write")
	return c
}

func scenarioNames() []string {
	var all []string
	for _, s := range runner.Scenarios {
		all = append(all, s.Name)
	}
	return all
}

func contestantNames() []string {
	var all []string
	for _, p := range peers.All {
		all = append(all, p.Name)
	}
	return all
}
