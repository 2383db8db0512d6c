//go:build unix

package sema_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/pages"
)

// exported are the exported names of all packages of the project that users import: "sema.New",
// "sema.Permit.Release", "sema.Options.Keep".
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	skip := regexp.MustCompile(`(^|/)(internal|lab|bench|interop|examples|testdata|node_modules|\.[a-z]+)(/|$)`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && skip.MatchString(path):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		add := func(parts ...string) { names[file.Name.Name+"."+strings.Join(parts, ".")] = true }
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					add(receiver(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							add(n.Name)
						}
					case *ast.TypeSpec:
						add(s.Name.Name)
						membersOf(s, func(member string) { add(s.Name.Name, member) })
					}
				}
			}
		}
		return nil
	})
	expect.OK(t, err)
	return names
}

func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// membersOf calls f for each field of a struct, and each method of an interface.
func membersOf(s *ast.TypeSpec, f func(string)) {
	var list *ast.FieldList
	switch x := s.Type.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, n := range field.Names {
			f(n.Name)
		}
	}
}

// Each name of ours that a page has is one of the code: sema.New, semahttp.Handler, and fields of
// options by themselves: Options.Keep.
func TestPagesNameWhatTheCodeHas(t *testing.T) {
	names := exported(t)
	packages := map[string]bool{}
	for name := range names {
		of, _, _ := strings.Cut(name, ".")
		packages[of] = true
	}
	delete(packages, "main")
	var ours []string
	for name := range packages {
		ours = append(ours, name)
	}
	pages.Check{
		Claim: regexp.MustCompile(`\b((?:` + strings.Join(ours, "|") + `)\.[A-Z]\w*(?:\.[A-Z]\w*)?)`),
		True: func(claim string) bool {
			of, name, _ := strings.Cut(claim, ".")
			switch {
			case names[claim], claim == "server.Shutdown", claim == "server.RegisterOnShutdown": // of net/http
				return true
			case of == "engine": // a variable of a program as well, of sematest's, pgengine's or another Engine
				return names["sematest.Engine."+name] || names["pgengine.Engine."+name]
			}
			return false
		},
		Is: "exported name",
	}.Run(t, "Call `sema.Acquirre(ctx)` first.")
	pages.Check{
		Claim: regexp.MustCompile(`[^.\w]Options\.([A-Z]\w*)`),
		True: func(field string) bool {
			for of := range packages {
				if names[of+".Options."+field] {
					return true
				}
			}
			return field == "Metadata" // River's
		},
		Is: "field of any Options",
	}.Run(t, "Set `Options.Keeps` to a moment.")
}
