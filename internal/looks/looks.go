// Package looks gives the packages of sema more of a watch.Watcher than its users have: each
// look that it makes, and lists that do not wait for one.
package looks

import (
	"context"
	"time"

	"sema/engine"
	"sema/internal/hooks"
	"sema/watch"
)

// Look is the result of a look, with the changes since the look before.
type Look struct {
	watch.Summary
	State  engine.State
	Since  time.Duration // since the beginning of the look before; 0: there was none to compare with
	Events []watch.Event
}

// Follow returns at once. From then on, until ctx or the Watcher ends, f is called with
// each successful look at any semaphore, in order for each semaphore. With always, the
// Watcher makes a round each Options.Rounds all the time; otherwise f receives only the
// looks that other callers cause. The Watcher's lock is held during f. So f must be quick
// and not call the Watcher.
func Follow(ctx context.Context, w *watch.Watcher, always bool, f func(Look)) {
	hooks.Follow(ctx, w, always, func(s watch.Summary, st engine.State, since time.Duration, events []watch.Event) {
		f(Look{s, st, since, events})
	})
}

// Query is a watch.Query that can do more.
type Query struct {
	watch.Query
	Rounds bool // continue rounds for Options.Linger, for followers
	Soon   bool // with N: do not wait for a round; a semaphore without a look counts as unused

	// Match selects semaphores by their last Summary. Rank replaces Order: the highest
	// value comes first. Both may be nil. They are called with the Watcher's lock held. A
	// Summary without a look has only a name, and its Looked is zero.
	Match func(watch.Summary) bool
	Rank  func(watch.Summary) float64
}

// Summaries is Watcher.Summaries for a Query. Its errors are the same.
func Summaries(ctx context.Context, w *watch.Watcher, q Query) (page []watch.Summary, total int, err error) {
	list, total, err := hooks.Summaries(ctx, w, q.Query, q.Rounds, q.Soon, q.Match, q.Rank)
	page, _ = list.([]watch.Summary)
	return page, total, err
}
