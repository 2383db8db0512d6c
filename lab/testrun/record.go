package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// record is what every test did in several rounds. Times are seconds.
type record struct {
	Rounds []round          `json:"rounds"`
	Tests  map[string]*test `json:"tests"`
}

type round struct {
	Busy     bool     `json:"busy"` // beside busy loops
	Seconds  float64  `json:"seconds"`
	Failures []string `json:"failures"` // packages and tests
}

type test struct {
	Runs     int     `json:"runs"`
	Failures int     `json:"failures"`
	Longest  float64 `json:"longest_seconds"`
}

// add takes in a round.
func (r *record) add(s *summary, busy bool, took time.Duration) {
	now := round{Busy: busy, Seconds: took.Seconds(), Failures: []string{}}
	for _, p := range s.packages {
		if p.failed {
			now.Failures = append(now.Failures, p.name)
		}
	}
	for _, t := range s.tests {
		all := r.Tests[t.name]
		if all == nil {
			all = &test{}
			r.Tests[t.name] = all
		}
		all.Runs++
		all.Longest = max(all.Longest, t.took.Seconds())
		if t.failed {
			all.Failures++
			now.Failures = append(now.Failures, t.name)
		}
	}
	r.Rounds = append(r.Rounds, now)
}

// print says which tests failed how often.
func (r *record) print(w io.Writer) {
	bad := 0
	for _, n := range r.Rounds {
		if len(n.Failures) > 0 {
			bad++
		}
	}
	fmt.Fprintf(w, "\n%d of %d rounds had failures\n", bad, len(r.Rounds))
	var names []string
	for name, t := range r.Tests {
		if t.Failures > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "failed %d times of %d: %s\n", r.Tests[name].Failures, r.Tests[name].Runs, name)
	}
}

func (r *record) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// burn keeps two threads for each processor busy until it is told to stop.
func burn() (stop func()) {
	n := 2 * runtime.NumCPU()
	before := runtime.GOMAXPROCS(n + 2) // and some for what runs beside them
	var over atomic.Bool
	for range n {
		go func() {
			for !over.Load() {
			}
		}()
	}
	return func() {
		over.Store(true)
		runtime.GOMAXPROCS(before)
	}
}
