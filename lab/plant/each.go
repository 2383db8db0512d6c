package plant

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sema/internal/fixture/expect"
)

// Each builds a program with all bugs at once, and runs it with one of them at a time: see is
// told what it printed, and how it ended. Build is given the root of the repository, for a
// package two folders below it.
func Each(t *testing.T, bugs map[string]Bug, build func(root, dir string, bugs []Bug) (program string, err error), args []string, see func(t *testing.T, out []byte, err error)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program")
	}
	root, err := filepath.Abs("../..")
	expect.OK(t, err)
	names, all := slices.Sorted(maps.Keys(bugs)), []Bug(nil)
	for _, name := range names {
		all = append(all, bugs[name])
	}
	program, err := build(root, t.TempDir(), all)
	expect.OK(t, err)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, args...)
			cmd.Env = Switch(i + 1)
			out, err := cmd.CombinedOutput()
			see(t, out, err)
		})
	}
}
