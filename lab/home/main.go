// Command home gives the module a path, so that others can get it. It changes the
// paths of all modules, their imports, requirements and replacements, and the
// documents.
//
//	bin/lab-home -module example.org/you/sema [-version v0.1.0] [directory]
//
// The directory is the root of a checkout; "" means the present one. Nothing is committed.
// It can also change an earlier path. CONTRIBUTING.md says which tags follow.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	var m mover
	flag.StringVar(&m.to, "module", "", "the module's new path, such as example.org/you/sema")
	flag.StringVar(&m.version, "version", "v0.1.0", "the version that the modules below contrib require of it")
	flag.Parse()
	m.dir = flag.Arg(0)
	if m.dir == "" {
		m.dir = "."
	}
	if err := m.move(); err != nil {
		fmt.Fprintln(os.Stderr, "home:", err)
		os.Exit(1)
	}
}

// mover rewrites the checkout in dir.
type mover struct {
	dir, to, version string

	from   string         // the path until now
	inside *regexp.Regexp // a path of a package or module below from, and what stands before it
	alone  *regexp.Regexp // from as an import of its own line
}

// ours is go.mod, as go mod edit -json has it.
type ours struct {
	Module  struct{ Path string }
	Require []struct{ Path string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

var homeless = regexp.MustCompile(`(?s)(<!-- home: [^\n]* -->\n).*(<!-- /home -->\n)`)

func (m *mover) move() error {
	host, _, _ := strings.Cut(m.to, "/")
	if !strings.Contains(host, ".") {
		return fmt.Errorf("module path %q has no host in front, so that nobody could get it; try: make home MODULE=example.org/you/sema", m.to)
	}
	root, err := m.read(filepath.Join(m.dir, "go.mod"))
	if err != nil {
		return err
	}
	m.from = root.Module.Path
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	var below []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			below = append(below, regexp.QuoteMeta(e.Name()))
		}
	}
	from := regexp.QuoteMeta(m.from)
	m.inside = regexp.MustCompile(`(^|[^\w./-])` + from + `/(` + strings.Join(below, "|") + `)((?:_test)?\b)`)
	m.alone = regexp.MustCompile(`(?m)^(\s*(?:\w+ )?)"` + from + `"$`)
	// The root's go.mod first: if go does not take the path, nothing was changed.
	if err := m.mod(filepath.Join(m.dir, "go.mod")); err != nil {
		return err
	}
	return filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "site", "node_modules"}, d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular() || d.Name() == ".git" || d.Name() == "go.sum":
			return nil
		case d.Name() == "go.mod":
			return m.mod(path)
		}
		return m.text(path)
	})
}

func (m *mover) read(path string) (o ours, err error) {
	out, err := exec.Command("go", "mod", "edit", "-json", path).Output()
	if err != nil {
		return o, fmt.Errorf("%s: %w", path, said(err))
	}
	return o, json.Unmarshal(out, &o)
}

// mod rewrites a go.mod.
func (m *mover) mod(path string) error {
	o, err := m.read(path)
	if err != nil {
		return err
	}
	args := []string{"mod", "edit"}
	if to, ok := m.moved(o.Module.Path); ok {
		args = append(args, "-module="+to)
	}
	for _, r := range o.Require {
		if to, ok := m.moved(r.Path); ok {
			args = append(args, "-droprequire="+r.Path, "-require="+to+"@"+m.version)
		}
	}
	for _, r := range o.Replace {
		if to, ok := m.moved(r.Old.Path); ok {
			args = append(args, "-dropreplace="+r.Old.Path, "-replace="+to+"="+r.New.Path)
		}
	}
	if len(args) == 2 {
		return nil
	}
	if _, err := exec.Command("go", append(args, path)...).Output(); err != nil {
		return fmt.Errorf("%s: %w", path, said(err))
	}
	return nil
}

// moved is the new path of a module of ours.
func (m *mover) moved(path string) (string, bool) {
	if path == m.from {
		return m.to, true
	}
	below, ok := strings.CutPrefix(path, m.from+"/")
	return m.to + "/" + below, ok
}

// text rewrites any other file, unless it has bytes that no text has.
func (m *mover) text(path string) error {
	was, err := os.ReadFile(path)
	if err != nil || bytes.ContainsRune(was, 0) {
		return err
	}
	now := was
	switch filepath.Ext(path) {
	case ".go":
		if now, err = m.imports(path, now); err != nil {
			return err
		}
	case ".md":
		now = m.alone.ReplaceAll(now, []byte("${1}"+strconv.Quote(m.to)))
		now = homeless.ReplaceAll(now, []byte("${1}"+fmt.Sprintf(atHome, m.to)+"${2}"))
	}
	now = m.inside.ReplaceAll(now, []byte("${1}"+m.to+"/${2}${3}"))
	if filepath.Ext(path) == ".go" {
		if now, err = format.Source(now); err != nil { // another path has another place among the imports
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if bytes.Equal(was, now) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, now, info.Mode().Perm())
}

// atHome is how README.md says to get the module.
const atHome = "With the program above as `main.go`, in a directory of its own:\n\n```sh\ngo mod init example.org/hello\ngo mod tidy\ngo run .\n```\n\n" +
	"The program sema: `go install %[1]s/cmd/sema@latest`.\n"

// imports rewrites the imports of the root package; inside finds all others.
func (m *mover) imports(path string, source []byte) ([]byte, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for i := len(f.Imports) - 1; i >= 0; i-- {
		if p := f.Imports[i].Path; p.Value == strconv.Quote(m.from) {
			at := files.Position(p.Pos()).Offset
			source = append(append(append([]byte{}, source[:at]...), strconv.Quote(m.to)...), source[at+len(p.Value):]...)
		}
	}
	return source, nil
}

// said adds a command's error output to its error.
func said(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
