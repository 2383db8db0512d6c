// Package plant builds a program with bugs in it. One of them can be switched on when
// the program runs. So a test can show that it would have found each bug.
package plant

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// Bug is a change of one line. The text Old stands in the file once, within a
// function.
type Bug struct{ File, Old, New string }

// Build builds a command of module lab, at the root of the repository, with all bugs,
// into a directory. Switch picks one of them.
func Build(root, command, dir string, bugs []Bug) (program string, err error) {
	return build(root, dir, bugs, "build", command)
}

// BuildTests is Build of a package's tests.
func BuildTests(root, tests, dir string, bugs []Bug) (program string, err error) {
	return build(root, dir, bugs, "test", "-c", tests)
}

func build(root, dir string, bugs []Bug, how ...string) (program string, err error) {
	replace := map[string]string{}
	put := func(path, text string) error {
		name := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, path)] = name
		return os.WriteFile(name, []byte(text), 0o600)
	}
	files := map[string][]mutant{}
	for i, bug := range bugs {
		files[bug.File] = append(files[bug.File], mutant{i + 1, bug.Old, bug.New})
	}
	packages := map[string]bool{}
	for path, mutants := range files {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return "", err
		}
		text, err := plant(source, mutants)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if err := put(path, text); err != nil {
			return "", err
		}
		if p := filepath.Dir(path); !packages[p] {
			packages[p] = true
			if err := put(p+"/planted.go", "package "+filepath.Base(p)+"\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar planted, _ = strconv.Atoi(os.Getenv(\""+variable+"\"))\n"); err != nil {
				return "", err
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "planted.exe")
	last := len(how) - 1
	words := append(how[:last:last], "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, how[last])
	cmd := exec.Command("go", words...)
	cmd.Dir = filepath.Join(root, "lab")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

const variable = "SEMA_PLANTED"

// Switch is the environment of a program with one of its bugs switched on, counted
// from 1; with 0 there is none. It runs on one processor.
func Switch(bug int) []string {
	return append(os.Environ(), "GOMAXPROCS=1", variable+"="+strconv.Itoa(bug))
}

// mutant is a change to a file's text, and a number by which it is switched on.
type mutant struct {
	number   int
	old, new string
}

// plant puts mutants into a file, so that the program can pick one of them, or
// none, when it runs. For each mutant it adds a changed copy of the function
// under another name. The original calls the copy if the package's variable
// planted has the mutant's number.
func plant(source []byte, mutants []mutant) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	text, copies := string(source), ""
	at := func(p token.Pos) int { return files.Position(p).Offset }
	calls := map[*ast.FuncDecl]string{}
	for _, m := range mutants {
		if n := strings.Count(text, m.old); n != 1 {
			return "", fmt.Errorf("%q is there %d times", m.old, n)
		}
		begin := strings.Index(text, m.old)
		i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && at(f.Body.Lbrace) < begin && begin+len(m.old) <= at(f.End())
		})
		if i < 0 {
			return "", fmt.Errorf("%q is not within a function", m.old)
		}
		f := file.Decls[i].(*ast.FuncDecl)
		name := fmt.Sprintf("%s%d", f.Name.Name, m.number)
		copies += "\n" + text[at(f.Pos()):at(f.Name.Pos())] + name + text[at(f.Name.End()):begin] + m.new + text[begin+len(m.old):at(f.End())] + "\n"
		calls[f] += fmt.Sprintf("\n\tif planted == %d {\n\t\t%s\n\t}\n", m.number, call(f, name))
	}
	for _, d := range slices.Backward(file.Decls) {
		if f, ok := d.(*ast.FuncDecl); ok {
			brace := at(f.Body.Lbrace) + 1
			text = text[:brace] + calls[f] + text[brace:]
		}
	}
	return text + copies, nil
}

// call is the text of a call of a function under another name, in its own body,
// with its own arguments.
func call(f *ast.FuncDecl, name string) string {
	if f.Recv != nil {
		name = f.Recv.List[0].Names[0].Name + "." + name
	}
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
	}
	name += "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results != nil {
		return "return " + name
	}
	return name + "\n\t\treturn"
}

// Each builds a program with all bugs at once, and runs it with one of them at a time: see is
// told what it printed, and how it ended. Build is given the root of the repository, for a
// package two folders below it.
func Each(t *testing.T, bugs map[string]Bug, build func(root, dir string, bugs []Bug) (program string, err error), args []string, see func(t *testing.T, out []byte, err error)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program")
	}
	root, err := filepath.Abs("../..")
	expect.OK(t, err)
	names, all := slices.Sorted(maps.Keys(bugs)), []Bug(nil)
	for _, name := range names {
		all = append(all, bugs[name])
	}
	program, err := build(root, t.TempDir(), all)
	expect.OK(t, err)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, args...)
			cmd.Env = Switch(i + 1)
			out, err := cmd.CombinedOutput()
			see(t, out, err)
		})
	}
}
