// Package checkout copies the source, for tests that change it or that act as a
// new user.
package checkout

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sema/internal/fixture/expect"
)

// Copy copies the files below root, the directory of go.mod, into a new directory of the
// name dir, and returns its path. History, what was built and installed packages stay behind.
// With -short it skips the test.
func Copy(tb testing.TB, root, dir string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("it builds a copy of everything")
	}
	to := filepath.Join(tb.TempDir(), dir)
	expect.OK(tb, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (slices.Contains([]string{".git", "bin", "dist", "site"}, name) || d.Name() == "node_modules" || d.Name() == "target"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o777)
		case !d.Type().IsRegular() || name == ".git": // of a worktree it is a file
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, info.Mode().Perm())
	}))
	return to
}
