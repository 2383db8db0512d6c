package pgengine_test

import "syscall"

func dieWithTests(c *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c, Pdeathsig: syscall.SIGKILL}
}
