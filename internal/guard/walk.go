//go:build linux && (amd64 || arm64)

package guard

import (
	"os"
	"strconv"
	"strings"
)

// descendants are the processes below one, as /proc has them now.
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
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir(tasks) // one that has ended has none
	var list []int
	for _, thread := range threads {
		text, _ := os.ReadFile(tasks + thread.Name() + "/children")
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
