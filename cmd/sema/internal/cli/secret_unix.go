//go:build unix

package cli

import "os"

// ownOnly refuses a file with secrets that everybody on this host can read, or
// others can write.
func ownOnly(what, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return usage("another file", "%s: %v", what, err)
	}
	if info.IsDir() {
		return usage("a file", "%s %s: is a directory", what, printable(path, 200))
	}
	if info.Mode().Perm()&0o026 != 0 {
		return usage("chmod 600 "+quote(path), "%s %s: others can read or write it", what, printable(path, 200))
	}
	return nil
}
