//go:build !linux

package child

import (
	"errors"
	"os"
	"os/exec"
)

func dieWithParent(*exec.Cmd) {}

func uses(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }

func used(*os.ProcessState) (Usage, error) { return Usage{}, errors.ErrUnsupported }
