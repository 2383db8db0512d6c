package runner

import "syscall"

// dieWithParent has the kernel kill the child should the runner die without
// cleaning up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
