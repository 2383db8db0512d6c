package redisson

import (
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// The pitfall "undeclared keys or keys of two slots in a script on a cluster";
// and names for which Redisson mistakes the slot, so that nothing ever wakes a
// Java waiter.
func TestNamesOnACluster(t *testing.T) {
	for name, fits := range map[string]bool{
		"foo": true, "a{b}c": true, "{a}{b}": true, "a:b": true, "{x}": true,
		"a{b": false, "{}x": false, "x{}{y}": false, "a}b": false, "}{": false, "{": false, "}": false,
		"a}b{c}": false, "}{x}": false, "}a{b}{c}": false,
	} {
		if err := checkName(name, true); (err == nil) != fits {
			t.Errorf("%q: %v", name, err)
		}
		if err := checkName(name, false); err != nil {
			t.Errorf("%q off a cluster: %v", name, err)
		}
	}
}

// The header of every script says what it takes and what it returns.
func TestScriptsHaveHeaders(t *testing.T) {
	all, err := files.ReadDir("lua")
	expect.OK(t, err)
	for _, f := range all {
		name := f.Name()
		if name == "shared.lua" || name == "timeouts.lua" { // parts of the others
			continue
		}
		text, _ := files.ReadFile("lua/" + name)
		source := string(text)
		header := ""
		for line := range strings.Lines(source) {
			if !strings.HasPrefix(line, "--") {
				break
			}
			header += line
		}
		for _, word := range []string{"KEYS", "Returns"} {
			if !strings.Contains(header, word) {
				t.Errorf("%s: header lacks %s", name, word)
			}
		}
		if strings.Contains(source, "ARGV[5") && !strings.Contains(header, "ARGV[5") {
			t.Errorf("%s: header lacks ARGV", name)
		}
	}
}

func TestLanesAreUsedByOneRequestAtATime(t *testing.T) {
	var l lanes
	a, b := l.take(), l.take()
	if a.lane == b.lane {
		t.Fatalf("%v and %v share a lane", a, b)
	}
	l.put(a)
	if c := l.take(); c.lane != a.lane || c.number <= a.number {
		t.Fatalf("%v after %v; want a higher number on the same lane", c, a)
	}
}
