package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// TestKilledRunnerLeavesNoProcess kills the runner while its workers work.
func TestKilledRunnerLeavesNoProcess(t *testing.T) {
	cmd, err := child.Command(runnerRole, []string{"-grounds", "standalone", "-rounds", "1", "-histories", t.TempDir()})
	expect.OK(t, err)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	cmd.Stderr = io.Discard
	runner := child.RunCommand(t, cmd)
	var children []string
	expect.Until(t, "seven children", func() bool { // a server, and six workers at least
		children = childrenOf(t, runner.PID())
		return len(children) > 6
	})
	runner.Kill()
	expect.Until(t, "their end", func() bool {
		for _, pid := range children {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
}

func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	expect.OK(t, err)
	var all []string
	for _, list := range lists {
		if b, err := os.ReadFile(list); err == nil { // a thread may have ended
			all = append(all, strings.Fields(string(b))...)
		}
	}
	return all
}
