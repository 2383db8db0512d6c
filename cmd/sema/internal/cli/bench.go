package cli

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema/engines/memengine"
	"sema/internal/measure"
)

const benchHelp = `Measure sema on an engine. Every figure is beside a baseline of the same run:
the best of this machine, network and server without a semaphore. sema and its
baselines take turns, so ratios are right on a busy machine too.

  sema bench --url redis://127.0.0.1:6379
  sema bench --url memory: --scenario uncontended,contended --rounds 3 --json

--url memory: is the memory of this command. With the defaults a run takes about
five minutes. sema help bench-details explains the scenarios.`

// memoryURL is the engine in memory, which only sema bench can use: no other
// process reaches it.
const memoryURL = "memory:"

// The defaults of --waiters and --permits. What a step costs on files and on PostgreSQL
// grows with the number of waiters and holders, so it gets fewer.
const (
	benchMany     = 10_000
	benchManyFile = 1_000
)

func (p *program) benchCommand() *cobra.Command {
	b, plan := measure.Bench{Command: p.benchDriver}, measure.Plan{Strict: true}
	var progress bool
	cmd := p.newCommand("bench [flags]", "Measure an engine, beside what it could do at best", benchHelp, func(cmd *cobra.Command, _ []string) error {
		for _, word := range b.Scenarios {
			if known := measure.ScenarioNames(); !slices.Contains(known, word) {
				return noChoice("scenario", word, known)
			}
		}
		at, err := p.openBench()
		if err != nil {
			return err
		}
		defer at.close()
		if b.Engine = at.kind; b.Engine == "file" || b.Engine == "postgres" {
			if !cmd.Flags().Changed("waiters") {
				b.Waiters = []int{10, benchManyFile}
			}
			if !cmd.Flags().Changed("permits") {
				b.Permits = benchManyFile
			}
		}
		if err := b.Check(plan); err != nil {
			return err
		}
		return untilSignal(cmd.Context(), func(ctx context.Context) error { return p.bench(ctx, b, plan, at, progress) })
	})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&b.Scenarios, "scenario", measure.ScenarioNames(), "what to measure, separated by commas")
	flags.IntVar(&plan.Rounds, "rounds", 5, "how many rounds; figures are their median")
	flags.DurationVar(&plan.Round, "round", time.Second, "how long each contestant runs in each round")
	flags.DurationVar(&plan.Warmup, "warmup", 300*time.Millisecond, "how long each contestant runs before the first round")
	flags.IntSliceVar(&b.Goroutines, "goroutines", []int{1, 64, 512}, "goroutines of uncontended and contended")
	flags.IntVar(&b.Names, "names", 1000, "semaphores of many-names")
	flags.IntSliceVar(&b.Waiters, "waiters", []int{10, benchMany}, "waiters of queue")
	flags.IntVar(&b.Permits, "permits", benchMany, "permits of renew")
	flags.DurationVar(&b.Lease, "lease", defaultLease, "of permits; renew takes about as long")
	flags.BoolVar(&progress, "progress", false, "print progress on standard error even if it is no terminal")
	p.jsonFlag(cmd, "bench prints an object at the end: see sema help bench-details")
	lessUsed(cmd, "warmup", "goroutines", "names", "waiters", "permits", "lease", "progress")
	return cmd
}

// benchJSON is what --json prints.
type benchJSON struct {
	versionJSON
	CPUs         int              `json:"cpus"`
	Engine       string           `json:"engine"`
	RedisVersion string           `json:"redis_version,omitempty"`
	Rounds       int              `json:"rounds"`
	Round        float64          `json:"round_seconds"`
	Warmup       float64          `json:"warmup_seconds"`
	Results      []measure.Result `json:"results"`
}

func (p *program) bench(ctx context.Context, b measure.Bench, plan measure.Plan, at *openEngine, progress bool) error {
	doc := benchJSON{
		versionJSON: version(), CPUs: runtime.GOMAXPROCS(0), Engine: at.kind,
		Rounds: plan.Rounds, Round: plan.Round.Seconds(), Warmup: plan.Warmup.Seconds(), Results: []measure.Result{},
	}
	var err error
	if doc.RedisVersion, err = at.reach(ctx); err != nil {
		return unreachable("bench", "", err)
	}
	if !p.json {
		if err := p.write("sema %s, %s %s/%s, %d CPUs, engine %s\nrounds: %d of %v each; figures are their median (least–greatest)\n",
			doc.Version, doc.Go, doc.OS, doc.Arch, doc.CPUs, strings.TrimSpace(doc.Engine+" "+printable(doc.RedisVersion, 30)), doc.Rounds, plan.Round); err != nil {
			return err
		}
	}
	line, said := p.newStatusLine(), time.Time{}
	defer line.clear()
	// On a terminal it is one line that is drawn anew; elsewhere, if asked for, a line now and then.
	show := func(text string) {
		if line.file == nil && progress && time.Since(said) >= time.Second {
			said = time.Now()
			p.say("bench: %s", text)
		}
		line.show("sema: bench: " + text)
	}
	runner := &measure.Runner{
		Plan: plan, Lease: b.Lease, Prefix: measure.NewPrefix("sema-bench"), Store: at.Store,
		Versions: map[string]string{}, Progress: show, Open: at.Gate,
	}
	defer at.sweep(runner.Prefix)
	err = b.Run(ctx, runner, func(r measure.Result) error {
		line.clear()
		doc.Results = append(doc.Results, r)
		if p.json {
			return nil
		}
		return p.write("\n%s: %s\n%s", r.Scenario, r.About, r.Table())
	})
	if err != nil || !p.json {
		return err
	}
	return p.writeJSON(doc)
}

// openBench opens the engine that --url or $SEMA_URL names; one in this command's memory
// as well.
func (p *program) openBench() (*openEngine, error) {
	if p.rawURL() != memoryURL {
		return p.open(defaultLease)
	}
	e := memengine.New()
	return &openEngine{Store: measure.Store{Engine: e}, address: address{kind: "memory"}, close: func() { _ = e.Close() }}, nil
}

// reach looks whether the engine answers, and which version a server says it
// is.
func (at *openEngine) reach(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := look(ctx, at.Engine, "bench", "sema-bench"); err != nil || at.Redis == nil {
		return "", err
	}
	return at.Version(ctx)
}

// sweep removes the files of a run's semaphores.
func (at *openEngine) sweep(prefix string) {
	files, _ := filepath.Glob(filepath.Join(at.dir, prefix+"*"))
	for _, f := range files {
		_ = os.Remove(f) // the engine does so too, some time
	}
}

// benchDriverCommand is the process of a contestant.
func (p *program) benchDriverCommand() *cobra.Command {
	cmd := p.newCommand("bench-driver", "A contestant of sema bench", "", func(cmd *cobra.Command, _ []string) error {
		signal.Ignore(os.Interrupt) // the terminal's is for the parent, and our input ends with it
		at, err := p.openBench()
		if err != nil {
			return err
		}
		defer at.close()
		if err := measure.Serve(cmd.Context(), p.stdin, p.stdout, at.Gate); err != nil {
			return &exit{code: exitUnreachable} // the parent was told
		}
		return nil
	})
	cmd.Hidden = true
	return cmd
}

// benchDriver starts a driver. The URL may hold a password, so it does not go
// onto the command line.
func (p *program) benchDriver(ctx context.Context) (*exec.Cmd, error) {
	self := "/proc/self/exe" // not a newer version that took the file's place
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, self, "bench-driver")
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(append([]string{}, p.env...), "SEMA_URL="+p.rawURL())
	return cmd, nil
}
