package simulate

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

const page = "../../docs/data/planted-bugs.md"

var update = flag.Bool("update", false, "write the other suites' bugs, and the files of the simulator's, anew into the page of planted bugs")

// others are the suites beside the simulator that find planted bugs: which variable
// of a package lists them, and the command that plants them.
var others = []struct{ what, dir, list, command string }{
	{"The promises as tests", "enginetest", "planted", "go test ./enginetest -run PlantedBugs"},
	{"Engines over one row", "lab/registers", "planted", "go -C lab test ./registers -run PlantedBugs"},
	{"Engines over one row, bugs that take many seeds", "lab/registers", "seldom", "make planted"},
	{"The limit that adapts", "lab/adaptive", "bugs", "go -C lab test ./adaptive -run PlantedBugs"},
	{"Real processes and servers", "lab/faults/run", "plantedBugs", "make faults PLANTED=all"},
}

// TestThePageNamesEveryPlantedBug compares docs/data/planted-bugs.md with the lists.
func TestThePageNamesEveryPlantedBug(t *testing.T) {
	data, err := os.ReadFile(page)
	expect.OK(t, err)
	text := string(data)
	own, _, _ := strings.Cut(text, othersBegin)
	if *update {
		for _, bug := range planted { // which may have moved to another file
			row := regexp.MustCompile(`(?m)^(\| ` + regexp.QuoteMeta(bug.what) + ` \| )[^|]* `)
			own = row.ReplaceAllString(own, "${1}"+filepath.Base(bug.file)+" ")
		}
		text = own + othersTables(t)
		expect.OK(t, os.WriteFile(page, []byte(text), 0o644))
	}
	for _, bug := range planted {
		if !strings.Contains(own, "| "+bug.what+" | "+filepath.Base(bug.file)+" |") {
			t.Errorf("%s does not have %q in %s: -update writes the file, make planted the row", page, bug.what, filepath.Base(bug.file))
		}
	}
	if n := strings.Count(own, "\n|") - 2; n != len(planted) {
		t.Errorf("%s has %d bugs of the simulator, and there are %d: make planted writes it", page, n, len(planted))
	}
	if !strings.HasSuffix(text, "\n"+othersTables(t)) {
		t.Errorf("%s has not the bugs of the other suites: go -C lab test ./simulate -run Page -update", page)
	}
}

// ownTable is the page's part with the simulator's bugs.
func ownTable(rows []string) string {
	return "<!-- Made by `make planted`. -->\n# Each planted bug\n\n[proof.md](../proof.md#planted-bugs) says what they are for.\n\n" +
		"## The two machines in virtual time\n\n" +
		fmt.Sprintf("How many seeds the [simulator](../proof.md#the-simulator) takes, from %d starting points, and the promises that it then finds broken.\n\n", *starts) +
		fmt.Sprintf("<details markdown=\"1\"><summary>All %d of them</summary>\n\n", len(rows)) +
		"| bug | file | seeds, median | at the most | found as |\n|---|---|---:|---:|---|\n" + strings.Join(rows, "") + "\n</details>\n\n"
}

// othersBegin is where the page's other part begins.
var othersBegin = "## " + others[0].what

// othersTables is the page's part with the bugs of other suites.
func othersTables(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i, suite := range others {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n`%s` finds each of these, planted in [%s](../../%s).\n\n| bug |\n|---|\n", suite.what, suite.command, suite.dir, suite.dir)
		names := listed(t, filepath.Join("../..", suite.dir), suite.list)
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, "| %s |\n", name)
		}
	}
	return b.String()
}

// listed are the names in a package's list of bugs: the keys of a map, or the
// fields name of a slice.
func listed(t *testing.T, dir, list string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	expect.OK(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		expect.OK(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || v.Names[0].Name != list || len(v.Values) != 1 {
				return true
			}
			all, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, bug := range all.Elts {
				if name := nameOf(bug); name != "" {
					names = append(names, name)
				}
			}
			return false
		})
	}
	if len(names) == 0 {
		t.Fatalf("%s has no list %s", dir, list)
	}
	return names
}

// nameOf is the name of a bug in its list, or "".
func nameOf(bug ast.Expr) string {
	switch e := bug.(type) {
	case *ast.KeyValueExpr:
		switch field, ok := e.Key.(*ast.Ident); {
		case !ok: // of a map
			return unquoted(e.Key)
		case field.Name == "name":
			return unquoted(e.Value)
		}
	case *ast.CompositeLit:
		for _, field := range e.Elts {
			if name := nameOf(field); name != "" {
				return name
			}
		}
	}
	return ""
}

func unquoted(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		text, _ := strconv.Unquote(literal.Value)
		return text
	}
	return ""
}
