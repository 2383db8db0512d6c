package sema_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

// What pages link to is there.
func TestLinks(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md"}
	for _, more := range []string{"docs/*.md", "docs/data/*.md", "clients/*/README.md"} {
		found, err := filepath.Glob(more)
		expect.OK(t, err)
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"#: ]*)(#[^)" ]*)?[)" ]`)
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			to := filepath.Join(filepath.Dir(page), m[1])
			if m[1] == "" {
				to = page
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
				t.Errorf("%s links to %s%s, and there is no such heading", page, m[1], m[2])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}

// anchors are what headings of a page can be linked as.
func anchors(t *testing.T, page string) (all []string) {
	text, err := os.ReadFile(page)
	expect.OK(t, err)
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(string(text), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// A page of data says in its first line which command makes it, that each section names its command, or that it has no figures.
func TestPagesOfDataNameTheirCommands(t *testing.T) {
	pages, err := filepath.Glob("docs/data/*.md")
	expect.OK(t, err)
	if len(pages) == 0 {
		t.Fatal("docs/data has no pages")
	}
	makefile, err := os.ReadFile("Makefile")
	expect.OK(t, err)
	form := regexp.MustCompile("^<!-- (?:(?:Made|Checked) by `(make ([a-z-]+)|go)[ `]|Measured: each section names the command|Written by hand)")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		expect.OK(t, err)
		if made := form.FindSubmatch(text); made == nil {
			t.Errorf("%s does not begin with what made it", page)
		} else if len(made[2]) > 0 && !bytes.Contains(makefile, []byte("\n"+string(made[2])+":")) {
			t.Errorf("%s is made by make %s, and the Makefile has none", page, made[2])
		}
	}
}

var updatePages = flag.Bool("update-pages", false, "write the pages that are made of comments")

// TestPageOfOptions makes docs/data/options.md of the comments of Options and of the functions that make
// an AcquireOption, and compares it: go test -run TestPageOfOptions . -update-pages writes it.
func TestPageOfOptions(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	expect.OK(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			expect.OK(t, err)
			files = append(files, file)
		}
	}
	p, err := doc.NewFromFiles(set, files, "sema")
	expect.OK(t, err)
	var semaphore, acquisition []string
	for _, s := range p.Types {
		switch s.Name {
		case "Options":
			for _, f := range s.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
				for _, n := range f.Names {
					semaphore = append(semaphore, row(n.Name, f.Doc.Text()))
				}
			}
		case "AcquireOption":
			for _, f := range s.Funcs {
				acquisition = append(acquisition, row(f.Name, f.Doc))
			}
		}
	}
	head := "| option | what it does, and its range | default | cost |\n|---|---|---|---|\n"
	page := "<!-- Made by `go test -run TestPageOfOptions . -update-pages` of the comments in options.go and acquire.go. -->\n" +
		"# Options\n\nFor those who know what they want, and look for its name.\n\n" +
		"**In short:** the defaults are for most programs. `go doc sema.Options` says more of each.\n\n" +
		"## Of a Semaphore\n\nFields of `sema.Options`, for all its acquisitions.\n\n" + head + strings.Join(semaphore, "") +
		"\n## Of one acquisition\n\nArguments of `Acquire`, `TryAcquire` and `Do`: `sem.Acquire(ctx, sema.Weight(2), sema.For(\"acme\"))`.\n\n" + head + strings.Join(acquisition, "")
	if *updatePages {
		expect.OK(t, os.WriteFile("docs/data/options.md", []byte(page), 0o666))
	}
	is, err := os.ReadFile("docs/data/options.md")
	expect.OK(t, err)
	if string(is) != page {
		t.Error("docs/data/options.md is not what the comments say: go test -run TestPageOfOptions . -update-pages")
	}
}

var (
	sentence  = regexp.MustCompile(`[^ ].*?[.](?: |$)`)
	defaultOf = regexp.MustCompile(`^Default:? (.*)\.$`)
	costOf    = regexp.MustCompile(`^Cost: (.*)\.$`)
	rangeOf   = regexp.MustCompile(`^(At (most|least)|0 …|1 …|M)|…`)
	linkInDoc = regexp.MustCompile(`\[([A-Z][\w.]*)\]`)
)

// row is an option's line: its first sentence, and those of its range, its default and its cost.
func row(name, text string) string {
	text = strings.Join(strings.Fields(text), " ")
	what, within, without, cost := "", "", "", ""
	for i, s := range sentence.FindAllString(text, -1) {
		s = strings.TrimSpace(s)
		switch m := defaultOf.FindStringSubmatch(s); {
		case i == 0:
			what = strings.TrimPrefix(s, name+" ")
		case m != nil:
			without = m[1]
		case costOf.MatchString(s):
			cost = costOf.FindStringSubmatch(s)[1]
		case within == "" && strings.ContainsAny(s, "0123456789…M") && rangeOf.MatchString(s):
			within = " " + s
		}
	}
	cell := func(s string) string { return strings.ReplaceAll(linkInDoc.ReplaceAllString(s, "`$1`"), "*", `\*`) }
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, cell(what+within), cell(without), cell(cost))
}

// aliased are the root's aliases, of which go doc shows the comment and nothing else.
var aliased = map[string]reflect.Type{
	"Engine": reflect.TypeFor[sema.Engine](), "State": reflect.TypeFor[sema.State](), "ArgumentError": reflect.TypeFor[sema.ArgumentError](),
	"Caps": reflect.TypeFor[sema.Caps](), "Pools": reflect.TypeFor[sema.Pools](),
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
		return strings.NewReplacer("interface {}", "any", "[]uint8", "[]byte", "string,int", "string, int").Replace(s)
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
