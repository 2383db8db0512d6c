package simulate

import (
	"bytes"
	"encoding/json"
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

	"sema/lab/expect"
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
		if out, err := run(program, 0, 1, 100); err != nil {
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

// build makes the simulator with all bugs. SEMA_PLANTED picks one by its number,
// counted from 1; with 0 there is none.
func build(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	expect.OK(t, err)
	dir, replace := t.TempDir(), map[string]string{}
	put := func(path, text string) {
		name := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		expect.OK(t, os.WriteFile(name, []byte(text), 0o600))
		replace[filepath.Join(root, path)] = name
	}
	files := map[string][]mutant{}
	for i, bug := range planted {
		files[bug.file] = append(files[bug.file], mutant{i + 1, bug.old, bug.new})
	}
	packages := map[string]bool{}
	for path, mutants := range files {
		source, err := os.ReadFile(filepath.Join(root, path))
		expect.OK(t, err)
		text, err := plant(source, mutants)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		put(path, text)
		if p := filepath.Dir(path); !packages[p] {
			packages[p] = true
			put(p+"/planted.go", "package "+filepath.Base(p)+"\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar planted, _ = strconv.Atoi(os.Getenv(\"SEMA_PLANTED\"))\n")
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program := filepath.Join(dir, "simulate.exe")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./lab/simulate/run")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func run(program string, bug, first, seeds int) ([]byte, error) {
	cmd := exec.Command(program, "-seed", strconv.Itoa(first), "-seeds", strconv.Itoa(seeds))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "SEMA_PLANTED="+strconv.Itoa(bug))
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
