package cli

import (
	"context"
	"errors"
	"fmt"

	"os"
	"os/exec"
	"os/signal"
	"runtime"

	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sema/internal/bench"
)

const benchHelp = `Measure sema on an engine, every figure beside a baseline of the same run: what
this machine, network and server do at best without a semaphore. Rounds of sema
and of its baselines take turns, so that ratios hold on a busy machine too.

  sema bench --url redis://127.0.0.1:6379
  sema bench --url memory: --scenario uncontended,contended --rounds 3 --json

--url memory: is this process's memory, for this command only. With the default
values it takes about three minutes. Figures of the server count all that it
does: use one that nobody else uses. Semaphores are called sema-bench-… with a
random part and are removed at the end, also after an error or a signal.
On files, where every step costs more the more wait or hold, the defaults are
--waiters 10,1000 and --permits 1000.

Scenarios:
  uncontended  room for everybody, by --goroutines. Baselines: on Redis, for each
               pair two calls of a script that does nothing, on a pool of
               connections, and the same through go-redis's automatic pipelining;
               on other engines a Go channel
  contended    a limit of 8, by those of --goroutines above 8 (if none, 64), held
               for 0, 1 and 10 ms. Baseline: a Go channel
  hand-off     from release here to acquired in another process. Baseline on
               Redis: PUBLISH to receive between the two; on files: a pipe
  many-names   --names semaphores at once. Baselines as for uncontended
  queue        hand-offs while --waiters wait: what they cost the server
  renew        --permits are held and renewed. Baseline: the idle server
  memory       of the server, for each of 1, 100 and --permits; Redis only

--json prints an object when all is done; times are seconds:
  version, revision, go, os, arch, cpus, engine, redis_version (Redis only),
  rounds, round_seconds, warmup_seconds
  results: list of scenario, about, unit (of work), ratio (what ratios are of),
    rows: list of case, who (sema or the baseline), baseline (true or false),
      count (units of work measured) and, where they mean something:
      rate (units in a second), p50_seconds, p99_seconds, p99_over_p50,
      of_ideal (rate over that of permits which lie idle for one round trip
      between two holders), allocs (heap objects for each unit), script_us
      (server time in scripts for each unit, microseconds), cpu_us (CPU time for
      each unit, microseconds: of the server's main thread; of this process on
      engines without a server), core (the same, as a part of one core), calls
      (script calls in a renewal period), lost (permits), bytes_permit,
      bytes_waiter (for each), ratio, ratio_of_p99s
  rate, script_us, cpu_us and ratios are objects of median, min and max of the
  rounds.`

// The defaults of --waiters and --permits. What a step of the file engine costs
// grows with the number of waiters and holders, so it gets fewer.
const (
	benchMany     = 10_000
	benchManyFile = 1_000
)

func (p *program) benchCommand() *cobra.Command {
	var c bench.Config
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
			if place.kind == "file" && !cmd.Flags().Changed("waiters") {
				c.Waiters = []int{10, benchManyFile}
			}
			if place.kind == "file" && !cmd.Flags().Changed("permits") {
				c.Permits = benchManyFile
			}
			if !cmd.Flags().Changed("scenario") {
				c.Scenarios = bench.Scenarios(place.Redis != nil)
			}
			if err := c.Check(place.Redis != nil); err != nil {
				return err
			}
			return p.bench(cmd.Context(), c, place, progress)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&c.Scenarios, "scenario", nil, "what to measure, separated by commas (default: all)")
	flags.IntVar(&c.Rounds, "rounds", 5, "how many rounds; figures are the median of them")
	flags.DurationVar(&c.Round, "round", time.Second, "how long each contestant runs in each round")
	flags.DurationVar(&c.Warmup, "warmup", 300*time.Millisecond, "how long each contestant runs before, uncounted")
	flags.IntSliceVar(&c.Goroutines, "goroutines", []int{1, 64, 512}, "of uncontended and contended")
	flags.IntVar(&c.Names, "names", 1000, "semaphores of many-names")
	flags.IntSliceVar(&c.Waiters, "waiters", []int{10, benchMany}, "waiters of queue")
	flags.IntVar(&c.Permits, "permits", benchMany, "permits of renew and memory")
	flags.DurationVar(&c.Lease, "lease", defaultLease, "of the permits of renew, which takes about half of it")
	flags.BoolVar(&progress, "progress", false, "say on standard error what is being measured, if that is no terminal")
	p.jsonFlag(cmd)
	return cmd
}

// benchJSON is what --json prints.
type benchJSON struct {
	versionJSON
	CPUs         int            `json:"cpus"`
	Engine       string         `json:"engine"`
	RedisVersion string         `json:"redis_version,omitempty"`
	Rounds       int            `json:"rounds"`
	Round        float64        `json:"round_seconds"`
	Warmup       float64        `json:"warmup_seconds"`
	Results      []bench.Result `json:"results"`
}

// bench runs until all is measured, or a signal comes; a second signal ends the
// program at once.
func (p *program) bench(ctx context.Context, c bench.Config, place *benchPlace, progress bool) error {
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

	err := p.benchRun(ctx, c, place, progress)
	var stopped *interrupted
	if err != nil && errors.As(context.Cause(ctx), &stopped) {
		if !errors.Is(err, context.Canceled) {
			p.say("%s", err) // what could not be removed
		}
		return stopped.asExit()
	}
	return err
}

func (p *program) benchRun(ctx context.Context, c bench.Config, place *benchPlace, progress bool) error {
	doc := benchJSON{
		versionJSON: version(), CPUs: runtime.GOMAXPROCS(0), Engine: place.kind,
		Rounds: c.Rounds, Round: c.Round.Seconds(), Warmup: c.Warmup.Seconds(), Results: []bench.Result{},
	}
	var err error
	if doc.RedisVersion, err = place.reach(ctx); err != nil {
		return unreachable("bench", "", err)
	}
	if !p.json {
		if err := p.write("%s", benchHead(doc)); err != nil {
			return err
		}
	}
	line := p.newBenchLine(progress)
	defer line.clear()
	c.Progress = line.show
	c.Report = func(r bench.Result) error {
		line.clear()
		doc.Results = append(doc.Results, r)
		if p.json {
			return nil
		}
		return p.write("%s", benchTable(r))
	}
	if err := bench.Run(ctx, place.Target, c); err != nil {
		return err
	}
	if p.json {
		return p.writeJSON(doc)
	}
	return nil
}

// benchLine says how a run goes: on a terminal in one line that is drawn anew,
// elsewhere, if asked to, in a line now and then.
type benchLine struct {
	*program
	file  *os.File // nil: no terminal
	lines bool
	shown bool
	said  time.Time // when the last line was
}

func (p *program) newBenchLine(lines bool) *benchLine {
	l := &benchLine{program: p, lines: lines}
	if file, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) && p.getenv("TERM") != "dumb" {
		l.file = file
	}
	return l
}

// benchSayEvery is the least time between two lines.
const benchSayEvery = time.Second

func (l *benchLine) show(text string) {
	if l.file == nil {
		if l.lines && time.Since(l.said) >= benchSayEvery {
			l.said = time.Now()
			l.say("bench: %s", text)
		}
		return
	}
	width, _, err := term.GetSize(int(l.file.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	_, _ = fmt.Fprintf(l.file, "\r%s\x1b[K", printable("sema: bench: "+text, width-2))
	l.shown = true
}

func (l *benchLine) clear() {
	if l.shown {
		_, _ = fmt.Fprint(l.file, "\r\x1b[K")
		l.shown = false
	}
}

// benchPeerCommand is the other process of a hand-off.
func (p *program) benchPeerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "bench-peer NAME",
		Short:  "The other process of sema bench",
		Hidden: true,
		Args:   needArgs(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Ignore(os.Interrupt) // the terminal's is for the parent, and our input ends with it
			place, err := p.benchPlace()
			if err != nil {
				return err
			}
			defer place.closing()
			return bench.Peer(cmd.Context(), place.Target, args[0], p.stdin, p.stdout)
		},
	}
}

// benchProcess is the command of the other process. The URL may hold a
// password, so it does not go onto the command line.
func (p *program) benchProcess(name string) (*exec.Cmd, error) {
	self := "/proc/self/exe" // not a newer version that took the file's place
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(self, "bench-peer", name)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(append([]string{}, p.env...), "SEMA_URL="+p.rawURL())
	return cmd, nil
}

func (p *program) rawURL() string {
	if p.url != "" {
		return p.url
	}
	return p.getenv("SEMA_URL")
}
