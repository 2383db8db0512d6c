package adaptive

import (
	"flag"
	"testing"
	"time"

	"sema/lab/plant"
)

var seeds = flag.Int("seeds", 1, "from how many seeds each case is run")

// expected is what each run of a model comes to.
type expected struct {
	least, most float64 // of the mean limit
	used        float64 // of the capacity, at least
	refused     float64 // of the time held, at the most
	down, up    int     // windows until the limit has followed, at the most; 0: nothing to follow
}

// constant is a capacity that stays.
func constant(n int) func(time.Duration) int { return steps(n, n, n) }

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

// A fleet on each kind of server, in virtual time.
func TestFleets(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity int
		change   func(*model)
		expected
	}{
		{"8", 8, nil, expected{least: 7.5, most: 8.8, used: 0.98, refused: 0.03}},
		{"40", 40, nil, expected{least: 39, most: 41, used: 0.98, refused: 0.02}},
		{"150", 150, nil, expected{least: 146, most: 154, used: 0.98, refused: 0.02}},
		{"1, less than the smallest limit", 1, nil, expected{least: 2, most: 2, used: 0.9, refused: 0.6}},
		{"1000, more than the largest limit", 1000, nil, expected{least: 499, most: 501, used: 0.49}},
		{"then 12, then 80", 40, func(m *model) { m.of, m.calm = steps(40, 12, 80), 0 }, expected{least: 30, most: 45, used: 0.8, refused: 0.03, down: 5, up: 20}},
		{"and 15 of 20 processes report no longer", 40, func(m *model) { m.mute = steps(0, 15, 15) }, expected{least: 39, most: 41, used: 0.98, refused: 0.02}},
		{"and none reports any longer", 40, func(m *model) { m.mute = steps(0, 20, 20) }, expected{least: 38, most: 42, used: 0.96, refused: 0.03}},
		{"and one process of 20 calls everything bad", 40, func(m *model) { m.liars = 1 }, expected{least: 39, most: 41, used: 0.98, refused: 0.02}},
		{"and reports are three seconds old", 40, func(m *model) { m.late = 3 * time.Second }, expected{least: 36, most: 42, used: 0.88, refused: 0.1}},
		{"and slow beyond it instead of refusing", 40, func(m *model) { m.slow = true }, expected{least: 40, most: 60, used: 0.98, refused: 1}},
		{"and few call before many do", 40, func(m *model) { m.callers, m.calm = steps(1, callers, callers), then }, expected{least: 38, most: 41, used: 0.95, refused: 0.02}},
		{"and each call is a process of its own", 40, func(m *model) { m.each, m.long = true, end/2 }, expected{least: 38, most: 43, used: 0.98, refused: 0.04}},
		{"and two controllers at once", 40, func(m *model) { m.leaders = 2 }, expected{least: 36, most: 42, used: 0.9, refused: 0.04}},
		{"and the controller dies every half minute", 40, func(m *model) { m.reign = 30 * time.Second }, expected{least: 34, most: 42, used: 0.9, refused: 0.05}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := model{long: end, of: constant(c.capacity), calm: end / 6}
			if c.change != nil {
				c.change(&m)
			}
			for seed := range *seeds {
				r := run(m, uint64(1+seed))
				t.Logf("%+v", r)
				switch {
				case r.least < smallest || r.most > largest:
					t.Errorf("the limit was %d … %d, want %d … %d", r.least, r.most, smallest, largest)
				case r.mean < c.least || r.mean > c.most:
					t.Errorf("the limit is %.1f on average, want %.1f … %.1f", r.mean, c.least, c.most)
				case r.used < c.used:
					t.Errorf("%.3f of the capacity is used, want at least %.3f", r.used, c.used)
				case r.refused > c.refused:
					t.Errorf("%.3f of the time held is refused, want at most %.3f", r.refused, c.refused)
				case c.down > 0 && (r.down == 0 || r.down > c.down || r.up == 0 || r.up > c.up):
					t.Errorf("the limit follows in %d and %d windows, want %d and %d", r.down, r.up, c.down, c.up)
				}
			}
		})
	}
}

const (
	controller = "internal/adapt/adapt.go"
	simulated  = "lab/adaptive/adapting.go"
)

// Bugs that TestFleets has to find.
var bugs = map[string]plant.Bug{
	"calls are counted, and not the time":      {File: simulated, Old: "f.totals[p].Bad += took.Microseconds()", New: "f.totals[p].Bad += 100_000"},
	"no pause after a cut":                     {File: controller, Old: "case now < c.pause:", New: "case false:"},
	"what is seen in a pause extends it":       {File: controller, Old: "\t\td.Why = \"waits for the effect of the last cut\"", New: "\t\tif d.Bad > tolerated {\n\t\t\tc.pause = now + pause\n\t\t}"},
	"it grows though nobody waits":             {File: controller, Old: "case waited == 0:", New: "case false:"},
	"nobody is left out":                       {File: controller, Old: "if n := len(shares); n >= minClients {", New: "if n := len(shares); n < 0 {"},
	"those with most that is bad are left out": {File: controller, Old: "cmp.Compare(b.part(), a.part())", New: "cmp.Compare(b.good+b.bad, a.good+a.bad)"},
	"a cut goes below the range":               {File: controller, Old: "max(c.Min, min(limit-1,", New: "max(0, min(limit-1,"},
	"it grows beyond the range":                {File: controller, Old: "return min(next, c.Max),", New: "return next,"},
	"it never looks beyond its last cut":       {File: controller, Old: "if c.clean%4 != 0 {", New: "if c.clean > 0 {"},
	"it always goes slowly":                    {File: controller, Old: "case c.clean > 8:", New: "case false:"},
}

func TestPlantedBugsAreFound(t *testing.T) {
	build := func(root, dir string, bugs []plant.Bug) (string, error) {
		return plant.BuildTests(root, "./adaptive", dir, bugs)
	}
	plant.Each(t, bugs, build, []string{"-test.run", "TestFleets"}, func(t *testing.T, out []byte, err error) {
		if err == nil {
			t.Errorf("not found\n%s", out)
		}
		t.Logf("%s", out)
	})
}
