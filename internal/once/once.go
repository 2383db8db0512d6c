// Package once does something once.
package once

import "sync"

// Once runs a function once; a second caller waits until the first one is done,
// as with sync.Once. But sync.Once waits for a lock, and in a bubble of
// testing/synctest no time passes during such a wait, so its function must not
// wait for a timer. Here it may. The zero value is ready.
type Once struct {
	mu    sync.Mutex
	begun bool
	over  sync.WaitGroup
}

// Do calls f if it is the first call. It returns when the first call's f has.
func (o *Once) Do(f func()) {
	o.mu.Lock()
	second := o.begun
	if !second {
		o.begun = true
		o.over.Add(1)
	}
	o.mu.Unlock()
	if second {
		o.over.Wait()
		return
	}
	defer o.over.Done()
	f()
}
