package main

import (
	"os"
	"strings"
	"testing"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) {
	child.Role(driver, drive)
	child.Play()
	os.Exit(m.Run())
}

// Every contestant of every scene makes pairs, and the page has a row for it.
func TestAllScenes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers")
	}
	figures, err := run{progress: func(string) {}}.all(t.Context())
	expect.OK(t, err)
	text := &strings.Builder{}
	page(text, figures, 0)
	for _, s := range scenes {
		_, table, found := strings.Cut(text.String(), "(`"+s.name+"`)\n")
		table, _, _ = strings.Cut(table, "\n#")
		if !found || strings.Contains(table, "failed") || strings.Count(table, "\n| `") != len(s.who) {
			t.Errorf("%s: %s", s.name, table)
		}
	}
}

// A checkout beside itself is about as fast; here it only has to play.
func TestBeside(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles")
	}
	other, err := besides(t.Context(), "..")
	expect.OK(t, err)
	defer other.remove()
	figures, err := run{scenes: []string{"alone"}, other: other, progress: func(string) {}}.all(t.Context())
	expect.OK(t, err)
	text := &strings.Builder{}
	compared(text, figures, "itself")
	if rows := strings.Count(text.String(), "\n| alone"); rows != 3 || strings.Contains(text.String(), "failed") {
		t.Errorf("%d rows:\n%s", rows, text)
	}
}
