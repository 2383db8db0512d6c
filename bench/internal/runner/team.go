package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
	"sema/bench/internal/wire"
)

// team is the processes of one contestant in one scenario, from the first
// round to the last.
type team struct {
	drivers []*process
	result  *results.Contestant
	addr    string // of the server, which is nobody else's business
}

// startTeam starts them all and waits until they are ready. What fails is
// written into the result, and the team then has nobody.
func (r *Runner) startTeam(ctx context.Context, p peers.Peer, s Scenario, result *results.Contestant) *team {
	t := &team{result: result, addr: r.addr}
	name := fmt.Sprintf("%s-%s-%s", r.id, s.Name, p.Name)
	for range s.Processes {
		d, err := r.launchDriver(ctx, p, s, name)
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
	// Who has nothing more to do before the time is up has not been quicker.
	r := results.Round{ElapsedNS: int64(length)}
	var waits [][2]int64
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
		r.Unserved += a.Unserved
		waits = append(waits, a.Waits...)
	}
	slices.SortFunc(waits, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	r.P50NS, r.P99NS, r.LongestNS = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1)
	return r, nil
}

// quantile is the least value that a share of all values do not exceed; the
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

// fail records why the team is out, and ends it.
func (t *team) fail(err error) {
	t.result.Failed = strings.ReplaceAll(err.Error(), t.addr, "Redis")
	t.end()
}

func (t *team) end() {
	var ending sync.WaitGroup
	for _, d := range t.drivers {
		ending.Go(d.end)
	}
	ending.Wait()
	t.drivers = nil
}
