package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The longest help before the usage of a command, and before the list of commands, in
// lines.
const (
	mostProse     = 16
	mostRootProse = 45
)

// Help stays short enough to be read on one screen, and what it points at exists.
func TestHelpIsShort(t *testing.T) {
	root := Root()
	for _, c := range append(root.Commands(), root) {
		prose, _, _ := strings.Cut(c.Long, "\n\nWith --json, ")
		most := mostProse
		if c == root {
			most = mostRootProse
		}
		if n := strings.Count(prose, "\n") + 1; n > most && !isTopic(c) && c.Name() != "completion" {
			t.Errorf("%s: %d lines, want %d at most", c.CommandPath(), n, most)
		}
		for line := range strings.Lines(c.Long) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 90 {
				t.Errorf("%s: a line of %d columns: %s", c.CommandPath(), n, line)
			}
		}
		_, words, _ := strings.Cut(c.Long, "sema help ")
		for name, _, found := strings.Cut(words, " "); found; {
			if about, _, err := root.Find([]string{strings.Trim(name, ".:")}); err != nil || about == root {
				t.Errorf("%s points at the topic %q", c.CommandPath(), name)
			}
			_, words, _ = strings.Cut(words, "sema help ")
			name, _, found = strings.Cut(words, " ")
		}
	}
}

// Every command is in one group, and every group has only commands that exist.
func TestEveryCommandIsInAGroup(t *testing.T) {
	root := Root()
	names := map[string]int{}
	for _, g := range groups {
		for _, name := range g.commands {
			names[name]++
		}
	}
	for _, c := range root.Commands() {
		if !isTopic(c) && !c.Hidden {
			if names[c.Name()] != 1 {
				t.Errorf("%s is in %d groups", c.Name(), names[c.Name()])
			}
			delete(names, c.Name())
		}
	}
	if len(names) > 0 {
		t.Errorf("no commands: %v", names)
	}
}

// A command that takes --json documents the fields, and every flag has a place in help.
func TestHelpHasAllFlags(t *testing.T) {
	root := Root()
	for _, c := range root.Commands() {
		if isTopic(c) || c.Hidden {
			continue
		}
		c.InitDefaultHelpFlag()
		out := &bytes.Buffer{}
		c.SetOut(out)
		if err := writeUsage(c); err != nil {
			t.Error(err)
		}
		for name := range flagsOf(c) {
			if strings.Count(out.String(), "--"+name+" ") == 0 {
				t.Errorf("%s --help has no --%s:\n%s", c.Name(), name, out)
			}
		}
		if flagsOf(c)["json"] && !strings.Contains(out.String(), "\nWith --json, "+c.Name()) {
			t.Errorf("%s --help does not document --json:\n%s", c.Name(), out)
		}
	}
}

func flagsOf(c *cobra.Command) map[string]bool {
	names := map[string]bool{}
	for word := range strings.FieldsSeq(c.LocalFlags().FlagUsages() + c.InheritedFlags().FlagUsages()) {
		if name, ok := strings.CutPrefix(word, "--"); ok && c.Flag(name) != nil {
			names[name] = true
		}
	}
	return names
}
