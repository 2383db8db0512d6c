package watch

import (
	"context"
	"time"

	"sema/engine"
)

// Look is the result of a look, with the changes since the look before.
type Look struct {
	Summary
	State  engine.State
	Since  time.Duration // since the beginning of the look before; 0: there was none to compare with
	Events []Event
}

// follower receives all looks.
type follower struct {
	f      func(Look)
	always bool
}

// Follow returns at once. From then on, until ctx or the Watcher ends, f is called with
// each successful look at any semaphore, in order for each semaphore. With always, the
// Watcher makes a round each Options.Rounds all the time; otherwise f receives only the
// looks that other callers cause. The Watcher's lock is held during f. So f must be quick
// and not call the Watcher.
func (w *Watcher) Follow(ctx context.Context, always bool, f func(Look)) {
	follower := &follower{f, always}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.followers[follower] = struct{}{}
	if always {
		w.startRound()
	}
	w.mu.Unlock()
	if always {
		w.keepRounds(0)
	}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers, follower)
	})
}

// tellFollowers passes a look to all followers. The lock is held.
func (w *Watcher) tellFollowers(l Look) {
	for follower := range w.followers {
		follower.f(l)
	}
}

// followedAlways reports whether a follower needs rounds all the time. The lock is held.
func (w *Watcher) followedAlways() bool {
	for follower := range w.followers {
		if follower.always {
			return true
		}
	}
	return false
}
