package watch

import (
	"context"
	"time"

	"sema/engine"
)

// Look is what one look found, and what had changed since the one before.
type Look struct {
	Summary
	State  engine.State
	Since  time.Duration // since the look before began; 0: there was none to compare with
	Events []Event
}

// follower is told of all looks.
type follower struct {
	f      func(Look)
	always bool
}

// Follow has f called with each look that succeeds, at any semaphore, until ctx or
// the Watcher ends. It returns at once. Looks at one semaphore come one
// after the other. With always, rounds go on all the time, one each Options.Rounds;
// otherwise f is told of the looks that others ask for. f is called with the
// Watcher's lock held: it is quick and does not call the Watcher.
func (w *Watcher) Follow(ctx context.Context, always bool, f func(Look)) {
	follower := &follower{f, always}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.followers[follower] = struct{}{}
	if always {
		w.hurry()
	}
	w.mu.Unlock()
	if always {
		w.keep(0)
	}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, follower)
	})
}

// tellFollowers passes on a look. The lock is held.
func (w *Watcher) tellFollowers(l Look) {
	for follower := range w.followers {
		follower.f(l)
	}
}

// followedAlways reports whether somebody wants rounds all the time. The lock is held.
func (w *Watcher) followedAlways() bool {
	for follower := range w.followers {
		if follower.always {
			return true
		}
	}
	return false
}
