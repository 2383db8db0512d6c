package metrics_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/metrics"
)

func TestProcess(t *testing.T) {
	figure := func(text, series string) float64 {
		v, err := strconv.ParseFloat(value(t, text, series), 64)
		expect.OK(t, err)
		return v
	}
	before := text(t, metrics.Process())
	if start := figure(before, "process_start_time_seconds"); time.Since(time.UnixMilli(int64(start*1000))) > time.Hour || start > float64(time.Now().Unix()+1) {
		t.Errorf("the process began at %v", start)
	}
	for _, series := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "go_memstats_sys_bytes", "go_memstats_next_gc_bytes", "go_memstats_alloc_bytes_total"} {
		if figure(before, series) <= 0 {
			t.Errorf("%s is not above 0:\n%s", series, before)
		}
	}
	cycles := figure(before, "go_gc_cycles_total")
	runtime.GC()
	file, err := os.Open(os.DevNull)
	expect.OK(t, err)
	defer func() { _ = file.Close() }()
	after := text(t, metrics.Process())
	if figure(after, "go_gc_cycles_total") <= cycles || figure(after, "go_info{version=\""+runtime.Version()+"\"}") != 1 {
		t.Errorf("before:\n%s\nafter a collection:\n%s", before, after)
	}
	if runtime.GOOS != "linux" {
		return
	}
	if figure(after, "process_open_fds") <= figure(before, "process_open_fds") {
		t.Errorf("a file more is open; before:\n%s\nafter:\n%s", before, after)
	}
	if figure(after, "process_resident_memory_bytes") < 1<<20 || figure(after, "process_virtual_memory_bytes") < 1<<20 || figure(after, "process_max_fds") < 16 {
		t.Error(after)
	}
	for end := time.Now().Add(time.Minute); figure(text(t, metrics.Process()), "process_cpu_seconds_total") <= figure(before, "process_cpu_seconds_total"); {
		if time.Now().After(end) {
			t.Fatal("a busy process uses no time")
		}
	}
}
