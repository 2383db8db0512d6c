package runner

import (
	"slices"
	"time"

	"sema/bench/internal/peers"
)

// Scenario is the same work for all contestants that take part.
type Scenario struct {
	Name      string
	Processes int
	Workers   int // of each process
	Limit     int
	Hold      time.Duration
	kinds     []peers.Kind // that take part
}

// The contestants of most scenarios.
var (
	semaphores = []peers.Kind{peers.Semaphore}
	measured   = []peers.Kind{peers.Semaphore, peers.Yardstick}
	everyone   = []peers.Kind{peers.Semaphore, peers.Lock, peers.Yardstick}
	inProcess  = []peers.Kind{peers.InProcess}
)

// Scenarios are all of them, in the order of the report.
var Scenarios = []Scenario{
	{"uncontended", 1, 1, 1, 0, everyone},
	{"64-of-64", 1, 64, 64, 0, measured},
	{"512-of-512", 1, 512, 512, 0, measured},
	{"64-of-8-hold-1ms", 1, 64, 8, time.Millisecond, semaphores},
	{"512-of-8-hold-1ms", 1, 512, 8, time.Millisecond, semaphores},
	{"64-of-8-hold-10ms", 1, 64, 8, 10 * time.Millisecond, semaphores},
	{"512-of-8-hold-10ms", 1, 512, 8, 10 * time.Millisecond, semaphores},
	{"64-of-8", 1, 64, 8, 0, semaphores},
	{"4x16-of-8", 4, 16, 8, 0, semaphores},
	{"4x256-of-8", 4, 256, 8, 0, semaphores},
	{"locks", 1, 8, 1, 0, []peers.Kind{peers.Lock}},
	{"memory-uncontended", 1, 1, 1, 0, inProcess},
	{"memory-64-of-8", 1, 64, 8, 0, inProcess},
}

// contestants are those that take part, the baseline always among them.
func (s Scenario) contestants() []peers.Peer {
	var all []peers.Peer
	for _, p := range peers.All {
		if p.Name == s.baseline() || slices.Contains(s.kinds, p.Kind) {
			all = append(all, p)
		}
	}
	return all
}

func (s Scenario) baseline() string {
	if s.inMemory() {
		return peers.MemoryBaseline
	}
	return peers.Baseline
}

func (s Scenario) inMemory() bool { return slices.Contains(s.kinds, peers.InProcess) }
