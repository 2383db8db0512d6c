//go:build unix

package local

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Kill ends the server and all processes that it has started by kill -9.
func (s *Server) Kill() error { return s.signal(syscall.SIGKILL) }

// Freeze has them stand still until Thaw.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw has them go on.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

// signal reaches the server and all that it has started, the server first.
func (s *Server) signal(sig syscall.Signal) error {
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(s.PID())).Output() // it fails if there are none
	var failed error
	for _, text := range append([]string{strconv.Itoa(s.PID())}, strings.Fields(string(out))...) {
		pid, err := strconv.Atoi(text)
		if err == nil {
			err = syscall.Kill(pid, sig)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("%v to %d: %w", sig, pid, err))
		}
	}
	return failed
}
