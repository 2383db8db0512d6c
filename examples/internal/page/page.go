// Package page compares what an example prints with what its page in docs shows.
package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shows fails the test unless the page, by its path from the test's directory, has
// the command with what it printed.
func Shows(t testing.TB, page, command, printed string) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for line := range strings.Lines(command + "\n" + printed) {
		block.WriteString("    " + line)
	}
	if !strings.Contains(string(text), "\n"+block.String()+"\n") {
		t.Errorf("%s does not show\n%s", page, block.String())
	}
}
