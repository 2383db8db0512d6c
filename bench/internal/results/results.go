// Package results is what a run found, as it is kept in results.json, and the
// few figures that are made of it.
package results

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"sema/internal/measure"
)

// Run is one run of the bench.
type Run struct {
	Date      string            `json:"date"`
	Machine   Machine           `json:"machine"`
	Redis     string            `json:"redis"`      // version of the server
	OwnServer bool              `json:"own_server"` // started for the run, on this machine
	Versions  map[string]string `json:"versions"`   // of languages and libraries, as the drivers tell
	Rounds    int               `json:"rounds"`
	RoundMS   int64             `json:"round_ms"`
	WarmupMS  int64             `json:"warmup_ms"`
	LeaseMS   int64             `json:"lease_ms"`
	LeftOut   map[string]string `json:"left_out"` // contestants, and why
	Scenarios []Scenario        `json:"scenarios"`
}

// Machine is where it ran.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_gib"`

	// Load is how many processes wanted a core in the minute before the run: 0
	// on a machine that does nothing else, and where it is not known.
	Load float64 `json:"load_before"`
}

// Scenario is the same work for all contestants that take part.
type Scenario struct {
	Name        string       `json:"name"`
	Processes   int          `json:"processes"`
	Workers     int          `json:"workers"` // of each process
	Limit       int          `json:"limit"`
	HoldUS      int64        `json:"hold_us"`
	RoundTripNS int64        `json:"round_trip_ns"` // median of PINGs at the rounds' beginnings; 0: no Redis
	Contestants []Contestant `json:"contestants"`
}

// Contestant is what one of them did.
type Contestant struct {
	Name   string  `json:"name"`
	Failed string  `json:"failed,omitempty"` // why there are fewer rounds than were to be
	Rounds []Round `json:"rounds"`
}

// Round is what all processes of a contestant did in one round.
type Round struct {
	Done      int64  `json:"done"`
	ElapsedNS int64  `json:"elapsed_ns"` // of the slowest process
	HoldNS    int64  `json:"hold_ns"`
	P50NS     int64  `json:"p50_ns"` // waits; 0: not measured
	P99NS     int64  `json:"p99_ns"`
	LongestNS int64  `json:"longest_ns"`
	Unserved  int64  `json:"unserved,omitempty"` // who had to be sent away at the end
	CPUNS     int64  `json:"cpu_ns"`             // of all processes, without Redis
	Mallocs   uint64 `json:"mallocs,omitempty"`
	MaxHeld   int64  `json:"max_held,omitempty"` // by one process
}

// Rate is pairs of acquire and release in a second.
func (r Round) Rate() float64 {
	if r.ElapsedNS == 0 {
		return 0
	}
	return float64(r.Done) * float64(time.Second) / float64(r.ElapsedNS)
}

// PerPair divides what was used in the round by what was done.
func (r Round) PerPair(total float64) float64 {
	if r.Done == 0 {
		return 0
	}
	return total / float64(r.Done)
}

// Spread is the spread of a figure over the rounds.
func (c Contestant) Spread(figure func(Round) float64) measure.Spread {
	all := make([]float64, len(c.Rounds))
	for i, r := range c.Rounds {
		all[i] = figure(r)
	}
	return measure.Of(all...)
}

// Rate is the spread of the rounds' rates.
func (c Contestant) Rate() measure.Spread { return c.Spread(Round.Rate) }

// MaxHeld is the most permits that one process held at once.
func (c Contestant) MaxHeld() int64 {
	var most int64
	for _, r := range c.Rounds {
		most = max(most, r.MaxHeld)
	}
	return most
}

// Unserved is how many callers were sent away in all rounds.
func (c Contestant) Unserved() int64 {
	var all int64
	for _, r := range c.Rounds {
		all += r.Unserved
	}
	return all
}

// Ratio is the spread of c's rate over other's, taken round by round: what
// slowed down the machine for a while slowed down both.
func (c Contestant) Ratio(other Contestant) measure.Spread {
	var ratios []float64
	for i := range min(len(c.Rounds), len(other.Rounds)) {
		if rate := other.Rounds[i].Rate(); rate > 0 {
			ratios = append(ratios, c.Rounds[i].Rate()/rate)
		}
	}
	return measure.Of(ratios...)
}

// Possible is the spread of a contestant's rate over the rate that nobody can
// exceed: as if every permit were held, as long as it really was, and passed
// on in one round trip, at once and for ever.
func (s Scenario) Possible(c Contestant) measure.Spread {
	return c.Spread(func(r Round) float64 {
		most := float64(s.Limit) * float64(time.Second) / (r.PerPair(float64(r.HoldNS)) + float64(s.RoundTripNS))
		return r.Rate() / most
	})
}

// Load reads results.json.
func Load(path string) (Run, error) {
	var r Run
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Save writes results.json.
func (r Run) Save(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
