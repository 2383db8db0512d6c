//go:build !linux

package local

import "syscall"

// None of these does anything here: start it as a plain user.
func diesWithUs() *syscall.SysProcAttr { return nil }

func unprivileged() *syscall.SysProcAttr { return nil }

func giveAway(string) error { return nil }
