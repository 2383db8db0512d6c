package adapt_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sema/lab/expect"
	"sema/lab/plant"
)

const (
	controller = "internal/adapt/adapt.go"
	fleet      = "lab/adaptive/adapting.go"
)

// Bugs that TestFleets has to find.
var bugs = map[string]plant.Bug{
	"calls are counted, and not the time":      {File: fleet, Old: "a.totals[p].Bad += took.Microseconds()", New: "a.totals[p].Bad += 100_000"},
	"no pause after a cut":                     {File: controller, Old: "case now < c.pause:", New: "case false:"},
	"what is seen in a pause extends it":       {File: controller, Old: "\t\td.Why = \"waits for the effect of the last cut\"", New: "\t\tif d.Bad > tolerated {\n\t\t\tc.pause = now + pause\n\t\t}"},
	"it grows though nobody waits":             {File: controller, Old: "case waited == 0:", New: "case false:"},
	"nobody is left out":                       {File: controller, Old: "if n := len(shares); n >= fewest {", New: "if n := len(shares); n < 0 {"},
	"those with most that is bad are left out": {File: controller, Old: "cmp.Compare(b.part(), a.part())", New: "cmp.Compare(b.good+b.bad, a.good+a.bad)"},
	"a cut goes below the range":               {File: controller, Old: "max(c.Min, min(limit-1,", New: "max(0, min(limit-1,"},
	"it grows beyond the range":                {File: controller, Old: "return min(next, c.Max),", New: "return next,"},
	"it never looks beyond its last cut":       {File: controller, Old: "if c.clean%4 != 0 {", New: "if c.clean > 0 {"},
	"it always goes slowly":                    {File: controller, Old: "case c.clean > 8:", New: "case false:"},
}

func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	root, err := filepath.Abs("../..")
	expect.OK(t, err)
	names, all := slices.Sorted(maps.Keys(bugs)), []plant.Bug(nil)
	for _, name := range names {
		all = append(all, bugs[name])
	}
	program, err := plant.Build(root, "./lab/adaptive/run", t.TempDir(), all)
	expect.OK(t, err)
	for i := range len(bugs) + 1 {
		what := "none"
		if i > 0 {
			what = names[i-1]
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, "-seeds", "1")
			cmd.Env = plant.Switch(i)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (i > 0) {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
