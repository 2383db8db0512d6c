package main

import (
	"github.com/spf13/cobra"

	"sema/bench/internal/report"
	"sema/bench/internal/results"
)

// newReport turns what a run wrote down into a page with charts.
func newReport() *cobra.Command {
	var docs string
	c := &cobra.Command{
		Use:   "report results.json",
		Short: "Write bench.md and its charts from the results of a run",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			run, err := results.Load(args[0])
			if err != nil {
				return err
			}
			return report.Write(run, docs)
		},
	}
	c.Flags().StringVar(&docs, "docs", "../docs", "directory to write into")
	return c
}
