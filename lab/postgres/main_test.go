package main

import (
	"os"
	"path/filepath"
	"testing"

	"sema/internal/fixture/expect"
)

// The page is made again: what is committed is what the committed results say.
func TestDocsAreOfTheResults(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, run(t.Context(), "results.json", dir, "", true, plan{}))
	want, err := os.ReadFile(filepath.Join(dir, "postgres.md"))
	expect.OK(t, err)
	if got, err := os.ReadFile("../../docs/data/postgres.md"); err != nil || string(got) != string(want) {
		t.Errorf("docs/data/postgres.md is not what lab/postgres/results.json says (%v); try: make postgres POSTGRES=-draw", err)
	}
}
