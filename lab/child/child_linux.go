package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// dieWithParent has the kernel kill the process when this one dies.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// uses is what a process uses that runs.
func uses(pid int) (u Usage, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			u.Resident = kib << 10
		} else if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			u.Peak = kib << 10
		}
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		var ns int64
		stat, _ := os.ReadFile(thread) // a thread may end meanwhile
		_, _ = fmt.Sscan(string(stat), &ns)
		u.CPU += time.Duration(ns)
	}
	return u, err
}

// used is what one used that has ended.
func used(s *os.ProcessState) (Usage, error) {
	u := Usage{CPU: s.UserTime() + s.SystemTime()}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.Peak = int(r.Maxrss) << 10
	}
	return u, nil
}
