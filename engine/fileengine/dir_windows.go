package fileengine

import (
	"os"
	"path/filepath"
)

const noFollow = 0

// DefaultDir is where New("", nil) keeps semaphores: sema, in the directory
// for the user's local application data.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "sema")
}

// prepare makes the directory if it is not there. Access is as the directory
// above it says.
func prepare(dir string, _, _ bool) error { return os.MkdirAll(dir, 0o700) }
