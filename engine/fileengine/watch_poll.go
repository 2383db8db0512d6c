package fileengine

import (
	"sync"
	"time"
)

// lookEvery is how often waiting clients look where the kernel cannot wake them.
const lookEvery = 250 * time.Millisecond

// poller stands in for the kernel: it calls everybody, four times a second.
type poller struct {
	stop chan struct{}
	done sync.WaitGroup
}

func newPoller(tick func()) *poller {
	p := &poller{stop: make(chan struct{})}
	p.done.Go(func() {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				tick()
			case <-p.stop:
				return
			}
		}
	})
	return p
}

func (p *poller) close() { close(p.stop) }
