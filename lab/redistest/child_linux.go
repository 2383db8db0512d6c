package redistest

import "syscall"

// dieWithParent has the kernel kill the child should the test binary die
// without cleaning up (a panic, a timeout, kill -9).
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
