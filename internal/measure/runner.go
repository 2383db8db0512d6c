package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Runner runs cases, each contestant in processes of its own; or, in laps, all of them
// in this one.
type Runner struct {
	Plan
	Lease    time.Duration
	Prefix   string            // of all names that the run uses; see NewPrefix
	Store    Store             // below the contestants, as far as it can be looked at
	Versions map[string]string // of languages and libraries, as the drivers tell
	Progress func(text string) // is told what goes on

	// Open opens a contestant in this process, for cases in laps.
	Open func(context.Context, Setup) (Gate, error)

	cases int
}

// NewPrefix makes a beginning of names that nobody else uses.
func NewPrefix(what string) string { return what + "-" + strings.ToLower(rand.Text()[:8]) + "-" }

// Run runs a case. What it made on the server is removed before it returns,
// also after an error or when ctx ends.
func (r *Runner) Run(ctx context.Context, c *Case) (err error) {
	r.cases++
	plan := r.Plan
	if c.Plan != nil {
		plan = *c.Plan
	}
	if c.Stamps {
		// Long enough that the next one has queued when the permit is released.
		c.HoldUS = max(1000, int64(4*r.Store.roundTrip(ctx)/1e3))
	}
	r.Progress(c.Name)
	if c.InLaps {
		return r.laps(ctx, plan, c)
	}
	teams := make([]*team, len(c.Field))
	players := make([]Player, len(c.Field))
	for i, e := range c.Field {
		s := r.setup(c, i)
		teams[i] = &team{runner: r, entry: e, procs: max(1, c.Processes), setup: s}
		players[i] = Player{e.Name, teams[i].play}
	}
	defer func() {
		var ending sync.WaitGroup
		for _, t := range teams {
			ending.Go(t.end)
		}
		ending.Wait()
		if left := r.Store.Sweep(ctx, r.Prefix); left != nil {
			err = errors.Join(err, left)
		}
	}()
	c.Contestants, err = Turns(ctx, plan, players, func(round int, s Series) {
		said := "failed: " + s.Failed
		if s.Failed == "" {
			said = Count(Rate(*c, s.Rounds[len(s.Rounds)-1])) + "/s"
		}
		r.Progress(fmt.Sprintf("%s, round %d of %d: %s %s", c.Name, round+1, plan.Rounds, s.Name, said))
	})
	var trips []float64
	for _, t := range teams {
		trips = append(trips, t.trips...)
	}
	c.RoundTripNS = int64(SpreadOf(trips...).Median)
	return err
}

// setup is what a contestant of a case is told.
func (r *Runner) setup(c *Case, contestant int) Setup {
	s := c.Field[contestant].Setup
	s.Name = r.Prefix + strconv.Itoa(r.cases) + "-" + strconv.Itoa(contestant)
	s.Limit, s.Workers, s.Names, s.HoldUS, s.Stamps = c.Limit, c.Workers, c.Names, c.HoldUS, c.Stamps
	s.LeaseMS = r.Lease.Milliseconds()
	return s
}

// slice is how long a turn is in laps.
const slice = 2 * time.Millisecond

// laps runs a case in laps, for as long as its rounds would take.
func (r *Runner) laps(ctx context.Context, plan Plan, c *Case) (err error) {
	var lanes []Lane
	defer func() {
		for _, l := range lanes {
			if l.Gate.Close != nil {
				err = errors.Join(err, l.Gate.Close())
			}
		}
		err = errors.Join(err, r.Store.Sweep(ctx, r.Prefix))
	}()
	for i, e := range c.Field {
		gate, err := r.Open(ctx, r.setup(c, i))
		lanes = append(lanes, Lane{e.Name, gate})
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	c.RoundTripNS = int64(r.Store.roundTrip(ctx))
	var all []Timed
	laps := max(1, int(time.Duration(plan.Rounds)*plan.Round/slice))
	all, c.Laps, c.Stalled, err = RunLaps(ctx, r.Store, slice, laps, lanes)
	for i := range all {
		c.Contestants = append(c.Contestants, Series{Name: lanes[i].Name, Timed: &all[i]})
	}
	return err
}
