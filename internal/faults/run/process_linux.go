package main

import (
	"os"
	"syscall"
)

// dieWithParent has the kernel kill the child when the runner dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// quit has a Go program print its goroutines and end.
func quit(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
