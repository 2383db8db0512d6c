package cli

import (
	"context"
	"os"
	"slices"
)

// pingFiles asks a directory.
type pingFiles struct {
	pingLook
	dir string
}

// remote are the file systems that other hosts may share.
var remote = []string{"nfs", "cifs", "smb2", "9p", "ceph", "afs", "fuse", "smbfs", "afpfs", "webdav"}

func (f *pingFiles) trip(ctx context.Context) error { return f.look(ctx) }

func (f *pingFiles) checks(context.Context) (version string, list []check) {
	version = fileSystem(f.dir)
	list = append(list, checkWrite(f.dir))
	if slices.Contains(remote, version) {
		list = append(list, check{"rely on file locks", checkRisk, version + " may be on another host", "file:///dir on a local disk, or another engine"})
	}
	return version, list
}

// checkWrite writes a file in dir and removes it.
func checkWrite(dir string) check {
	const what = "write files in the directory"
	file, err := os.CreateTemp(dir, "ping-*.tmp")
	if err == nil {
		_, err = file.WriteString("sema ping\n")
		if failed := file.Close(); err == nil {
			err = failed
		}
		if failed := os.Remove(file.Name()); err == nil {
			err = failed
		}
	}
	c := checkOf(what, err)
	if err != nil {
		c.Try = "file:///dir, a directory of this user on a local disk with room"
	}
	return c
}
