package sema_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every exported function and method of the packages that users import first is
// used in a runnable example.
func TestEveryFunctionIsInAnExample(t *testing.T) {
	found := 0
	for _, dir := range []string{".", "each", "semahttp", "sematest"} {
		used, exported := map[string]bool{}, map[string]bool{}
		eachFunction(t, dir, func(f *ast.FuncDecl, test bool) {
			switch {
			case test && strings.HasPrefix(f.Name.Name, "Example"):
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						used[s.Sel.Name] = true
					}
					return true
				})
			case !test && f.Name.IsExported() && ofExported(f):
				exported[f.Name.Name] = true
			}
		})
		for _, name := range slices.Sorted(maps.Keys(exported)) {
			// Called through its interface.
			if !used[name] && !slices.Contains([]string{"Error", "Unwrap", "String", "Open", "List", "RoundTrip"}, name) {
				t.Errorf("%s: no example uses %s", dir, name)
			}
		}
		found += len(exported)
	}
	if found < 32 {
		t.Errorf("only %d functions found", found)
	}
}

func eachFunction(t *testing.T, dir string, do func(f *ast.FuncDecl, test bool)) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				do(f, strings.HasSuffix(file, "_test.go"))
			}
		}
	}
}

// ofExported reports whether a function is a method of an exported type, or of none.
func ofExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}

// Each heading of the package's comment has an example of its own.
func TestEveryHeadingHasAnExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]bool{}
	eachFunction(t, ".", func(f *ast.FuncDecl, _ bool) { examples[strings.ToLower(f.Name.Name)] = true })
	headings := 0
	for line := range strings.Lines(string(doc)) {
		if heading, ok := strings.CutPrefix(line, "// # "); ok {
			headings++
			if name := strings.ToLower("Example_" + strings.ReplaceAll(strings.TrimSpace(heading), " ", "")); !examples[name] {
				t.Errorf("doc.go has the heading %q, and no function is called as %s", strings.TrimSpace(heading), name)
			}
		}
	}
	if headings < 4 {
		t.Errorf("doc.go has %d headings", headings)
	}
}
