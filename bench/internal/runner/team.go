package runner

import (
	"fmt"
	"maps"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
	"sema/bench/internal/wire"
	"sema/internal/measure"
)

// team is the processes of one contestant in one scenario, from the first
// round to the last.
type team struct {
	drivers []*process
	result  *results.Contestant
}

// startTeam starts them all and waits until they are ready. What fails is
// written into the result, and the team then has nobody.
func (r *Runner) startTeam(p peers.Peer, s Scenario, result *results.Contestant) *team {
	t := &team{result: result}
	name := fmt.Sprintf("%s-%s-%s", r.id, s.Name, p.Name)
	for range s.Processes {
		d, err := r.launchDriver(p, s, name)
		if err != nil {
			t.fail(err)
			return t
		}
		t.drivers = append(t.drivers, d)
	}
	for _, d := range t.drivers {
		versions, err := d.ready()
		if err != nil {
			t.fail(err)
			return t
		}
		maps.Copy(r.results.Versions, versions)
	}
	return t
}

// run runs one round in all processes at once.
func (t *team) run(length time.Duration) (results.Round, error) {
	for _, d := range t.drivers {
		if err := d.tell(wire.Command{RunMS: length.Milliseconds()}); err != nil {
			// Why it ended, it said before.
			if heard := d.hear(&struct{}{}, time.Second); heard != nil {
				err = heard
			}
			return results.Round{}, err
		}
	}
	var r results.Round
	waits := measure.NewHistogram()
	for _, d := range t.drivers {
		var a wire.Answer
		if err := d.hear(&a, length+slack); err != nil {
			return results.Round{}, err
		}
		r.Done += a.Done
		r.ElapsedNS = max(r.ElapsedNS, a.ElapsedNS)
		r.HoldNS += a.HoldNS
		r.CPUNS += a.CPUNS
		r.Mallocs += a.Mallocs
		r.MaxHeld = max(r.MaxHeld, a.MaxHeld)
		for _, bar := range a.Waits {
			_ = waits.RecordValues(max(100, min(bar[0], int64(10*time.Minute))), bar[1])
		}
	}
	if waits.TotalCount() > 0 {
		r.P50NS, r.P99NS = waits.ValueAtQuantile(50), waits.ValueAtQuantile(99)
	}
	return r, nil
}

// fail records why the team is out, and ends it.
func (t *team) fail(err error) {
	t.result.Failed = err.Error()
	t.end()
}

func (t *team) end() {
	for _, d := range t.drivers {
		d.end()
	}
	t.drivers = nil
}
