package main

import (
	"os"
	"path/filepath"
	"testing"

	"sema/internal/fixture/expect"
)

// The page equals the command's output for the stored measurements.
func TestThePageIsWhatWasMeasured(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, write("..", dir))
	for _, name := range []string{"data/adaptive.md", "adaptive-model.svg", "adaptive-real.svg"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		expect.OK(t, err)
		got, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
		expect.OK(t, err)
		if string(got) != string(want) {
			t.Errorf("docs/%s is not what was measured; try: make adapt-page", name)
		}
	}
}
