package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"
)

const (
	// openTimeout bounds a driver's start: to fill a long queue takes time.
	openTimeout = 5 * time.Minute
	// slack is what a round may take beyond its time: a driver's grace, and
	// the answer on a busy machine.
	slack = 20 * time.Second
	// quitTimeout bounds how long a driver may take to end.
	quitTimeout = 5 * time.Second
)

// Entry is a contestant in a case.
type Entry struct {
	Name  string // in the tables
	Setup Setup  // what its own setup has beside the case's
	// Command makes the command of a driver, with exec.CommandContext.
	Command func(ctx context.Context) (*exec.Cmd, error)
}

// team is the processes of one contestant in one case, from its first turn to
// the end of the case.
type team struct {
	runner  *Runner
	entry   Entry
	procs   int
	setup   Setup
	drivers []*process
	trips   []float64
}

// play starts the processes, if there are none yet, and runs a round in all of
// them.
func (t *team) play(ctx context.Context, length time.Duration) (Round, error) {
	r, err := t.round(ctx, length)
	if err != nil {
		t.end()
	}
	return r, err
}

func (t *team) round(ctx context.Context, length time.Duration) (r Round, err error) {
	if t.drivers == nil {
		if err := t.start(ctx); err != nil {
			return r, err
		}
	}
	before, err := t.runner.Store.sample(ctx)
	if err != nil {
		return r, err
	}
	for _, d := range t.drivers {
		_ = d.in.Encode(command{length.Milliseconds()}) // a driver that is gone has said why
	}
	answers := make([]Answer, len(t.drivers))
	for i, d := range t.drivers {
		if err := d.hear(&answers[i], length+slack); err != nil {
			return r, err
		}
		if err := answers[i].check(t.setup); err != nil {
			return r, err
		}
	}
	after, err := t.runner.Store.sample(ctx)
	if err != nil {
		return r, err
	}
	r = sum(length, answers...)
	r.ScriptNS, r.ServerNS, r.Calls = after.script-before.script, after.cpu-before.cpu, after.calls-before.calls
	if t.setup.Crowd > 0 {
		var all int64
		all, err = t.runner.Store.bytes(ctx, t.setup.Name)
		r.BytesEach = float64(all) / float64(t.setup.Crowd)
	}
	t.trips = append(t.trips, t.runner.Store.roundTrip(ctx))
	return r, err
}

// start starts all processes and waits until they are ready.
func (t *team) start(ctx context.Context) error {
	for i := range t.procs {
		cmd, err := t.entry.Command(ctx)
		if err != nil {
			return err
		}
		d, err := launch(cmd)
		if err != nil {
			return err
		}
		t.drivers = append(t.drivers, d)
		s := t.setup
		s.Process = i
		_ = d.in.Encode(s)
	}
	for _, d := range t.drivers {
		var r ready
		if err := d.hear(&r, openTimeout); err != nil {
			return err
		}
		maps.Copy(t.runner.Versions, r.Versions)
	}
	return nil
}

func (t *team) end() {
	var ending sync.WaitGroup
	for _, d := range t.drivers {
		ending.Go(d.end)
	}
	ending.Wait()
	t.drivers = nil
}

// sum adds up what the processes of a contestant did.
func sum(length time.Duration, answers ...Answer) Round {
	// A process that ran out of work before the time was up has not been quicker.
	r := Round{ElapsedNS: int64(length)}
	var waits [][2]int64
	var stamps []Stamp
	for i, a := range answers {
		r.add(a.Round)
		waits = append(waits, a.Waits...)
		for _, stamp := range a.Stamps {
			stamp[2] += int64(i) << 32
			stamps = append(stamps, stamp)
		}
	}
	if len(stamps) > 0 {
		waits = handOffs(stamps)
	}
	slices.SortFunc(waits, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	r.P50NS, r.P99NS, r.LongestNS = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1)
	return r
}

// handOffs are the times from each release to the next acquire by another
// worker, of one permit that goes from hand to hand.
func handOffs(stamps []Stamp) [][2]int64 {
	slices.SortFunc(stamps, func(a, b Stamp) int { return cmp.Compare(a[0], b[0]) })
	var waits [][2]int64
	for i := 1; i < len(stamps); i++ {
		if wait := stamps[i][0] - stamps[i-1][1]; wait > 0 && stamps[i][2] != stamps[i-1][2] {
			waits = append(waits, [2]int64{wait, 1})
		}
	}
	return waits
}

// quantile is the least value that a share of all values do not exceed. The
// values are sorted, each with its count.
func quantile(values [][2]int64, share float64) int64 {
	var all, below int64
	for _, v := range values {
		all += v[1]
	}
	for _, v := range values {
		if below += v[1]; float64(below) >= share*float64(all) {
			return v[0]
		}
	}
	return 0
}

// process is one driver.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	in    *json.Encoder
	out   *json.Decoder
}

// launch starts a driver. It ends with its input, which ends with the context
// of cmd; or it is killed a little later.
func launch(cmd *exec.Cmd) (*process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, quitTimeout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a driver: %w", err)
	}
	return &process{cmd, in, json.NewEncoder(in), json.NewDecoder(out)}, nil
}

// hear waits for the driver's next line and reads it into v.
func (p *process) hear(v any, timeout time.Duration) error {
	late := time.AfterFunc(timeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	var line json.RawMessage
	if err := p.out.Decode(&line); err != nil {
		return fmt.Errorf("the driver ended or said nothing in time: %w", err)
	}
	var f failure
	if err := json.Unmarshal(line, &f); err == nil && f.Error != "" {
		return errors.New(f.Error)
	}
	return json.Unmarshal(line, v)
}

// end lets the driver end, and kills it if it does not.
func (p *process) end() {
	_ = p.stdin.Close()
	late := time.AfterFunc(quitTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for line := (json.RawMessage{}); p.out.Decode(&line) == nil; { // nobody listens any more
	}
	_ = p.cmd.Wait()
}
