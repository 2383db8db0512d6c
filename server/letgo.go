package server

import (
	"time"

	"sema/engine"
)

// letGo ends an entry and gives back what it may have. That is repeated until
// the engine has confirmed it, or the lease is over. The lock is held.
func (k *desk) letGo(e *entry, err error) {
	until := time.Now().Add(e.lease)
	e.end(err)
	var release func()
	release = func() {
		k.send(op{
			request: engine.Request{Kind: engine.Release, ID: e.id},
			done: func(_ engine.Answer, _ time.Time, err error) {
				if err == nil || time.Now().After(until) || k.place.server.closed.Load() {
					return
				}
				time.AfterFunc(again, func() {
					k.place.mu.Lock()
					defer k.place.mu.Unlock()
					now := k.place.entries[e.id.Number]
					if (now == nil || now == e) && !k.place.server.closed.Load() { // nobody asked for it again
						release()
					}
				})
			},
		})
	}
	release()
}

// close frees the session. The lock is held.
func (k *desk) close() {
	if k.timer != nil {
		k.timer.Stop()
	}
	k.place.server.ended.Go(func() { _ = k.inner.Close() }) // it may want the lock
}

// drain sends what is owed, and frees the session.
func (k *desk) drain() {
	k.place.mu.Lock()
	if k.timer != nil {
		k.timer.Stop()
	}
	idle := make(chan struct{})
	if k.carrying {
		k.idle = idle
	} else {
		close(idle)
	}
	k.place.mu.Unlock()
	<-idle // each step is bounded
	_ = k.inner.Close()
}
