package local

import "syscall"

// diesWithUs has a child end when the example does, however that ends.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
