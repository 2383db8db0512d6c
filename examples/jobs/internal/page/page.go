// Package page compares what an example prints with what its page in docs shows.
package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shows fails the test unless docs/jobs.md has the command with what it printed.
func Shows(t testing.TB, command, printed string) {
	t.Helper()
	page, err := os.ReadFile(filepath.FromSlash("../../../docs/jobs.md"))
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for line := range strings.Lines(command + "\n" + printed) {
		block.WriteString("    " + line)
	}
	if !strings.Contains(string(page), "\n"+block.String()+"\n") {
		t.Errorf("docs/jobs.md does not show\n%s", block.String())
	}
}
