// Package stall tells what a machine did to a test from what the program did:
// it notes when the whole process stood still, and has a case that met such a
// stall run again.
package stall

import (
	"sync"
	"time"

	"sema/lab/watchdog"
)

// Watch is watchdog.Watch.
func Watch(done <-chan struct{}, tell func(end time.Time, span time.Duration)) {
	watchdog.Watch(done, tell)
}

// Dog is a watchdog that runs until it is stopped.
type Dog struct {
	stop func()

	mu      sync.Mutex
	longest time.Duration
	total   time.Duration
}

// NewDog starts a watchdog.
func NewDog() *Dog {
	done, ended := make(chan struct{}), make(chan struct{})
	d := &Dog{stop: sync.OnceFunc(func() { close(done); <-ended })}
	go func() {
		defer close(ended)
		Watch(done, func(_ time.Time, span time.Duration) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.longest, d.total = max(d.longest, span), d.total+span
		})
	}()
	return d
}

// Stop ends the watch, and returns the longest stall and the sum of all.
func (d *Dog) Stop() (longest, total time.Duration) {
	d.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.longest, d.total
}
