package fileengine

import (
	"os"
	"path/filepath"
)

const noFollow = 0

// DefaultDir is the directory of New("", nil): sema, in the directory of the user's local
// application data.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "sema")
}

// prepareDir creates a missing directory. It inherits the access rights of its parent.
func prepareDir(dir string, _, _ bool) error { return os.MkdirAll(dir, 0o700) }
