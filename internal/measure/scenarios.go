package measure

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sema"
)

// Bench configures sema bench: the scenarios, and their sizes.
type Bench struct {
	Scenarios  []string
	Goroutines []int         // of uncontended and contended, each 1 … 100,000
	Names      int           // of many-names, 1 … 100,000
	Waiters    []int         // of queue, each 1 … 1,000,000
	Permits    int           // of renew, 1 … 1,000,000
	Lease      time.Duration // a second … an hour

	Engine  string                                   // "memory", "file", "http", "postgres", or a kind of Redis
	Command func(context.Context) (*exec.Cmd, error) // of a driver
}

func (b Bench) redis() bool {
	return !slices.Contains([]string{"memory", "file", "http", "postgres"}, b.Engine)
}

// Result is what one scenario found.
type Result struct {
	Scenario string `json:"scenario"`
	About    string `json:"about"` // what was done, and what ratios are of
	Rows     []Row  `json:"rows"`

	columns []Column
}

// Row is one contestant in one case.
type Row struct {
	Case     string            `json:"case"`
	Who      string            `json:"who"` // begins with "sema", or is a baseline
	Baseline bool              `json:"baseline"`
	Figures  map[string]Spread `json:"figures"`
}

// scenario is one of sema bench's, as data.
type scenario struct {
	name, about string
	columns     []Column
	cases       func(b Bench) []*Case
}

// The columns of sema bench. Of a server, figures count what it did for all.
var (
	rate       = Column{Key: "rate", Head: "PAIRS/S", Figure: Rate, Show: Count, Range: true}
	p50        = Column{Key: "p50_ns", Head: "P50", Figure: P50, Show: Duration}
	p99        = Column{Key: "p99_ns", Head: "P99", Figure: P99, Show: Duration}
	longest    = Column{Key: "longest_ns", Head: "LONGEST", Figure: Longest, Show: Duration}
	evenness   = Column{Key: "p99_over_p50", Head: "P99/P50", Show: Times, Figure: Of(func(r Round) float64 { return over(float64(r.P99NS), float64(r.P50NS)) })}
	possible   = Column{Key: "of_possible", Head: "OF POSSIBLE", Figure: Possible, Show: Percent}
	clientCPU  = Column{Key: "client_cpu_ns", Head: "CPU", Figure: CPU, Show: Duration}
	allocs     = Column{Key: "allocs", Head: "ALLOCS", Figure: Allocs, Show: func(f float64) string { return fmt.Sprintf("%.1f", f) }}
	scriptTime = Column{Key: "script_ns", Head: "SCRIPT", Show: Duration, Figure: Each(func(r Round) float64 { return float64(r.ScriptNS) })}
	serverCPU  = Column{Key: "server_cpu_ns", Head: "SERVER CPU", Show: Duration, Figure: Each(func(r Round) float64 { return float64(r.ServerNS) })}
	core       = Column{Key: "core", Head: "CORE", Show: func(f float64) string { return Digits(100*f, 2) + " %" }, Figure: busy}
	calls      = Column{Key: "calls", Head: "CALLS/PERIOD", Show: Count, Figure: Of(func(r Round) float64 { return float64(r.Calls) })}
	perWaiter  = Column{Key: "bytes_waiter", Head: "BYTES/WAITER", Show: Count, Figure: Of(func(r Round) float64 { return r.BytesEach })}
	perPermit  = Column{Key: "bytes_permit", Head: "BYTES/PERMIT", Show: Count, Figure: Of(func(r Round) float64 { return r.BytesEach })}
)

// ratio is a column that compares; versus is as in Column.
func ratio(key, head string, figure Figure, versus int) Column {
	return Column{Key: key, Head: head, Figure: figure, Show: Times, Range: true, Versus: versus}
}

// busy is the part of one core that the server used; without a server, that
// the contestant did.
func busy(_ Case, r Round) float64 {
	if r.ServerNS > 0 {
		return over(float64(r.ServerNS), float64(r.ElapsedNS))
	}
	return over(float64(r.CPUNS), float64(r.ElapsedNS))
}

// cost is the server's time in scripts for a pair; without a server, the
// contestant's CPU time.
func cost(_ Case, r Round) float64 {
	if r.ScriptNS > 0 {
		return over(float64(r.ScriptNS), float64(r.Done))
	}
	return over(float64(r.CPUNS), float64(r.Done))
}

const ofRates = "\nratio: sema's rate over that of the baseline in the row"

// The columns of scenarios with turns of milliseconds; see Timed.
var lapColumns = []Column{
	{Key: "p10_ns", Head: "P10", Timed: func(t Timed) Spread { return t.P10 }, Show: Duration},
	{Key: "p50_ns", Head: "P50", Timed: func(t Timed) Spread { return t.P50 }, Show: Duration, Range: true},
	{Key: "p90_ns", Head: "P90", Timed: func(t Timed) Spread { return t.P90 }, Show: Duration},
	{Key: "script_p50_ns", Head: "SCRIPT P50", Timed: func(t Timed) Spread { return SpreadOf(t.ScriptP50NS) }, Show: Duration},
	{Key: "script_mean_ns", Head: "SCRIPT MEAN", Timed: func(t Timed) Spread { return SpreadOf(t.ScriptMeanNS) }, Show: Duration},
	{Key: "ratio", Head: "RATIO", Timed: func(t Timed) Spread { return t.Ratio }, Show: Times, Range: true, Versus: 1},
}

var scenarios = []scenario{
	{
		"alone", "acquire and release by one caller, in turns of 2 ms within one process; what the machine stood still in is left out\n" +
			"ranges: 95 % of other draws of the turns; script: of a call, at the server\n" +
			"ratio: the row's median over sema's: how many sema does meanwhile",
		lapColumns,
		func(b Bench) []*Case {
			c := &Case{Name: "goroutines=1", Workers: 1, Limit: 1, InLaps: true, Field: b.pairs(1)}
			for i := range c.Field {
				c.Field[i].Setup.Units = 0
			}
			kept := b.entry("sema, keeping", "sema")
			kept.Setup.KeepUS = 20_000
			c.Field = append(c.Field, kept)
			return []*Case{c}
		},
	},
	{
		"uncontended", "acquire and release one semaphore whose limit is the number of goroutines\n" +
			"keep: released permits are kept in the process for so long" + ofRates,
		[]Column{rate, p50, p99, clientCPU, scriptTime, allocs, ratio("ratio", "RATIO", Rate, -1)},
		func(b Bench) (cases []*Case) {
			for _, n := range b.Goroutines {
				plain, kept := b.pairs(n), b.pairs(n)
				kept[0].Name, kept[0].Setup.KeepUS, kept[0].Setup.Units = "sema, keeping", 20_000, 64
				cases = append(cases,
					&Case{Name: fmt.Sprintf("goroutines=%d", n), Workers: n, Limit: n, Field: plain},
					&Case{Name: fmt.Sprintf("goroutines=%d keep=20ms", n), Workers: n, Limit: n, Field: kept})
			}
			return cases
		},
	},
	{
		"contended", "acquire, hold and release one semaphore of limit 8\n" +
			"of possible: the rate over that of permits which lie idle for one round trip between two holders" + ofRates,
		[]Column{rate, p50, p99, evenness, possible, ratio("ratio", "RATIO", Rate, -1)},
		Bench.contended,
	},
	{
		"hand-off", "from release to acquired by another process (on memory: goroutine); limit 1, one waiter\n" +
			"ratios: sema's times over those of the baseline in the row (less is better)",
		[]Column{p50, p99, ratio("ratio", "RATIO", P50, -1), ratio("ratio_of_p99s", "RATIO OF P99s", P99, -1)},
		func(b Bench) []*Case {
			other := map[string]string{"memory": "Go channel", "file": "socket, write to read", "http": "socket, write to read", "postgres": "socket, write to read"}[b.Engine]
			if other == "" {
				other = "PUBLISH to receive"
			}
			c := &Case{Name: "limit=1", Processes: 2, Workers: 1, Limit: 1, Stamps: true, Field: []Entry{b.entry("sema", "sema"), b.entry(other, "message")}}
			if b.Engine == "memory" {
				c.Processes, c.Workers = 1, 2
			}
			return []*Case{c}
		},
	},
	{
		"cohort", "acquire and release one semaphore of limit 8, 16 goroutines in each process\n" +
			"longest: the longest wait" + ofRates,
		[]Column{rate, p50, p99, longest, scriptTime, ratio("ratio", "RATIO", Rate, -1)},
		Bench.cohorts,
	},
	{
		"newcomer", "from New to acquired by a process of one goroutine, beside another process that has all 8 permits\n" +
			"keeping: its 8 goroutines rest for 10 ms after each, and keep 20 ms; busy: its 64 pass them on without a rest",
		[]Column{p50, p99, longest},
		func(b Bench) []*Case {
			if b.Engine == "memory" { // has one process
				return nil
			}
			keeping := b.entry("sema", "newcomer")
			keeping.Setup.KeepUS = 20_000
			return []*Case{
				{Name: "keeping", Processes: 2, Workers: contendedLimit, Limit: contendedLimit, Field: []Entry{keeping}},
				{Name: "busy", Processes: 2, Workers: 64, Limit: contendedLimit, Field: []Entry{b.entry("sema", "newcomer")}},
			}
		},
	},
	{
		"many-names", "acquire and release, one goroutine on each of many semaphores of one client" + ofRates,
		[]Column{rate, p50, p99, clientCPU, scriptTime, allocs, ratio("ratio", "RATIO", Rate, -1)},
		func(b Bench) []*Case {
			kept := b.pairs(b.Names)
			kept[0].Name, kept[0].Setup.KeepUS = "sema, keeping", 20_000
			return []*Case{
				{Name: fmt.Sprintf("names=%d", b.Names), Workers: b.Names, Names: b.Names, Limit: 1, Field: b.pairs(b.Names)},
				{Name: fmt.Sprintf("names=%d keep=20ms", b.Names), Workers: b.Names, Names: b.Names, Limit: 1, Field: kept},
			}
		},
	},
	{
		"queue", "hand-offs one after the other while others wait: who was served queues again; from release to grant\n" +
			"ratio: the server's time in scripts (without a server: CPU time) over that of the first row (less is better)",
		[]Column{p50, p99, clientCPU, scriptTime, serverCPU, perWaiter, ratio("ratio", "RATIO", cost, 1)},
		func(b Bench) []*Case {
			c := &Case{Name: "limit=1", Workers: 1, Limit: 1}
			for _, n := range slices.Compact(slices.Sorted(slices.Values(b.Waiters))) {
				e := b.entry(fmt.Sprintf("sema, waiters=%d", n), "queue")
				e.Setup.Crowd = n
				c.Field = append(c.Field, e)
			}
			return []*Case{c}
		},
	},
	{
		"renew", "hold permits that are renewed, over one renewal period\n" +
			"core: CPU time of the server's main thread (without a server: of the process), as a part of one core\n" +
			"ratio: that beside the idle server (less is better)",
		[]Column{core, calls, perPermit, ratio("ratio", "RATIO", busy, 1)},
		func(b Bench) []*Case {
			held := b.entry(fmt.Sprintf("sema, permits=%d", b.Permits), "hold")
			held.Setup.Crowd = b.Permits
			period := period(b.Lease)
			return []*Case{{Name: "period=" + period.Round(time.Millisecond).String(), Workers: 1, Limit: 1, Field: []Entry{b.entry("idle", "idle"), held},
				// Whole periods only, after all permits have their turn: each is renewed once in one.
				Plan: &Plan{Rounds: 1, Round: period, Warmup: period / 2, Strict: true}}}
		},
	},
}

// cohorts are processes that share a semaphore: one alone, and more of them.
func (b Bench) cohorts() (cases []*Case) {
	processes := []int{1, 2, 4, 8}
	if b.Engine == "memory" {
		processes = processes[:1]
	}
	for _, n := range processes {
		passes := b.entry("sema, passes=16", "sema")
		field := []Entry{b.entry("sema", "sema"), passes, b.entry("Go channel", "channel")}
		if b.Engine == "postgres" {
			field[2] = b.entry("2 commits", "commits")
		}
		if b.redis() {
			field[2] = b.entry("2 no-op calls", "noop-pool")
		}
		cases = append(cases, &Case{Name: fmt.Sprintf("processes=%d", n), Processes: n, Workers: 16, Limit: contendedLimit, Field: field})
	}
	return cases
}

// contendedLimit is the limit of the scenario contended.
const contendedLimit = 8

func (b Bench) contended() (cases []*Case) {
	workers := slices.DeleteFunc(slices.Clone(b.Goroutines), func(n int) bool { return n <= contendedLimit })
	if len(workers) == 0 {
		workers = []int{64}
	}
	for _, n := range workers {
		for _, hold := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
			cases = append(cases, &Case{Name: fmt.Sprintf("goroutines=%d hold=%v", n, hold), Workers: n, Limit: contendedLimit,
				HoldUS: hold.Microseconds(), Field: []Entry{b.entry("sema", "sema"), b.entry("Go channel", "channel")}})
		}
	}
	return cases
}

// period is how often sema renews permits of that lease by default: see
// sema.Options.
func period(lease time.Duration) time.Duration { return (lease - min(lease/10, time.Second)) / 3 }

func (b Bench) entry(name, contestant string) Entry {
	return Entry{Name: name, Setup: Setup{Contestant: contestant}, Command: b.Command}
}

// pairs are the contestants where nobody has to wait: what the machine can do
// at best in the place of one acquire and one release by each worker.
func (b Bench) pairs(workers int) []Entry {
	if b.Engine == "postgres" {
		return []Entry{b.entry("sema", "sema"), b.entry("2 commits", "commits")}
	}
	if !b.redis() {
		channel := b.entry("Go channel", "channel")
		channel.Setup.Units = 64
		return []Entry{b.entry("sema", "sema"), channel}
	}
	all := []Entry{b.entry("sema", "sema"), b.entry("2 no-op calls", "noop-pool")}
	if workers > 1 {
		all = append(all, b.entry("2 no-op calls, autopipelined", "noop-autopipeline"))
	}
	return all
}

// ScenarioNames are those of all scenarios, in the order they run in.
func ScenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// Check says which value is out of range; the error is a *sema.ArgumentError.
func (b Bench) Check(p Plan) error {
	for _, name := range b.Scenarios {
		if !slices.Contains(ScenarioNames(), name) {
			return &sema.ArgumentError{What: "scenario", Value: name, Want: strings.Join(ScenarioNames(), ", ")}
		}
	}
	return cmp.Or(
		within("rounds", 1, 1000, p.Rounds),
		within("goroutines", 1, 100_000, b.Goroutines...),
		within("names", 1, 100_000, b.Names),
		within("waiters", 1, 1_000_000, b.Waiters...),
		within("permits", 1, 1_000_000, b.Permits),
		within("round", time.Millisecond, time.Hour, p.Round),
		within("warm-up", 0, time.Hour, p.Warmup),
		within("lease", time.Second, time.Hour, b.Lease),
	)
}

func within[T cmp.Ordered](what string, least, most T, values ...T) error {
	for _, v := range values {
		if v < least || v > most {
			return &sema.ArgumentError{What: what, Value: v, Want: fmt.Sprintf("%v … %v", least, most)}
		}
	}
	return nil
}

// Run measures the scenarios one after the other and reports each as soon as
// it is done.
func (b Bench) Run(ctx context.Context, r *Runner, report func(Result) error) error {
	said := r.Progress
	for _, s := range scenarios {
		if !slices.Contains(b.Scenarios, s.name) {
			continue
		}
		r.Progress = func(text string) { said(s.name + ", " + text) }
		result := Result{Scenario: s.name, About: s.about, columns: s.columns}
		for _, c := range s.cases(b) {
			if err := r.Run(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, one := range c.Contestants {
				row := Row{Case: c.Name, Who: one.Name, Baseline: !strings.HasPrefix(one.Name, "sema"), Figures: map[string]Spread{}}
				for _, k := range s.columns {
					if f := k.Of(*c, one); f != (Spread{}) {
						row.Figures[k.Key] = f
					}
				}
				result.Rows = append(result.Rows, row)
			}
		}
		if err := report(result); err != nil {
			return err
		}
	}
	return nil
}

// Table is the result for human eyes.
func (r Result) Table() string {
	rows := [][]string{{"CASE", "WHO"}}
	for _, k := range r.columns {
		rows[0] = append(rows[0], k.Head)
	}
	for _, row := range r.Rows {
		cells := []string{row.Case, row.Who}
		for _, k := range r.columns {
			cells = append(cells, k.Text(row.Figures[k.Key]))
		}
		rows = append(rows, cells)
	}
	return Table(rows)
}
