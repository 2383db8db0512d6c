// Package runner runs the scenarios: it starts a Redis server and a driver
// process, or several, for every contestant, and lets them work in turns, so
// that what slows down the machine for a while slows down all of them.
package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
	"sema/internal/measure"
)

// Runner is what is to be run. All fields are required, but for those that say
// so.
type Runner struct {
	Rounds        int
	Round, Warmup time.Duration
	Lease         time.Duration
	Scenarios     []string // names; none: all
	Contestants   []string // names; none: all. The baseline runs always
	URL           string   // of a Redis server; empty: one of its own
	Drivers       string   // directory with the drivers of other languages
	Self          []string // command that starts the Go driver
	Progress      func(line string)

	url     string
	addr    string
	rdb     *redis.Client
	id      string // in the name of every key
	results results.Run
	turn    int // of turns
	turns   int
}

// Run runs it all. A contestant that fails is recorded, and the run goes on.
func (r *Runner) Run(ctx context.Context) (results.Run, error) {
	scenarios, err := r.check()
	if err != nil {
		return results.Run{}, err
	}
	if r.url = r.URL; r.url == "" {
		url, stop, err := startServer(ctx)
		if err != nil {
			return results.Run{}, err
		}
		defer stop()
		r.url = url
	}
	o, err := redis.ParseURL(r.url)
	if err != nil {
		return results.Run{}, fmt.Errorf("the URL of Redis: %w", err)
	}
	r.addr, r.rdb = o.Addr, redis.NewClient(o)
	defer func() { _ = r.rdb.Close() }()
	info, err := r.rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return results.Run{}, fmt.Errorf("no answer from Redis: %w", err)
	}
	r.id = "peers-" + strings.ToLower(rand.Text()[:10])
	r.results = results.Run{
		Date:     time.Now().UTC().Format(time.DateOnly),
		Machine:  machine(),
		Redis:    info["Server"]["redis_version"],
		Versions: map[string]string{}, LeftOut: map[string]string{}, OwnServer: r.URL == "",
		Rounds: r.Rounds, RoundMS: r.Round.Milliseconds(), WarmupMS: r.Warmup.Milliseconds(), LeaseMS: r.Lease.Milliseconds(),
	}
	for _, s := range scenarios {
		r.turns += r.Rounds * len(r.present(s))
	}
	for _, s := range scenarios {
		if err := r.scenario(ctx, s); err != nil {
			return results.Run{}, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return r.results, nil
}

// check refuses what cannot be run, and finds the scenarios.
func (r *Runner) check() ([]Scenario, error) {
	if r.Rounds < 1 || r.Round < time.Millisecond || r.Warmup < 0 {
		return nil, fmt.Errorf("%d rounds of %v after %v: want 1 or more, of 1 ms or more, after 0 or more", r.Rounds, r.Round, r.Warmup)
	}
	for _, name := range r.Contestants {
		if _, err := peers.Find(name); err != nil {
			return nil, err
		}
	}
	if len(r.Scenarios) == 0 {
		return Scenarios, nil
	}
	var chosen []Scenario
	for _, name := range r.Scenarios {
		i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown scenario %q", name)
		}
		chosen = append(chosen, Scenarios[i])
	}
	return chosen, nil
}

// present are the contestants of a scenario that were asked for and can run
// here. Those that cannot are recorded.
func (r *Runner) present(s Scenario) []peers.Peer {
	var all []peers.Peer
	for _, p := range s.contestants() {
		if p.Name != s.baseline() && len(r.Contestants) > 0 && !slices.Contains(r.Contestants, p.Name) {
			continue
		}
		if why := r.missing(p); why != "" {
			r.results.LeftOut[p.Name] = why
			continue
		}
		all = append(all, p)
	}
	return all
}

// missing says what a contestant lacks on this machine.
func (r *Runner) missing(p peers.Peer) string {
	for _, program := range p.Needs {
		if _, err := exec.LookPath(program); err != nil {
			return "no " + program + " on this machine"
		}
	}
	if p.Driver != "" {
		if found, _ := filepath.Glob(filepath.Join(r.Drivers, p.Driver, "driver.sh")); len(found) == 0 {
			return "no driver for it"
		}
	}
	return ""
}

// scenario runs all rounds of one scenario.
func (r *Runner) scenario(ctx context.Context, s Scenario) error {
	present := r.present(s)
	result := results.Scenario{
		Name: s.Name, Processes: s.Processes, Workers: s.Workers, Limit: s.Limit, HoldUS: s.Hold.Microseconds(),
		Contestants: make([]results.Contestant, len(present)),
	}
	teams := make([]*team, len(present))
	defer func() {
		var ending sync.WaitGroup
		for _, t := range teams {
			if t != nil {
				ending.Go(t.end)
			}
		}
		ending.Wait()
		r.sweep()
	}()
	for i, p := range present {
		if err := ctx.Err(); err != nil {
			return err
		}
		result.Contestants[i] = results.Contestant{Name: p.Name, Rounds: []results.Round{}}
		teams[i] = r.startTeam(ctx, p, s, &result.Contestants[i])
	}
	var trips []float64
	for round := range r.Rounds {
		if !s.inMemory() {
			trip, err := r.roundTrip(ctx)
			if err != nil {
				return err
			}
			trips = append(trips, trip)
		}
		for k := range teams {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.play(s, round, teams[(k+round)%len(teams)])
		}
	}
	result.RoundTripNS = int64(measure.Of(trips...).Median)
	r.results.Scenarios = append(r.results.Scenarios, result)
	return nil
}

// play is one team's turn, which may be to say that it is out.
func (r *Runner) play(s Scenario, round int, t *team) {
	r.turn++
	if t.result.Failed == "" {
		if err := r.work(round, t); err != nil {
			t.fail(err)
		}
	}
	said := "failed: " + t.result.Failed
	if t.result.Failed == "" {
		said = fmt.Sprintf("%.0f/s", t.result.Rounds[round].Rate())
	}
	r.Progress(fmt.Sprintf("[%d/%d] %s, round %d of %d: %s %s", r.turn, r.turns, s.Name, round+1, r.Rounds, t.result.Name, said))
}

// work runs a team's round, and warms it up before its first.
func (r *Runner) work(round int, t *team) error {
	if round == 0 && r.Warmup > 0 {
		if _, err := t.run(r.Warmup); err != nil {
			return err
		}
	}
	done, err := t.run(r.Round)
	if err != nil {
		return err
	}
	t.result.Rounds = append(t.result.Rounds, done)
	return nil
}

// roundTrip is the median of some PINGs, in nanoseconds.
func (r *Runner) roundTrip(ctx context.Context) (float64, error) {
	trips := make([]float64, 200)
	for i := range trips {
		began := time.Now()
		if err := r.rdb.Ping(ctx).Err(); err != nil {
			return 0, fmt.Errorf("no answer from Redis: %w", err)
		}
		trips[i] = float64(time.Since(began))
	}
	return measure.Of(trips...).Median, nil
}

// sweep removes what the contestants left, for the sake of a server that is
// used for other things as well.
func (r *Runner) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	var err error
	it := r.rdb.Scan(ctx, 0, "*"+r.id+"*", 1000).Iterator()
	for it.Next(ctx) {
		err = errors.Join(err, r.rdb.Unlink(ctx, it.Val()).Err())
	}
	if err = errors.Join(err, it.Err()); err != nil {
		r.Progress("keys were left behind: " + err.Error())
	}
}
