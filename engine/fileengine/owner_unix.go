//go:build unix

package fileengine

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner refuses a directory that others could have prepared.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ok || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory that only this user can write", dir)
	}
	return nil
}
