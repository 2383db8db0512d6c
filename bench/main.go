// Command peers runs the same work on sema and on what a user would pick in
// its place, and writes docs/bench.md about it. See "make bench-peers".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "peers",
		Short:         "Run the same work on sema and on what a user would pick in its place",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newReport(), newDriver())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}
