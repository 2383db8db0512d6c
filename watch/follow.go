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

// follower receives all looks.
type follower func(Summary, engine.State, time.Duration, []Event)

// follow is what looks.Follow does.
func (w *Watcher) follow(ctx context.Context, always bool, f follower) {
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
