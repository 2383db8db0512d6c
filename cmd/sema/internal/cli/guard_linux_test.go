package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// children are the processes whose parent is the given one.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
	expect.OK(t, err)
	for _, thread := range threads {
		list, _ := os.ReadFile(thread) // a thread that ended meanwhile has none
		for _, child := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(child)
			expect.OK(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// guardOf finds the guard among a sema's children.
func guardOf(t *testing.T, parent int) int {
	t.Helper()
	for _, pid := range children(t, parent) {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if strings.TrimSpace(string(name)) == "permit-guard" {
			return pid
		}
	}
	t.Fatal("no guard")
	return 0
}
