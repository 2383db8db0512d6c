package metrics

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc: Linux shows hundredths to all programs.
const tick = time.Second / 100

// processFigures reads /proc. ok is false where that cannot be read.
func processFigures() (f systemFigures) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return f
	}
	// The program's name may have spaces; behind it come numbers. Man page proc(5)
	// counts from 1, and the name is the second.
	words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	number := func(field int) uint64 {
		if field-3 >= len(words) {
			return 0
		}
		n, _ := strconv.ParseUint(words[field-3], 10, 64)
		return n
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return f
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return f
	}
	f = systemFigures{
		ok: true, cpu: time.Duration(number(14)+number(15)) * tick, files: uint64(len(files)) - 1, // without the directory itself
		maxFiles: limit.Cur, virtual: number(23), resident: number(24) * uint64(os.Getpagesize()),
	}
	if boot := bootTime(); !boot.IsZero() {
		f.start = boot.Add(time.Duration(number(22)) * tick)
	}
	return f
}

// bootTime is when the system began; zero: it does not say.
func bootTime() time.Time {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	_, rest, ok := strings.Cut(string(text), "\nbtime ")
	line, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseInt(line, 10, 64)
	if !ok || err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
