//go:build !linux

package local

import "syscall"

func diesWithUs() *syscall.SysProcAttr { return nil }
