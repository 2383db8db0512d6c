//go:build !unix

package child

import (
	"errors"
	"os"
)

func stop(*os.Process) error { return errors.ErrUnsupported }

func cont(*os.Process) error { return errors.ErrUnsupported }
