package semahttp

import "sync"

// once does something once, and whoever comes second waits for that. sync.Once
// does so as well, but its wait is one for a lock: in a bubble of testing/synctest
// no time passes meanwhile, so that what is waited for must not wait for a timer.
type once struct {
	mu    sync.Mutex
	begun bool
	over  sync.WaitGroup
}

func (o *once) do(f func()) {
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
