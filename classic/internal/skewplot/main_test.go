package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPageIsUpToDate draws picture and tables again: what is committed must be
// what the committed measurements say.
func TestPageIsUpToDate(t *testing.T) {
	const docs = "../../../docs/"
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page, picture := filepath.Join(t.TempDir(), "page"), filepath.Join(t.TempDir(), "picture")
	if err := os.WriteFile(page, []byte(read(docs+"data/classic.md")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(page, picture); err != nil {
		t.Fatal(err)
	}
	if read(page) != read(docs+"data/classic.md") || read(picture) != read(docs+"classic-skew.svg") {
		t.Error("docs/data/classic.md or docs/classic-skew.svg is not what was measured; try: go run ./classic/internal/skewplot")
	}
}

func TestPageWithoutAPlaceForATable(t *testing.T) {
	if _, err := fill("<!-- measured: a -->\n", map[string]string{"a": "x"}); err == nil {
		t.Error("filled a block that has no end")
	}
}
