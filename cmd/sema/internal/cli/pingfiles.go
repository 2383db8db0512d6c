package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
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
	file := filepath.Join(f.dir, f.name+".tmp")
	write := checkOf("write files in the directory", cmp.Or(os.WriteFile(file, []byte("sema ping\n"), 0o600), os.Remove(file)))
	if write.State != checkOK {
		write.Try = "file:///dir, a directory of this user on a local disk with room"
	}
	list = append(list, write)
	version = fileSystem(f.dir)
	if slices.Contains(remote, version) {
		list = append(list, check{"rely on file locks", checkRisk, version + " may be on another host", "file:///dir on a local disk, or another engine"})
	}
	return version, list
}
