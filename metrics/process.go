package metrics

import (
	"context"
	"runtime"
	"time"
)

// Process has figures of this process and of Go's runtime, under the names of
// Prometheus' own clients: process_* as far as the system tells them, and go_*. Do
// not use it beside a registry that collects the same.
func Process() Source { return process{} }

type process struct{}

var started = time.Now()

// Families implements [Source].
func (process) Families(context.Context) []Family {
	start, used := started, processFigures()
	if !used.start.IsZero() {
		start = used.start
	}
	gauge := func(name, unit, help string, value float64) Family {
		return Family{Name: name, Unit: unit, Help: help, Series: []Series{{Value: value}}}
	}
	counter := func(name, unit, help string, value float64) Family {
		return Family{Name: name, Unit: unit, Help: help, Kind: Counter, Series: []Series{{Value: value}}}
	}
	all := []Family{gauge("process.start_time", "s", "When the process began, in seconds since 1970.", float64(start.UnixMicro())/1e6)}
	if used.ok {
		all = append(all,
			counter("process.cpu", "s", "Processor time that was used.", used.cpu.Seconds()),
			gauge("process.open_fds", "{file}", "Open files and connections.", float64(used.files)),
			gauge("process.max_fds", "{file}", "So many of them may be.", float64(used.maxFiles)),
			gauge("process.resident_memory_bytes", "By", "Memory in use, as the system counts it.", float64(used.resident)),
			gauge("process.virtual_memory_bytes", "By", "Memory that is mapped.", float64(used.virtual)),
		)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	info := gauge("go.info", "1", "The version of Go.", 1)
	info.Series[0].Labels = []Label{{Name: "version", Value: runtime.Version()}}
	return append(all, info,
		gauge("go.goroutines", "{goroutine}", "Goroutines.", float64(runtime.NumGoroutine())),
		gauge("go.memstats.heap_alloc_bytes", "By", "Heap in use, garbage included.", float64(m.HeapAlloc)),
		gauge("go.memstats.sys_bytes", "By", "Memory that the runtime has of the system.", float64(m.Sys)),
		gauge("go.memstats.next_gc_bytes", "By", "The heap at which the next collection ends.", float64(m.NextGC)),
		counter("go.memstats.alloc_bytes", "By", "Bytes that were allocated.", float64(m.TotalAlloc)),
		counter("go.gc.cycles", "{cycle}", "Garbage collections.", float64(m.NumGC)),
		counter("go.gc.pause", "s", "How long collections stopped everything.", time.Duration(m.PauseTotalNs).Seconds()),
	)
}

// systemFigures are what the system knows of the process.
type systemFigures struct {
	ok                bool
	start             time.Time
	cpu               time.Duration
	files, maxFiles   uint64
	resident, virtual uint64 // bytes
}
