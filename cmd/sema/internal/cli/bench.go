package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine/memengine"
	"sema/internal/measure"
)

const benchHelp = `Measure sema on an engine, every figure beside a baseline of the same run: what
this machine, network and server do at best without a semaphore. Rounds of sema
and of its baselines take turns, so that ratios hold on a busy machine too.

  sema bench --url redis://127.0.0.1:6379
  sema bench --url memory: --scenario uncontended,contended --rounds 3 --json

--url memory: is this command's own memory. With the default values it takes
about five minutes. Figures of the server count all that it does: use one that
nobody else uses. Semaphores are called sema-bench-… with a random part and are
removed at the end, also after an error or a signal; behind sema serve they stay
until they are forgotten, a few minutes later.
On files and PostgreSQL, where every step costs more the more wait or hold, the defaults are
--waiters 10,1000 and --permits 1000.

Scenarios:
  alone        one caller, in turns of 2 ms with its baselines, all in one process: the
               times of single pairs of acquire and release, and what a call costs the
               server. Turns in which the machine stood still are left out
               for all. Baselines as for uncontended
  uncontended  room for everybody, by --goroutines: once with each release given
               back, once with released permits kept for 20 ms. Baselines: on
               Redis, for each pair two calls of a script that does nothing, on a
               pool of connections, and the same through go-redis's automatic
               pipelining; on PostgreSQL two commits; on other engines a Go channel
  contended    a limit of 8, by those of --goroutines above 8 (if none, 64), held
               for 0, 1 and 10 ms. Baseline: a Go channel
  hand-off     from release to acquired by another process. Baseline: on Redis
               PUBLISH to receive between the two; on files a socket
  cohort       a limit of 8 shared by 1, 2, 4 and 8 processes of 16 goroutines each,
               without and with Passes. Baseline: on Redis two no-op calls, on
               PostgreSQL two commits, on other engines a Go channel
  newcomer     from New to acquired beside a process that has all permits among
               its own goroutines
  many-names   --names semaphores at once. Baselines as for uncontended
  queue        hand-offs while --waiters wait: what they cost the server, and its
               memory
  renew        --permits are held and renewed: what they cost the server, and its
               memory. Baseline: the idle server

--json prints an object when all is done:
  version, revision, go, os, arch, cpus, engine, redis_version (Redis only),
  rounds, round_seconds, warmup_seconds
  results: list of scenario, about, rows: list of case, who (sema or the
    baseline), baseline (true or false), figures. These are objects of median,
    min and max of the rounds (alone: of 95 % of other draws of its turns), where
    they mean something of:
      rate (pairs of acquire and release in a second), p50_ns, p99_ns (of the
      waits; alone: p10_ns, p50_ns and p90_ns of the pairs), longest_ns, p99_over_p50, of_possible (rate over that of permits which lie idle
      for one round trip between two holders), allocs (heap objects for a pair),
      client_cpu_ns, script_ns (alone:
      script_p50_ns and script_mean_ns of a call), server_cpu_ns (for a pair: CPU time of sema's
      process, the server's time in scripts, CPU time of its main thread), core
      (CPU time as a part of one core), calls (of scripts, in a renewal period),
      bytes_permit, bytes_waiter (for each), ratio, ratio_of_p99s`

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
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure an engine, beside what it could do at best",
		Long:  help(benchHelp, exitCodesHelp),
		Args:  needArgs(0, 0, "without arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			place, err := p.benchPlace()
			if err != nil {
				return err
			}
			defer place.closing()
			if b.Engine = place.kind; b.Engine == "file" || b.Engine == "postgres" {
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
			return p.bench(cmd.Context(), b, plan, place, progress)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&b.Scenarios, "scenario", measure.ScenarioNames(), "what to measure, separated by commas")
	flags.IntVar(&plan.Rounds, "rounds", 5, "how many rounds; figures are the median of them")
	flags.DurationVar(&plan.Round, "round", time.Second, "how long each contestant runs in each round")
	flags.DurationVar(&plan.Warmup, "warmup", 300*time.Millisecond, "how long each contestant runs before, uncounted")
	flags.IntSliceVar(&b.Goroutines, "goroutines", []int{1, 64, 512}, "of uncontended and contended")
	flags.IntVar(&b.Names, "names", 1000, "semaphores of many-names")
	flags.IntSliceVar(&b.Waiters, "waiters", []int{10, benchMany}, "waiters of queue")
	flags.IntVar(&b.Permits, "permits", benchMany, "permits of renew")
	flags.DurationVar(&b.Lease, "lease", defaultLease, "of permits; renew takes about as long")
	flags.BoolVar(&progress, "progress", false, "say on standard error what is being measured, if that is no terminal")
	p.jsonFlag(cmd)
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

// bench runs until all is measured, or a signal comes; a second signal ends the
// program at once.
func (p *program) bench(ctx context.Context, b measure.Bench, plan measure.Plan, place *benchPlace, progress bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded()...)
	defer signal.Stop(signals)
	go func() { // ends with ctx
		for {
			select {
			case s := <-signals:
				if ends(s) {
					signal.Stop(signals)
					cancel(&interrupted{s})
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := p.benchRun(ctx, b, plan, place, progress)
	var stopped *interrupted
	if err != nil && errors.As(context.Cause(ctx), &stopped) {
		return stopped.asExit()
	}
	return err
}

func (p *program) benchRun(ctx context.Context, b measure.Bench, plan measure.Plan, place *benchPlace, progress bool) error {
	doc := benchJSON{
		versionJSON: version(), CPUs: runtime.GOMAXPROCS(0), Engine: place.kind,
		Rounds: plan.Rounds, Round: plan.Round.Seconds(), Warmup: plan.Warmup.Seconds(), Results: []measure.Result{},
	}
	var err error
	if doc.RedisVersion, err = place.reach(ctx); err != nil {
		return unreachable("bench", "", err)
	}
	if !p.json {
		if err := p.write("sema %s, %s %s/%s, %d CPUs, engine %s\nrounds: %d of %v each; figures are their median (least–greatest)\n",
			doc.Version, doc.Go, doc.OS, doc.Arch, doc.CPUs, strings.TrimSpace(doc.Engine+" "+printable(doc.RedisVersion, 30)), doc.Rounds, plan.Round); err != nil {
			return err
		}
	}
	line := benchLine{statusLine: p.newStatusLine(), lines: progress}
	defer line.clear()
	runner := &measure.Runner{
		Plan: plan, Lease: b.Lease, Prefix: measure.NewPrefix("sema-bench"), Store: place.Store,
		Versions: map[string]string{}, Progress: line.show, Open: place.Gate,
	}
	defer place.sweep(runner.Prefix)
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

// benchPlace is the engine to be measured.
type benchPlace struct {
	measure.Store
	kind    string // "memory", "file", "redis", "sentinel", "cluster", "http", "postgres"
	dir     string // of files
	closing func()
}

// benchPlace takes the engine from --url or $SEMA_URL; one in this command's
// memory as well.
func (p *program) benchPlace() (*benchPlace, error) {
	if p.rawURL() == memoryURL {
		e := memengine.New()
		return &benchPlace{Store: measure.Store{Engine: e}, kind: "memory", closing: func() { _ = e.Close() }}, nil
	}
	at, err := p.open(defaultLease)
	if err != nil {
		return nil, err
	}
	return &benchPlace{Store: measure.Store{Engine: at.Engine, Redis: at.redis, Commit: at.commit}, kind: at.kind, dir: at.dir, closing: at.close}, nil
}

// reach looks whether the engine answers, and which version a server says it
// is.
func (b *benchPlace) reach(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	s, err := sema.New(b.Engine, "sema-bench", 1, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	if _, err := s.State(ctx); err != nil || b.Redis == nil {
		return "", err
	}
	return b.Version(ctx)
}

// sweep removes the files of a run's semaphores.
func (b *benchPlace) sweep(prefix string) {
	files, _ := filepath.Glob(filepath.Join(b.dir, prefix+"*"))
	for _, f := range files {
		_ = os.Remove(f) // the engine does so too, some time
	}
}

// benchDriverCommand is the process of a contestant.
func (p *program) benchDriverCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "bench-driver",
		Short:  "A contestant of sema bench",
		Hidden: true,
		Args:   needArgs(0, 0, "without arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // the terminal's is for the parent, and our input ends with it
			place, err := p.benchPlace()
			if err != nil {
				return err
			}
			defer place.closing()
			if err := measure.Serve(cmd.Context(), p.stdin, p.stdout, place.Gate); err != nil {
				return &exit{code: exitUnreachable} // the parent was told
			}
			return nil
		},
	}
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

// benchLine says how a run goes: on a terminal in one line that is drawn anew,
// elsewhere, if asked to, in a line now and then.
type benchLine struct {
	*statusLine
	lines bool
	said  time.Time // when the last line was
}

func (l *benchLine) show(text string) {
	switch {
	case l.file != nil:
		l.statusLine.show("sema: bench: " + text)
	case l.lines && time.Since(l.said) >= time.Second:
		l.said = time.Now()
		l.p.say("bench: %s", text)
	}
}
