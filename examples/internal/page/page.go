// Package page compares an example's output with its page in docs.
package page

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Shows fails the test unless the page has the command, and below it the output of run. page is a
// path from the test's directory.
func Shows(t testing.TB, page, command string, run func(context.Context, io.Writer) error) {
	t.Helper()
	var printed strings.Builder
	err := run(t.Context(), &printed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for line := range strings.Lines(command + "\n" + printed.String()) {
		block.WriteString("    " + line)
	}
	if !strings.Contains(string(text), "\n"+block.String()+"\n") {
		t.Errorf("%s does not show\n%s", page, block.String())
	}
}
