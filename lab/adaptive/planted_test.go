package adaptive

import (
	"testing"

	"sema/lab/plant"
)

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
