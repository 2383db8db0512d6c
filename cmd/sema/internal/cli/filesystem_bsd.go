//go:build darwin || freebsd

package cli

import "golang.org/x/sys/unix"

// fileSystem is the type of the file system of a directory; "": unknown.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return ""
	}
	return unix.ByteSliceToString(s.Fstypename[:])
}
