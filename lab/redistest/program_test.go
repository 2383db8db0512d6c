package redistest

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The last line is what package suites writes into its table.
func TestVersion(t *testing.T) {
	version := Start(t).Version()
	if !regexp.MustCompile(`^(Redis|Valkey) \d+\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("the server says %q", version)
	}
	t.Logf("the tests run on %s", version)
}

func TestTheEnvironmentNamesTheServer(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "valkey-server")
	t.Setenv(ServerVariable, missing)
	if path, err := program(); err == nil || !strings.Contains(err.Error(), ServerVariable) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a server that does not exist: %q, %v", path, err)
	}
	other, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(ServerVariable, "go")
	if path, err := program(); err != nil || path != other {
		t.Errorf("got %q, %v; want %q", path, err, other)
	}
}
