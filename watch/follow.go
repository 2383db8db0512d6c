package watch

import (
	"context"
	"time"

	"sema/engine"
	"sema/internal/hooks"
)

func init() {
	hooks.Follow = func(ctx context.Context, w any, always bool, f any) {
		w.(*Watcher).follow(ctx, always, f.(func(Summary, engine.State, time.Duration, []Event)))
	}
	hooks.Summaries = func(ctx context.Context, w, q any, rounds, soon bool, match, rank any) (any, int, error) {
		page, total, err := w.(*Watcher).query(ctx, query{q.(Query), rounds, soon, match.(func(Summary) bool), rank.(func(Summary) float64)})
		return page, total, err
	}
}

// look is the result of a look, with the changes since the look before.
type look struct {
	Summary
	state  engine.State
	since  time.Duration // since the beginning of the look before; 0: there was none to compare with
	events []Event
}

// follower receives all looks.
type follower struct {
	f      func(Summary, engine.State, time.Duration, []Event)
	always bool
}

// follow is what looks.Follow does.
func (w *Watcher) follow(ctx context.Context, always bool, f func(Summary, engine.State, time.Duration, []Event)) {
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
func (w *Watcher) tellFollowers(l look) {
	for follower := range w.followers {
		follower.f(l.Summary, l.state, l.since, l.events)
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
