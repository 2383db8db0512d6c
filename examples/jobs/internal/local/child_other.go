//go:build !linux

package local

import "syscall"

// unprivileged and giveAway do nothing here: run the examples as a plain user.
func unprivileged() *syscall.SysProcAttr { return nil }

func giveAway(string) error { return nil }
