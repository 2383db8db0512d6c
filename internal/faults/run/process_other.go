//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
)

// Rounds are played on Linux only, whose processes share a clock.
func dieWithParent() *syscall.SysProcAttr { return nil }

func freeze(*os.Process) error { return errors.ErrUnsupported }

func thaw(*os.Process) error { return errors.ErrUnsupported }

func quit(*os.Process) error { return errors.ErrUnsupported }
