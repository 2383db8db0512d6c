package local

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// diesWithUs has a child end when its parent does, however that ends.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// unprivileged has it not be root as well, which PostgreSQL refuses.
func unprivileged() *syscall.SysProcAttr {
	a := diesWithUs()
	if uid, gid, ok := nobody(); ok {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a
}

// giveAway makes the child the owner of a directory.
func giveAway(dir string) error {
	if uid, gid, ok := nobody(); ok {
		return os.Chown(dir, uid, gid)
	}
	return nil
}

// nobody is who the child is, if its parent is root.
func nobody() (uid, gid int, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, false
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return uid, gid, err1 == nil && err2 == nil
}
