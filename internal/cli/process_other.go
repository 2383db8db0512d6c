//go:build unix && !linux

package cli

import "syscall"

// attributes: a process group of its own. That a process dies with its parent
// cannot be had here.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
