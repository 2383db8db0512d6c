package watch

import (
	"context"
	"time"

	"sema/engine"
)

// Look is the result of a look at a semaphore.
type Look struct {
	Summary
	State  engine.State  // others share it; not to be changed
	Since  time.Duration // since the beginning of the look before; 0: there was none to compare with
	Events []Event       // the changes since then
}

// Follow returns at once. From then on, until ctx or the Watcher ends, it calls f with each
// successful look at any semaphore. The looks at one semaphore come in order. With always,
// the Watcher makes a round each Options.Rounds all the time; otherwise f receives only the
// looks that other calls cause. The Watcher's lock is held during f, so f must be quick and
// must not call the Watcher.
func (w *Watcher) Follow(ctx context.Context, always bool, f func(Look)) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.followers[&f] = always
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
		delete(w.followers, &f)
	})
}
