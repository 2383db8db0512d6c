package adaptive

import (
	"fmt"
	"time"

	"sema/internal/adapt"
)

// constant is a capacity that stays.
func constant(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// When something changes in a model in which something does, and changes again.
const (
	then  = 120 * time.Second
	later = 240 * time.Second
	end   = 360 * time.Second
)

// Expected is what the runs of a model come to: each figure is the mean of all seeds.
type Expected struct {
	Least, Most float64 // of the mean limit
	Used        float64 // of the capacity, at least
	Refused     float64 // of the time held, at the most
	Down, Up    int     // windows until the limit has followed, at the most; 0: nothing to follow
}

// Case is a model, and what is expected of a limit that adapts.
type Case struct {
	Model
	Expected
}

// Cases are the fleets and servers that limiters are tried on.
func Cases() []Case {
	of := func(name string, capacity int) Model {
		return Model{Name: name, Long: end, Of: constant(capacity), Calm: end / 6}
	}
	forty := func(name string, change func(*Model)) Model {
		m := of("40, "+name, 40)
		change(&m)
		return m
	}
	return []Case{
		{of("8", 8), Expected{Least: 7.5, Most: 8.8, Used: 0.98, Refused: 0.03}},
		{of("40", 40), Expected{Least: 39, Most: 41, Used: 0.98, Refused: 0.02}},
		{of("150", 150), Expected{Least: 146, Most: 154, Used: 0.98, Refused: 0.02}},
		{of("1, less than the smallest limit", 1), Expected{Least: 2, Most: 2, Used: 0.9, Refused: 0.6}},
		{of("1000, more than the largest limit", 1000), Expected{Least: 499, Most: 501, Used: 0.49, Refused: 0}},
		{forty("then 12, then 80", func(m *Model) { m.Of, m.Calm = steps(40, 12, 80), 0 }), Expected{Least: 30, Most: 45, Used: 0.8, Refused: 0.03, Down: 5, Up: 20}},
		{forty("and 15 of 20 processes report no longer", func(m *Model) { m.Mute = steps(0, 15, 15) }), Expected{Least: 39, Most: 41, Used: 0.98, Refused: 0.02}},
		{forty("and none reports any longer", func(m *Model) { m.Mute = steps(0, 20, 20) }), Expected{Least: 38, Most: 42, Used: 0.96, Refused: 0.03}},
		{forty("and one process of 20 calls everything bad", func(m *Model) { m.Liars = 1 }), Expected{Least: 39, Most: 41, Used: 0.98, Refused: 0.02}},
		{forty("and reports are three seconds old", func(m *Model) { m.Late = 3 * time.Second }), Expected{Least: 36, Most: 42, Used: 0.88, Refused: 0.1}},
		{forty("and slow beyond it instead of refusing", func(m *Model) { m.Slow = true }), Expected{Least: 40, Most: 60, Used: 0.98, Refused: 1}},
		{forty("and few call before many do", func(m *Model) { m.Callers, m.Calm = steps(1, callers, callers), then }), Expected{Least: 38, Most: 41, Used: 0.95, Refused: 0.02}},
		{forty("and each call is a process of its own", func(m *Model) { m.Each, m.Long = true, end/2 }), Expected{Least: 38, Most: 43, Used: 0.98, Refused: 0.04}},
		{forty("and two controllers at once", func(m *Model) { m.Leaders = 2 }), Expected{Least: 36, Most: 42, Used: 0.9, Refused: 0.04}},
		{forty("and the controller dies every half minute", func(m *Model) { m.Reign = 30 * time.Second }), Expected{Least: 34, Most: 42, Used: 0.9, Refused: 0.05}},
	}
}

// Changes reports whether the capacity changes.
func (c *Case) Changes() bool { return c.Down > 0 }

// steps is a figure that changes.
func steps(first, second, third int) func(time.Duration) int {
	return func(at time.Duration) int {
		switch {
		case at < then:
			return first
		case at < later:
			return second
		}
		return third
	}
}

// Figures are the means of many runs.
type Figures struct {
	Seeds                  int
	Mean, Deviation        float64 // of the limit
	Used, LeastUsed        float64 // of the capacity; in the run that used least
	Refused                float64 // of the time held
	Down, Up               float64 // windows until the limit has followed
	SlowestDown, SlowestUp int
}

// Row is what the runs of a case came to.
type Row struct {
	Name string
	Figures
}

// Add takes in a run.
func (f *Figures) Add(r Result, c *Case) {
	f.Seeds++
	n := float64(f.Seeds)
	into := func(mean *float64, v float64) { *mean += (v - *mean) / n }
	into(&f.Mean, r.Mean)
	into(&f.Deviation, r.Deviation)
	into(&f.Used, r.Used)
	into(&f.Refused, r.Refused)
	if f.Seeds == 1 || r.Used < f.LeastUsed {
		f.LeastUsed = r.Used
	}
	if c.Changes() {
		down, up := r.follows(then, func(s Sample) bool { return s.Limit <= s.Capacity+s.Capacity/10 }), r.follows(later, func(s Sample) bool { return s.Limit >= s.Capacity-s.Capacity/20 })
		into(&f.Down, float64(down))
		into(&f.Up, float64(up))
		f.SlowestDown, f.SlowestUp = max(f.SlowestDown, down), max(f.SlowestUp, up)
	}
}

// follows returns the number of windows from a moment until the limit is right;
// the number of remaining windows if it never is.
func (r *Result) follows(from time.Duration, as func(Sample) bool) int {
	for _, s := range r.Samples {
		if s.At > from && as(s) {
			return int((s.At - from + adapt.Window - 1) / adapt.Window)
		}
	}
	return int((end - from) / adapt.Window)
}

// Judge returns an error that names the first unexpected figure; nil if all are
// as expected.
func (f *Figures) Judge(c *Case) error {
	switch e := c.Expected; {
	case f.Mean < e.Least || f.Mean > e.Most:
		return fmt.Errorf("%s: the limit is %.1f on average, want %.1f … %.1f", c.Name, f.Mean, e.Least, e.Most)
	case f.Used < e.Used:
		return fmt.Errorf("%s: %.3f of the capacity is used, want at least %.3f", c.Name, f.Used, e.Used)
	case f.Refused > e.Refused:
		return fmt.Errorf("%s: %.3f of the time held is refused, want at most %.3f", c.Name, f.Refused, e.Refused)
	case f.Down > float64(e.Down) || f.Up > float64(e.Up):
		return fmt.Errorf("%s: the limit follows in %.1f and %.1f windows, want %d and %d", c.Name, f.Down, f.Up, e.Down, e.Up)
	}
	return nil
}

// Try runs a case of one limit that adapts, with so many seeds from the first on. Its
// error is what was not as expected.
func Try(c *Case, first uint64, seeds int) (f Figures, err error) {
	for seed := range seeds {
		fleet := NewAdapting(c.Model)
		f.Add(Run(c.Model, fleet, first+uint64(seed)), c)
		if fleet.least < smallest || fleet.most > largest {
			return f, fmt.Errorf("%s: seed %d: the limit was %d … %d, want %d … %d", c.Name, first+uint64(seed), fleet.least, fleet.most, smallest, largest)
		}
	}
	return f, f.Judge(c)
}
