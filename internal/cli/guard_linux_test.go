package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// guardOf finds the guard among a sema's children.
func guardOf(t *testing.T, parent int) int {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		list, _ := os.ReadFile(thread) // a thread that ended meanwhile has none
		for _, child := range strings.Fields(string(list)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasSuffix(string(line), "\x00__guard\x00") {
				pid, err := strconv.Atoi(child)
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatal("no guard")
	return 0
}
