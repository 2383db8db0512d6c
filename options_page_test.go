//go:build unix

package sema_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

var updatePages = flag.Bool("update-pages", false, "write the pages that are made of comments")

// TestPageOfOptions makes docs/options.md of the comments of Options and of the functions that make
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
					semaphore = append(semaphore, row(t, p, n.Name, f.Doc.Text()))
				}
			}
		case "AcquireOption":
			for _, f := range s.Funcs {
				acquisition = append(acquisition, row(t, p, f.Name, f.Doc))
			}
		}
	}
	head := "| option | what it does, and its range | default | cost |\n|---|---|---|---|\n"
	page := "<!-- Made of the comments in options.go and acquire.go by `go test -run TestPageOfOptions . -update-pages`. -->\n" +
		"# Options\n\nFor those who know what they want, and look for its name.\n\n" +
		"**In short:** the defaults are for most programs. `go doc sema.Options` says more of each.\n\n" +
		"## Of a Semaphore\n\nFields of `sema.Options`, for all its acquisitions.\n\n" + head + strings.Join(semaphore, "") +
		"\n## Of one acquisition\n\nArguments of `Acquire`, `TryAcquire` and `Do`: `sem.Acquire(ctx, sema.Weight(2), sema.For(\"acme\"))`.\n\n" + head + strings.Join(acquisition, "")
	if *updatePages {
		expect.OK(t, os.WriteFile("docs/options.md", []byte(page), 0o666))
	}
	is, err := os.ReadFile("docs/options.md")
	expect.OK(t, err)
	if string(is) != page {
		t.Error("docs/options.md is not what the comments say: go test -run TestPageOfOptions . -update-pages")
	}
	if len(semaphore) < 10 || len(acquisition) < 5 {
		t.Errorf("%d options of a Semaphore, %d of an acquisition", len(semaphore), len(acquisition))
	}
}

var (
	sentence  = regexp.MustCompile(`[^ ].*?[.](?: |$)`)
	defaultOf = regexp.MustCompile(`^Default:? (.*)\.$`)
	costOf    = regexp.MustCompile(`^Cost: (.*)\.$`)
)

// row is an option's line: its first sentence, and those of its range, its default and its cost.
func row(t *testing.T, p *doc.Package, name, text string) string {
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
		case within == "" && strings.ContainsAny(s, "0123456789…M") && regexp.MustCompile(`^(At (most|least)|0 …|1 …|M)|…`).MatchString(s):
			within = strings.TrimSuffix(s, ".")
		}
	}
	if what == "" || cost == "" {
		t.Errorf("the comment of %s does not say what it does, or what it costs", name)
	}
	link := regexp.MustCompile(`\[([A-Z][\w.]*)\]`)
	if within != "" {
		what += " " + within + "."
	}
	cell := func(s string) string { return strings.ReplaceAll(link.ReplaceAllString(s, "`$1`"), "*", `\*`) }
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, cell(what), cell(without), cell(cost))
}
