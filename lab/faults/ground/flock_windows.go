package ground

import (
	"errors"
	"os"
)

const filesCanBeHarmed = false

func tryLock(*os.File) error { return errors.ErrUnsupported }

func leavePipe(string) error { return errors.ErrUnsupported }
