package local

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tool returns the path of a program that a go.mod names as a tool, in dir below the
// example's own module. It builds the program unless that was done before.
func Tool(dir, name string) (string, error) {
	module, err := printed("", "go", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	return printed(filepath.Join(filepath.Dir(module), dir), "go", "tool", "-n", name)
}

func printed(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return "", fmt.Errorf("%v: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}
