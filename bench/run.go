package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema/internal/fixture/local"
	"sema/internal/measure"
	"sema/lab/page"
)

// scenario is the same work for all contestants of some kinds.
type scenario struct {
	name, title               string
	processes, workers, limit int
	hold                      time.Duration
	kinds                     []kind
}

// inLaps are the scenarios with one caller of each contestant in one process, in turns
// of milliseconds: so of those in Go only.
var inLaps = []string{"alone", "memory-alone"}

var scenarios = []scenario{
	{"alone", "One caller, pair by pair", 1, 1, 1, 0, []kind{semaphore, lock, yardstick}},
	{"uncontended", "One caller, limit 1", 1, 1, 1, 0, []kind{semaphore, lock, yardstick}},
	{"64-of-64", "64 callers, limit 64", 1, 64, 64, 0, []kind{semaphore, yardstick}},
	{"512-of-512", "512 callers, limit 512", 1, 512, 512, 0, []kind{semaphore, yardstick}},
	{"64-of-8-hold-1ms", "64 callers, each holds 1 ms", 1, 64, 8, time.Millisecond, []kind{semaphore}},
	{"512-of-8-hold-1ms", "512 callers, each holds 1 ms", 1, 512, 8, time.Millisecond, []kind{semaphore}},
	{"64-of-8-hold-10ms", "64 callers, each holds 10 ms", 1, 64, 8, 10 * time.Millisecond, []kind{semaphore}},
	{"512-of-8-hold-10ms", "512 callers, each holds 10 ms", 1, 512, 8, 10 * time.Millisecond, []kind{semaphore}},
	{"64-of-8", "64 callers in one process", 1, 64, 8, 0, []kind{semaphore}},
	{"4x16-of-8", "4 processes of 16 callers", 4, 16, 8, 0, []kind{semaphore}},
	{"4x256-of-8", "4 processes of 256 callers", 4, 256, 8, 0, []kind{semaphore}},
	{"locks", "8 callers, limit 1", 1, 8, 1, 0, []kind{lock}},
	{"memory-alone", "One caller, limit 1, in turns of milliseconds", 1, 1, 1, 0, []kind{inProcess}},
	{"memory-uncontended", "One caller, limit 1", 1, 1, 1, 0, []kind{inProcess}},
	{"memory-64-of-8", "64 callers, limit 8", 1, 64, 8, 0, []kind{inProcess}},
}

// memoryPairs is how many pairs are timed at once within one process.
const memoryPairs = 100

// drivers are the processes that know contestants of other languages: how they
// are made ready, and started, in their own folders. See measure.Setup.
var drivers = map[string]struct{ build, start []string }{
	"java": {[]string{"mvn", "-q", "-B", "dependency:copy-dependencies"}, []string{"java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", "target/dependency/*", "Driver.java"}},
	"node": {[]string{"npm", "ci", "--silent", "--no-audit", "--no-fund"}, []string{"node", "driver.js"}},
}

// results is what a run found, as it is kept in results.json.
type results struct {
	Date      string            `json:"date"`
	Machine   machine           `json:"machine"`
	Redis     string            `json:"redis"`      // version of the server
	OwnServer bool              `json:"own_server"` // started for the run, on this machine
	Versions  map[string]string `json:"versions"`   // of languages and libraries, as the drivers tell
	Rounds    int               `json:"rounds"`
	RoundMS   int64             `json:"round_ms"`
	WarmupMS  int64             `json:"warmup_ms"`
	LeaseMS   int64             `json:"lease_ms"`
	LeftOut   map[string]string `json:"left_out"` // contestants, and why
	Scenarios []*measure.Case   `json:"scenarios"`
}

// run is what is to be run.
type run struct {
	plan                   measure.Plan
	lease                  time.Duration
	scenarios, contestants []string // none: all; sema runs always
	url                    string   // of a Redis server; "": one of its own
	out                    string   // file for the results; "": none. part has the results so far
	goOn                   bool     // go on from the results of a stopped run
	progress               func(text string)

	built    map[string]error    // of drivers
	betweens map[string]*between // by contestant
}

func (r *run) do(ctx context.Context) (*results, error) {
	chosen, err := r.chosen()
	if err != nil {
		return nil, err
	}
	res := &results{
		Date: time.Now().UTC().Format(time.DateOnly), Machine: thisMachine(), OwnServer: r.url == "",
		Versions: map[string]string{}, LeftOut: map[string]string{},
		Rounds: r.plan.Rounds, RoundMS: r.plan.Round.Milliseconds(), WarmupMS: r.plan.Warmup.Milliseconds(), LeaseMS: r.lease.Milliseconds(),
	}
	if r.url == "" {
		url, stop, err := startServer(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
		r.url = url
	}
	defer r.endBetweens()
	rdb, err := connect(ctx, r.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rdb.Close() }()
	runner := measure.Runner{
		Plan: r.plan, Lease: r.lease, Prefix: measure.NewPrefix("peers"), Store: measure.Store{Redis: rdb},
		Versions: res.Versions, Progress: r.progress, Open: openPeer,
	}
	if res.Redis, err = runner.Store.Version(ctx); err != nil {
		return nil, err
	}
	if err := r.takeUp(res); err != nil {
		return nil, err
	}
	for _, s := range chosen {
		if res.find(s.name) != nil {
			continue
		}
		c := &measure.Case{Name: s.name, Processes: s.processes, Workers: s.workers, Limit: s.limit, HoldUS: s.hold.Microseconds(), InLaps: slices.Contains(inLaps, s.name)}
		c.Field = r.field(ctx, s, res.LeftOut)
		if err := runner.Run(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for i := range c.Contestants { // where the server was is nobody else's business
			c.Contestants[i].Failed = strings.ReplaceAll(c.Contestants[i].Failed, rdb.Options().Addr, "Redis")
		}
		res.Scenarios = append(res.Scenarios, c)
		if err := r.keep(res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// part is the file with the results so far.
func (r *run) part() string { return r.out + ".part" }

// keep writes down what was found so far.
func (r *run) keep(res *results) error {
	if r.out == "" {
		return nil
	}
	return res.save(r.part())
}

// takeUp takes what a run that was stopped has found, if this one is to go on with it. That
// one must have been one like this.
func (r *run) takeUp(res *results) error {
	if !r.goOn {
		return nil
	}
	was, err := load(r.part())
	if err != nil {
		return err
	}
	now := *res
	if now.Redis != was.Redis || now.OwnServer != was.OwnServer || now.Rounds != was.Rounds || now.RoundMS != was.RoundMS ||
		now.WarmupMS != was.WarmupMS || now.LeaseMS != was.LeaseMS || now.Machine.CPU != was.Machine.CPU || now.Machine.Cores != was.Machine.Cores {
		return fmt.Errorf("%s is of another machine or Redis, or of other rounds: begin anew without --go-on, or run as it did", r.part())
	}
	res.Date, res.Machine, res.Scenarios = was.Date, was.Machine, was.Scenarios
	maps.Copy(res.Versions, was.Versions)
	maps.Copy(res.LeftOut, was.LeftOut)
	return nil
}

func (r *run) chosen() ([]scenario, error) {
	for _, name := range r.contestants {
		if _, err := find(name); err != nil {
			return nil, err
		}
	}
	if len(r.scenarios) == 0 {
		return scenarios, nil
	}
	var chosen []scenario
	for _, name := range r.scenarios {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown scenario %q", name)
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

// field is who takes part in a scenario, sema first.
func (r *run) field(ctx context.Context, s scenario, leftOut map[string]string) (entries []measure.Entry) {
	for _, p := range all {
		base := p.Name == "sema" && s.kinds[0] != inProcess || p.Name == "sema-memory" && s.kinds[0] == inProcess
		if !base && (!slices.Contains(s.kinds, p.kind) || len(r.contestants) > 0 && !slices.Contains(r.contestants, p.Name)) {
			continue
		}
		if p.driver != "" && slices.Contains(inLaps, s.name) {
			continue
		}
		if p.driver != "" {
			if err := r.build(ctx, p.driver); err != nil {
				leftOut[p.Name] = strings.Join(strings.Fields(err.Error()), " ")
				continue
			}
		}
		e := measure.Entry{Name: p.Name, Setup: measure.Setup{Contestant: p.Name, URL: r.url}, Command: func(ctx context.Context) (*exec.Cmd, error) { return start(ctx, p.driver) }}
		if b := r.between(ctx, p.Name); b != nil {
			if b.err != nil {
				leftOut[p.Name] = strings.Join(strings.Fields(b.err.Error()), " ")
				continue
			}
			e.Setup.URL = b.url
		}
		if p.kind == inProcess {
			e.Setup.Units = memoryPairs
		}
		entries = append(entries, e)
	}
	return entries
}

// build makes a driver of another language ready, once.
func (r *run) build(ctx context.Context, driver string) error {
	if err, done := r.built[driver]; done {
		return err
	}
	d := drivers[driver]
	cmd := exec.CommandContext(ctx, d.build[0], d.build[1:]...)
	cmd.Dir = driver
	said, err := cmd.CombinedOutput()
	if err == nil {
		_, err = exec.LookPath(d.start[0])
	} else if len(said) > 0 {
		err = fmt.Errorf("%s: %w: %.200s", strings.Join(d.build, " "), err, said)
	}
	if r.built == nil {
		r.built = map[string]error{}
	}
	r.built[driver] = err
	return err
}

// start makes the command of a driver: this program, or one in another
// language.
func start(ctx context.Context, driver string) (*exec.Cmd, error) {
	self, err := os.Executable()
	command := []string{self, "driver"}
	if driver != "" {
		command = drivers[driver].start
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = driver, os.Stderr
	return cmd, err
}

// startServer runs a redis-server that keeps nothing on disk. It returns its
// URL, and what ends it.
func startServer(ctx context.Context) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_ = l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	s, err := local.Redis(ctx, "--port", port, "--bind", host)
	if err != nil {
		return "", nil, err
	}
	return "redis://" + l.Addr().String(), s.Stop, nil
}

// machine is where a run was, without its name.
type machine struct {
	OS     string  `json:"os"`
	Kernel string  `json:"kernel"`
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Memory int64   `json:"memory_gib"`
	Load   float64 `json:"load_before"` // processes that wanted a core in the minute before
}

// thisMachine describes this one. What cannot be found out stays empty.
func thisMachine() machine {
	m := machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	word := func(path, after, before string) string {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), after)
		found, _, _ := strings.Cut(rest, before)
		return strings.TrimSpace(strings.TrimLeft(found, "\t: "))
	}
	m.Kernel = word("/proc/sys/kernel/osrelease", "", "-") // without the builder's marks
	m.CPU = word("/proc/cpuinfo", "model name", "\n")
	kib, _ := strconv.ParseInt(word("/proc/meminfo", "MemTotal:", "kB"), 10, 64)
	m.Memory = (kib + 1<<19) >> 20
	m.Load, _ = strconv.ParseFloat(word("/proc/loadavg", "", " "), 64)
	return m
}

func load(path string) (*results, error) {
	var r results
	if err := page.Load(path, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

func (r *results) save(path string) error { return page.Save(path, r, " ") }
