// Command peers runs the same work on sema and on what a user would pick in
// its place, and writes docs/bench.md and docs/data/bench.md about it. See "make bench-peers".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/measure"
)

const help = `usage: peers run [flags]           run the scenarios and write down what came of them
       peers report FILE DIRECTORY  write bench.md, data/bench.md and the charts from that
`

func main() {
	child.Role(relayed, relay)
	child.Play()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, append(os.Args[1:], "help"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	switch {
	case args[0] == "run":
		return runCommand(ctx, args[1:len(args)-1])
	case args[0] == "report" && len(args) == 4:
		results, err := load(args[1])
		if err != nil {
			return err
		}
		return write(results, args[2])
	case args[0] == "driver": // the process of a contestant; run starts it
		return measure.Serve(ctx, os.Stdin, os.Stdout, openPeer)
	}
	return fmt.Errorf("no such command\n%s", help)
}

func runCommand(ctx context.Context, args []string) error {
	r := run{out: "results.json", progress: func(text string) { fmt.Fprintln(os.Stderr, text) }}
	f := flag.NewFlagSet("peers run", flag.ContinueOnError)
	f.IntVar(&r.plan.Rounds, "rounds", 5, "how often each contestant has its turn")
	f.DurationVar(&r.plan.Round, "round", time.Second, "how long a turn is")
	f.DurationVar(&r.plan.Warmup, "warmup", 500*time.Millisecond, "how long each works before its first turn")
	f.BoolVar(&r.plan.Strict, "strict", false, "end with the first failure of a contestant")
	f.DurationVar(&r.lease, "lease", 10*time.Second, "lease of permits")
	f.StringVar(&r.url, "url", "", "Redis `server` (default one of its own)")
	f.StringVar(&r.out, "out", r.out, "`file` to write")
	f.BoolVar(&r.goOn, "go-on", false, "keep what a run that was stopped has in FILE.part, and run the rest")
	f.Func("scenario", "scenarios to run, separated by commas (default all)", func(s string) error {
		r.scenarios = strings.Split(s, ",")
		return nil
	})
	f.Func("contestant", "contestants to run beside sema, separated by commas (default all)", func(s string) error {
		r.contestants = strings.Split(s, ",")
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	results, err := r.do(ctx)
	if err != nil {
		return err
	}
	if err := results.save(r.out); err != nil {
		return err
	}
	return os.Remove(r.part())
}
