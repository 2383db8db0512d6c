//go:build linux && (amd64 || arm64)

package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ownProc says whether /proc shows the processes by the numbers that this one
// knows. In a namespace of process ids without a /proc of its own it does not,
// and to kill by those numbers would hit strangers.
func ownProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// descendants are the processes below one, as /proc has them now. ownProc was
// asked before.
func descendants(pid int) []int {
	var list []int
	for _, child := range children(pid) {
		list = append(list, child)
		list = append(list, descendants(child)...)
	}
	return list
}

// children are those of all threads of a process.
func children(pid int) []int {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	var list []int
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // one that has ended has none
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
