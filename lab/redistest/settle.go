package redistest

import (
	"bytes"
	"runtime"
	"time"
)

// Settled is m, for goleak: when m's tests are over it waits for go-redis' probes of
// servers that were away. They sleep a second before they look whether their client is
// closed, which is longer than goleak waits. Those of a client that was not closed go
// on, and are found.
func Settled(m interface{ Run() int }) interface{ Run() int } { return settled{m} }

type settled struct{ m interface{ Run() int } }

// Run implements goleak.TestingM.
func (s settled) Run() int {
	code := s.m.Run()
	for end := time.Now().Add(3 * time.Second); probed() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}

// probed reports whether go-redis probes any server.
func probed() bool {
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("pool.(*ConnPool).tryDial"))
}
