//go:build !linux

package local

import "syscall"

// unprivileged and giveAway do nothing here: start it as a plain user.
func unprivileged() *syscall.SysProcAttr { return nil }

func giveAway(string) error { return nil }
