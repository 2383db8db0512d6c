package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKilledRunnerLeavesNoProcess kills the runner while its workers work.
func TestKilledRunnerLeavesNoProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0], runnerArg, "-grounds", "standalone", "-rounds", "1", "-histories", t.TempDir())
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []string
	await(t, "seven children", func() bool { // a server, and six workers at least
		children = childrenOf(t, cmd.Process.Pid)
		return len(children) > 6
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	await(t, "their end", func() bool {
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
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		if b, err := os.ReadFile(list); err == nil { // a thread may have ended
			all = append(all, strings.Fields(string(b))...)
		}
	}
	return all
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
