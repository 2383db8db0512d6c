// Package gauge counts how much is in one place at once.
package gauge

import (
	"context"
	"sync"
	"time"
)

// Gauge counts what enters and leaves a place.
type Gauge struct {
	mu              sync.Mutex
	now, most, want int
	full            chan struct{} // closed when as much as wanted was there at once
}

// New makes a gauge for which Full waits until want are there at once.
func New(want int) *Gauge {
	g := &Gauge{}
	g.Await(want)
	return g
}

// Await begins to count anew, with another number for Full.
func (g *Gauge) Await(want int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most, g.want, g.full = g.now, want, make(chan struct{})
}

// Enter counts n more. leave counts them no longer.
func (g *Gauge) Enter(n int) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.most
	g.now += n
	if g.most = max(g.most, g.now); before < g.want && g.most >= g.want {
		close(g.full)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now -= n
	}
}

// Most is how much was there at once.
func (g *Gauge) Most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// Full waits until as much as wanted was there at once, but not for ever: then Most tells.
func (g *Gauge) Full(ctx context.Context) {
	g.mu.Lock()
	full := g.full
	g.mu.Unlock()
	select {
	case <-full:
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
}
