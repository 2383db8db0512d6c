package runner

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"

	"sema/bench/internal/results"
)

// machine describes this one, without its name. What cannot be found out stays
// empty.
func machine() results.Machine {
	memory, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	kib, _ := strconv.ParseInt(memory, 10, 64)
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-") // without the builder's marks
	before, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(before), " ")
	load, _ := strconv.ParseFloat(minute, 64)
	return results.Machine{
		OS:     runtime.GOOS + "/" + runtime.GOARCH,
		Kernel: kernel,
		CPU:    field("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: (kib + 1<<19) >> 20,
		Load:   load,
	}
}

// field is the first value of a key in a file of "key: value" lines.
func field(path, key string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
