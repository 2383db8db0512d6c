package engine_test

import (
	"os"
	"strings"
	"testing"

	"sema/engine"
	"sema/internal/fixture/expect"
)

// The changelog has a section for the version that sessions report.
func TestVersionIsInTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../CHANGELOG.md")
	expect.OK(t, err)
	if !strings.Contains(string(text), "\n## "+engine.Version+"\n") && !strings.Contains(string(text), "\n## "+engine.Version+" ") {
		t.Errorf("CHANGELOG.md has no section %s", engine.Version)
	}
}
