package cli

import "golang.org/x/sys/unix"

// fileSystems are the names of types that statfs(2) tells by number.
var fileSystems = map[uint32]string{
	0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x2fc12fc1: "zfs", 0xf2f52010: "f2fs", 0xca451a4e: "bcachefs",
	0x01021994: "tmpfs", 0x794c7630: "overlay", 0x65735546: "fuse",
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x01021997: "9p", 0x00c36400: "ceph", 0x5346414f: "afs",
}

// fileSystem is the type of the file system of a directory; "": unknown.
func fileSystem(dir string) string {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return ""
	}
	return fileSystems[uint32(s.Type)]
}
