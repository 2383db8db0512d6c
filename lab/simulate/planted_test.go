package simulate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/lab/plant"
)

var (
	starts = flag.Int("starts", 1, "for how many starting seeds each planted bug is searched; if more than one, those that take many seeds are searched as well")
	table  = flag.String("table", "", "write how many seeds each planted bug took to this file")
)

// mostSeeds bounds a search. It is the only bound: a run has so many events at
// the most, whatever the bug.
const mostSeeds = 60_000

// TestPlantedBugsAreFound builds the simulator once, with all bugs, and runs it
// with one bug at a time.
func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the simulator anew")
	}
	program := build(t)
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if out, err := run(program, 0, int(today()), 800); err != nil {
			t.Errorf("found without a bug:\n%s", out)
		}
	})
	rows := make([]string, len(planted))
	t.Run("each", func(t *testing.T) {
		for i, bug := range planted {
			if bug.seldom && *starts == 1 {
				continue
			}
			t.Run(bug.what, func(t *testing.T) {
				t.Parallel()
				var took []int
				var as []string
				for start := range *starts {
					seeds, promise := search(t, program, i+1, 1_000_000*(start+1))
					took, as = append(took, seeds), append(as, promise)
				}
				slices.Sort(took)
				slices.Sort(as)
				rows[i] = fmt.Sprintf("| %s | %s | %d | %d | %s |\n", bug.what, filepath.Base(bug.file),
					took[len(took)/2], took[len(took)-1], strings.Join(slices.Compact(as), ", "))
			})
		}
	})
	if *table != "" && !t.Failed() {
		expect.OK(t, os.WriteFile(*table, []byte(ownTable(rows)+othersTables(t)), 0o644))
	}
}

// build makes the simulator with all bugs.
func build(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	expect.OK(t, err)
	var bugs []plant.Bug
	for _, bug := range planted {
		bugs = append(bugs, plant.Bug{File: bug.file, Old: bug.old, New: bug.new})
	}
	program, err := plant.Build(root, "./simulate/run", t.TempDir(), bugs)
	expect.OK(t, err)
	return program
}

func run(program string, bug, first, seeds int) ([]byte, error) {
	cmd := exec.Command(program, "-seed", strconv.Itoa(first), "-seeds", strconv.Itoa(seeds))
	cmd.Env = plant.Switch(bug)
	return cmd.CombinedOutput()
}

var (
	failing = regexp.MustCompile(`(?m)^seed ([0-9]+): `)
	broken  = regexp.MustCompile(`(?m)^at [^ ]+: ([a-z-]+): .*\nreplay: `)
)

// search runs seeds one after the other until one fails. It returns how many that
// took, and the promise that was broken.
func search(t *testing.T, program string, bug, first int) (seeds int, promise string) {
	t.Helper()
	out, err := run(program, bug, first, mostSeeds)
	found, as := failing.FindSubmatch(out), broken.FindSubmatch(out)
	if err == nil || found == nil || as == nil {
		t.Errorf("not found: %v\n%s", err, bytes.TrimSpace(out))
		return mostSeeds, ""
	}
	seed, _ := strconv.Atoi(string(found[1]))
	t.Logf("%d seeds: %s", seed-first+1, as[0])
	return seed - first + 1, string(as[1])
}
