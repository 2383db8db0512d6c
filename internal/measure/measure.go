// Package measure times the same work on several contestants side by side. On
// a busy machine a figure means little, and a ratio of two separate runs means
// no more. So every round runs all contestants one after the other. What is
// reported is the median of the rounds with their spread; ratios are taken
// round by round. Single pairs are told apart by turns of milliseconds: see RunLaps.
//
// Two programs use it. sema bench measures sema beside the best that its server
// can do. The module bench measures sema beside other semaphores and locks.
// Both start a process for each contestant (Setup is its input) and let a
// Runner give them their turns.
package measure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Round is what one contestant did in one round, in all its processes. Zero
// means that a figure was not measured.
type Round struct {
	Done      int64   `json:"done"`       // pairs of acquire and release
	ElapsedNS int64   `json:"elapsed_ns"` // of the slowest process
	HoldNS    int64   `json:"hold_ns"`    // all holds together, as really slept
	P50NS     int64   `json:"p50_ns"`     // of the waits
	P99NS     int64   `json:"p99_ns"`
	LongestNS int64   `json:"longest_ns"`
	Unserved  int64   `json:"unserved,omitempty"` // callers that were sent away at the end
	CPUNS     int64   `json:"cpu_ns"`             // of all processes, without the server
	Mallocs   uint64  `json:"mallocs,omitempty"`  // heap objects; Go only
	MaxHeld   int64   `json:"max_held,omitempty"` // most permits that one process held at once
	ScriptNS  int64   `json:"script_ns,omitempty"`
	ServerNS  int64   `json:"server_ns,omitempty"`  // CPU time of the thread that runs commands
	Calls     int64   `json:"calls,omitempty"`      // of scripts
	BytesEach float64 `json:"bytes_each,omitempty"` // of a server's memory, for each waiter or permit that stays
}

// add adds what others did at the same time.
func (r *Round) add(o Round) {
	r.Done += o.Done
	r.HoldNS += o.HoldNS
	r.Unserved += o.Unserved
	r.CPUNS += o.CPUNS
	r.Mallocs += o.Mallocs
	r.ElapsedNS, r.MaxHeld = max(r.ElapsedNS, o.ElapsedNS), max(r.MaxHeld, o.MaxHeld)
}

// Series is what one contestant did in all rounds.
type Series struct {
	Name   string  `json:"name"`
	Failed string  `json:"failed,omitempty"` // why there are fewer rounds than were to be
	Rounds []Round `json:"rounds,omitempty"`
	Timed  *Timed  `json:"timed,omitempty"` // of a case in laps, which has no rounds
}

// Case is the same work for all its contestants, and what they did. The first
// contestant is the one that the others are compared with.
type Case struct {
	Name        string   `json:"name"`
	Processes   int      `json:"processes"`
	Workers     int      `json:"workers"` // of each process
	Limit       int      `json:"limit"`
	HoldUS      int64    `json:"hold_us"`
	RoundTripNS int64    `json:"round_trip_ns"`     // median of PINGs; 0: no server
	Laps        int      `json:"laps,omitempty"`    // of a case in laps
	Stalled     int      `json:"stalled,omitempty"` // laps that do not count, because the machine stood still
	Contestants []Series `json:"contestants"`

	InLaps bool    `json:"-"` // one worker of each contestant, in turns of milliseconds within one process; see RunLaps
	Names  int     `json:"-"` // semaphores that the workers are spread over; 0 means 1
	Stamps bool    `json:"-"` // the waits are from release to acquire, across processes
	Plan   *Plan   `json:"-"` // nil: the runner's
	Field  []Entry `json:"-"` // the contestants
}

// Series finds a contestant. It has no rounds if it did not take part.
func (c Case) Series(name string) Series {
	for _, s := range c.Contestants {
		if s.Name == name {
			return s
		}
	}
	return Series{Name: name}
}

// Figure is what is made of a round.
type Figure func(Case, Round) float64

// Rate is pairs of acquire and release in a second.
func Rate(_ Case, r Round) float64 { return over(float64(r.Done)*1e9, float64(r.ElapsedNS)) }

// Possible is the rate over the one that nobody can exceed: as if every permit
// were held as long as it really was, and passed on in one round trip, at once
// and for ever.
func Possible(c Case, r Round) float64 {
	if c.HoldUS == 0 {
		return 0
	}
	cycle := over(float64(r.HoldNS), float64(r.Done)) + float64(c.RoundTripNS)
	return Rate(c, r) * cycle / 1e9 / float64(c.Limit)
}

// Figures that are in the rounds as they are.
var (
	P50     = Of(func(r Round) float64 { return float64(r.P50NS) })
	P99     = Of(func(r Round) float64 { return float64(r.P99NS) })
	Longest = Of(func(r Round) float64 { return float64(r.LongestNS) })
)

// Figures for each pair: nanoseconds of the contestant's CPU time, of time that
// passed, and heap objects.
var (
	CPU    = Each(func(r Round) float64 { return float64(r.CPUNS) })
	Took   = Each(func(r Round) float64 { return float64(r.ElapsedNS) })
	Allocs = Each(func(r Round) float64 { return float64(r.Mallocs) })
)

// Each divides a figure by the pairs that were done.
func Each(figure func(Round) float64) Figure {
	return func(_ Case, r Round) float64 { return over(figure(r), float64(r.Done)) }
}

// Of takes a figure as it is.
func Of(figure func(Round) float64) Figure {
	return func(_ Case, r Round) float64 { return figure(r) }
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Spread is the median of some figures, with the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf makes the spread of figures; of none it is zero.
func SpreadOf(figures ...float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return Spread{Median: middle, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Spread is the spread of a figure over the rounds.
func (c Case) Spread(s Series, figure Figure) Spread {
	all := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		all[i] = figure(c, r)
	}
	return SpreadOf(all...)
}

// Ratio is the spread of a's figure over b's, taken round by round: what slowed
// down the machine for a while slowed down both.
func (c Case) Ratio(a, b Series, figure Figure) Spread {
	var ratios []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		if below := figure(c, b.Rounds[i]); below > 0 {
			ratios = append(ratios, figure(c, a.Rounds[i])/below)
		}
	}
	return SpreadOf(ratios...)
}

// Plan says how much to run.
type Plan struct {
	Rounds        int           // 1 or more
	Round, Warmup time.Duration // of each contestant; it warms up once, uncounted
	Strict        bool          // the first failure ends the run
}

// Player is somebody who has a turn in every round.
type Player struct {
	Name string
	Play func(ctx context.Context, length time.Duration) (Round, error)
}

// Turns lets all players play in every round, each round beginning with another
// one. A player that fails gets no further turn. The others go on, unless the
// plan is strict. said is called after each turn; nil is allowed.
func Turns(ctx context.Context, plan Plan, players []Player, said func(round int, s Series)) ([]Series, error) {
	if plan.Rounds < 1 || plan.Round <= 0 || plan.Warmup < 0 {
		return nil, fmt.Errorf("%d rounds of %v after %v: want 1 or more, above 0, after 0 or more", plan.Rounds, plan.Round, plan.Warmup)
	}
	all := make([]Series, len(players))
	for i, p := range players {
		all[i] = Series{Name: p.Name, Rounds: []Round{}}
	}
	for round := range plan.Rounds {
		for k := range players {
			i := (k + round) % len(players)
			if all[i].Failed == "" {
				r, err := turn(ctx, plan, round, players[i])
				switch {
				case ctx.Err() != nil:
					return nil, ctx.Err() // whatever broke, broke of that
				case err != nil && plan.Strict:
					return nil, fmt.Errorf("%s: %w", players[i].Name, err)
				case err != nil:
					all[i].Failed = strings.Join(strings.Fields(err.Error()), " ")
				default:
					all[i].Rounds = append(all[i].Rounds, r)
				}
			}
			if said != nil {
				said(round, all[i])
			}
		}
	}
	return all, nil
}

func turn(ctx context.Context, plan Plan, round int, p Player) (Round, error) {
	if round == 0 && plan.Warmup > 0 {
		if _, err := p.Play(ctx, plan.Warmup); err != nil {
			return Round{}, err
		}
	}
	return p.Play(ctx, plan.Round)
}
