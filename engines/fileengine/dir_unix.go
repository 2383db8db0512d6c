//go:build unix

package fileengine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow refuses a symbolic link at the end of a path.
const noFollow = unix.O_NOFOLLOW

// DefaultDir is the directory of New("", nil): /var/tmp/sema-UID, or /tmp/sema-UID if
// /var/tmp cannot be written.
//
// It is the same for every session of a user, since it does not depend on XDG_RUNTIME_DIR,
// XDG_STATE_HOME and TMPDIR, which cron does not set. Unlike XDG_RUNTIME_DIR and /dev/shm it survives the
// user's logout, and an operator's limits survive a restart of the host. Unlike a home
// directory it is not on a network.
func DefaultDir() string {
	name := "sema-" + strconv.Itoa(os.Geteuid())
	if unix.Access("/var/tmp", unix.W_OK|unix.X_OK) != nil && unix.Access("/tmp", unix.W_OK|unix.X_OK) == nil {
		return filepath.Join("/tmp", name)
	}
	return filepath.Join("/var/tmp", name)
}

// prepareDir creates a missing directory, and refuses one that other users could tamper
// with. It checks existing directories before it creates anything.
func prepareDir(dir string, own, shared bool) error {
	var missing []string
	part := dir
	for ; ; part = filepath.Dir(part) {
		_, err := os.Lstat(part)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, part)
	}
	above := part
	if len(missing) == 0 {
		above = filepath.Dir(dir)
	}
	if err := checkAbove(above); err != nil {
		return err
	}
	for _, part := range slices.Backward(missing) {
		create := os.Mkdir
		if shared && part == dir {
			create = createShared
		}
		if err := create(part, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return checkDir(dir, own, shared)
}

// createShared creates a directory that others of the group can use as soon as they see it. Mkdir applies the
// umask, and never sets setgid.
func createShared(dir string, _ fs.FileMode) error {
	temp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+tempSuffix)
	if err != nil {
		return err
	}
	if err = os.Chmod(temp, 0o770|fs.ModeSetgid); err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		_ = os.Remove(temp)
		if _, there := os.Lstat(dir); there == nil {
			return nil // somebody else's
		}
	}
	return err
}

// checkAbove refuses a path with a directory that everybody can write. It allows sticky
// directories such as /tmp, in which users can remove only their own files. The next part
// of the path must then belong to this user or to root.
func checkAbove(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for part := real; ; part = filepath.Dir(part) {
		info, err := os.Lstat(part)
		if err != nil {
			return err
		}
		parent, err := os.Lstat(filepath.Dir(part))
		if err != nil {
			return err
		}
		uid := owner(info)
		switch {
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", part)
		case info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("%s can be written by everybody", part)
		case parent.Mode()&fs.ModeSticky != 0 && uid != 0 && uid != os.Geteuid() && part != filepath.Dir(part):
			return fmt.Errorf("%s belongs to another user", part)
		}
		if part == filepath.Dir(part) {
			return nil
		}
	}
}

// checkDir refuses a directory that other users could have prepared or can write.
func checkDir(dir string, own, shared bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	uid, mode := owner(info), info.Mode()
	owned := uid == os.Geteuid()
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link", dir)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case mode&0o002 != 0, own && mode&0o022 != 0:
		return fmt.Errorf("%s can be written by others", dir)
	case shared && mode&0o070 != 0o070:
		return fmt.Errorf("%s cannot be used by its group", dir)
	case !shared && !owned && mode&0o070 == 0o070 && inGroup(info):
		return fmt.Errorf("%s belongs to another user, %w", dir, errNeedsShared)
	case !shared && !owned, shared && !owned && uid != 0 && !inGroup(info):
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return nil
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// inGroup reports whether a file belongs to one of this user's groups.
func inGroup(info fs.FileInfo) bool {
	gid := int(info.Sys().(*syscall.Stat_t).Gid)
	groups, _ := os.Getgroups()
	return os.Geteuid() == 0 || gid == os.Getegid() || slices.Contains(groups, gid)
}
