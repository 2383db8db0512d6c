package sema_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

// aliased are the root's aliases, of which go doc shows the comment and nothing else.
var aliased = map[string]reflect.Type{
	"Engine": reflect.TypeFor[sema.Engine](), "State": reflect.TypeFor[sema.State](), "ArgumentError": reflect.TypeFor[sema.ArgumentError](),
	"Caps": reflect.TypeFor[sema.Caps](),
}

// The comment of an alias lists the fields and methods of what it is an alias of.
func TestCommentsOfAliasesListTheirFields(t *testing.T) {
	comments := aliases(t)
	if len(comments) != len(aliased) {
		t.Errorf("aliases %v; want those of this test, %v", comments, aliased)
	}
	for name, of := range aliased {
		var listed []string
		for line := range strings.Lines(comments[name]) {
			if code, ok := strings.CutPrefix(line, "\t"); ok {
				code, _, _ = strings.Cut(code, " //")
				listed = append(listed, strings.Join(strings.Fields(code), " "))
			}
		}
		want := members(of)
		if of.Kind() != reflect.Struct { // reflect has its methods sorted
			slices.Sort(listed)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("the comment of %s lists\n\t%s\nwant\n\t%s", name, strings.Join(listed, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

// aliases are the comments of the types of the package that are aliases, by name.
func aliases(t *testing.T) map[string]string {
	files, err := filepath.Glob("*.go")
	expect.OK(t, err)
	comments := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		expect.OK(t, err)
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				if spec := s.(*ast.TypeSpec); spec.Assign.IsValid() {
					doc := spec.Doc
					if doc == nil {
						doc = decl.Doc
					}
					comments[spec.Name.Name] = doc.Text()
				}
			}
		}
	}
	return comments
}

// members are the exported fields and methods of a type, as its alias's comment has them.
func members(of reflect.Type) (list []string) {
	text := func(s string) string {
		for name := range aliased {
			s = strings.ReplaceAll(s, "engine."+name, name)
		}
		return strings.ReplaceAll(s, "interface {}", "any")
	}
	methods, receiver := reflect.PointerTo(of), 1
	if of.Kind() == reflect.Interface {
		methods, receiver = of, 0
	} else if of.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(of) {
			list = append(list, f.Name+" "+text(f.Type.String()))
		}
	}
	for m := range methods.Methods() {
		var in []reflect.Type
		for i := receiver; i < m.Type.NumIn(); i++ {
			in = append(in, m.Type.In(i))
		}
		var out []reflect.Type
		for i := range m.Type.NumOut() {
			out = append(out, m.Type.Out(i))
		}
		list = append(list, m.Name+text(strings.TrimPrefix(reflect.FuncOf(in, out, false).String(), "func")))
	}
	return list
}
