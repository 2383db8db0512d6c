// Package report writes docs/bench.md and its charts from results.json: the
// text around the figures is here, every figure comes from the run.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
)

//go:embed bench.md.tmpl
var page string

// Write makes bench.md and the charts bench-*.svg in the directory docs.
func Write(run results.Run, docs string) error {
	files, err := Render(run)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(docs, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Render makes the files that Write writes, by name.
func Render(run results.Run) (map[string][]byte, error) {
	t, err := template.New("bench.md").Funcs(template.FuncMap{
		"scenario":    func(name string) (string, error) { return section(run, name) },
		"contestants": contestants,
		"versions":    func() string { return versions(run) },
		"leftOut":     func() string { return leftOut(run) },
		"wins":        func() string { return wins(run) },
		"ms":          func(ms int64) string { return duration(float64(ms) * float64(time.Millisecond)) },
	}).Parse(page)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, run); err != nil {
		return nil, fmt.Errorf("bench.md: %w", err)
	}
	files := map[string][]byte{"bench.md": b.Bytes()}
	for _, c := range charts {
		svg, err := c.draw(run)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		files[c.file] = svg
	}
	return files, nil
}

// find returns a scenario of the run.
func find(run results.Run, name string) (results.Scenario, bool) {
	i := slices.IndexFunc(run.Scenarios, func(s results.Scenario) bool { return s.Name == name })
	if i < 0 {
		return results.Scenario{}, false
	}
	return run.Scenarios[i], true
}

// contestant returns what one did in a scenario; it has no rounds if it did
// not take part.
func contestant(s results.Scenario, name string) results.Contestant {
	i := slices.IndexFunc(s.Contestants, func(c results.Contestant) bool { return c.Name == name })
	if i < 0 {
		return results.Contestant{Name: name}
	}
	return s.Contestants[i]
}

// contestants is the table of all who take part.
func contestants() string {
	var b strings.Builder
	b.WriteString("| name | what it is | how it is set up | what it lacks beside `sema` |\n|---|---|---|---|\n")
	for _, p := range peers.All {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, p.What, p.Settings, p.Lacks)
	}
	return b.String()
}

func versions(run results.Run) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(run.Versions)) {
		all = append(all, name+" "+run.Versions[name])
	}
	return strings.Join(all, ", ")
}

func leftOut(run results.Run) string {
	if len(run.LeftOut) == 0 {
		return "Nobody was left out.\n"
	}
	var b strings.Builder
	b.WriteString("Left out of this run:\n\n")
	for _, name := range slices.Sorted(maps.Keys(run.LeftOut)) {
		fmt.Fprintf(&b, "- `%s`: %s\n", name, run.LeftOut[name])
	}
	return b.String()
}
