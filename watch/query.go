package watch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sema/engine"
)

// oldRound is how old the last round may be for the order of a page.
const oldRound = time.Minute

// Summary summarizes a semaphore.
type Summary struct {
	Name    string
	Limit   int // 0: the semaphore did not exist at the look
	Used    int // weight held; above Limit after that was lowered
	Pinned  bool
	Paused  bool
	Holders int           // permits
	Waiting int           // callers: tickets, and those behind them in their processes
	Oldest  time.Duration // the longest wait of a ticket, at the time of the look
	Keys    Levels        // keys that hold, wait, or have a rule; none: the semaphore has no keys
	InTurn  Levels        // waiting keys below their caps: they wait for the keys beside them, or for free weight
	Full    Levels        // waiting keys at their caps: they wait for their own permits
	Auto    *engine.Auto  // the last report of the controller that sets the limit; nil: there is none
	Looked  time.Time     // the time of the look
	Err     error         // the error of the last look; the other fields are from the last successful one, if Looked is not zero

	Pools    []engine.PoolState // by name; not to be changed
	Cooldown *engine.Cooldown   // all grants are stopped for a while; nil: they are not
	Observed *engine.Observed   // of a limit that is only watched; nil: it is enforced
}

// Levels count keys by how many names they have: first those of one name. The callers without a
// key count as one of one name, and the callers of a key beside those below it as one below it.
type Levels [engine.MaxDepth]int

// Summarize summarizes a snapshot that was taken at looked.
func Summarize(name string, looked time.Time, st engine.State) Summary {
	s := Summary{
		Name: name, Limit: st.Limit, Used: st.Used, Pinned: st.Pinned, Paused: st.Paused,
		Holders: len(st.Holders), Waiting: st.Waiting(), Looked: looked, Auto: st.Auto, Pools: st.Pools, Cooldown: st.Cooldown, Observed: st.Observed,
	}
	for _, k := range st.Keys {
		if k.Key == "" && len(st.Keys) == 1 && st.Caps == (engine.Caps{}) {
			break // it has pools, and no keys
		}
		level := k.Key.Level() - 1
		s.Keys[level]++
		switch {
		case k.InTurn:
			s.InTurn[level]++
		case k.Full:
			s.Full[level]++
		}
	}
	for i := range st.Waiters {
		s.Oldest = max(s.Oldest, st.Waiters[i].Waiting)
	}
	return s
}

// Query selects semaphores, and a page of them.
type Query struct {
	Filter   string   // the name contains it, ignoring case; empty: any name
	Prefixes []string // the name begins with one of these; none: any name
	Order    string   // name (default), use: the fullest first, by Used / Limit; waiting: the most callers first; oldest: the longest wait first. Equals are sorted by name
	After    string   // names after this one; only in the order of names
	Skip     int      // how many semaphores to skip before the page
	N        int      // the most semaphores on the page; 0 or less: all
	Now      bool     // with N: list the names and look at each semaphore again, regardless of Options.Fresh

	// Soon, with N, does not wait for a round. The order and Match use the looks so far, and
	// rounds continue for Options.Linger.
	Soon bool

	// Match selects semaphores by their last Summary. Rank replaces Order: the highest value
	// comes first. Both may be nil. The Watcher's lock is held during the calls, so they must
	// not call the Watcher. The Summary of a semaphore without a look has only a name, and
	// its Looked is zero.
	Match func(Summary) bool
	Rank  func(Summary) float64
}

func (q *Query) matches(name string) bool {
	return begins(name, q.Prefixes) && (q.Filter == "" || strings.Contains(strings.ToLower(name), strings.ToLower(q.Filter)))
}

// rank returns the sort key of the query's order; nil: the order of names.
func (q *Query) rank() func(Summary) float64 {
	if q.Rank != nil {
		return q.Rank
	}
	return ranks[q.Order]
}

func begins(name string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Summaries returns a page of the existing semaphores, and their number on all pages.
//
// In the order of names it looks only at the semaphores on the page. In any other order,
// with Match, and without N, it uses the last round, which is at most a minute old; the
// first such call waits for a round. It then looks again at the semaphores on the page, so
// the figures can be newer than those of the order.
//
// It fails if the names cannot be listed, if no look succeeded, or when ctx ends. The error
// of a single look is in Summary.Err.
func (w *Watcher) Summaries(ctx context.Context, q Query) (page []Summary, total int, err error) {
	if _, ok := ranks[q.Order]; !ok {
		return nil, 0, &engine.ArgumentError{What: "order", Value: q.Order, Want: "name, use, waiting or oldest"}
	}
	if q.After != "" && q.rank() != nil {
		return nil, 0, &engine.ArgumentError{What: "after", Value: q.After, Want: "none, except in the order of names"}
	}
	inner, done, err := w.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	page, total, err = w.summaries(inner, q)
	return page, total, w.failed(ctx, "list", "", err)
}

func (w *Watcher) summaries(ctx context.Context, q Query) ([]Summary, int, error) {
	since := time.Now()
	if !q.Now {
		since = since.Add(-w.options.Fresh)
	}
	switch {
	case q.Soon && q.N > 0:
		w.keepRounds(w.options.Linger)
	case q.rank() != nil || q.N <= 0 || q.Match != nil:
		if err := w.awaitRound(ctx); err != nil {
			return nil, 0, err
		}
	default:
		w.keepRounds(0)
	}
	w.mu.Lock()
	listed := since
	if took := w.names.took; !q.Now && !w.names.began.IsZero() {
		listed = time.Now().Add(-max(w.options.Fresh, 10*took))
	}
	w.mu.Unlock()
	names, err := w.list(ctx, listed)
	if err != nil {
		return nil, 0, err
	}
	wanted := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !q.matches(name) })
	if rank := q.rank(); q.Match != nil || rank != nil {
		wanted = w.arrange(wanted, q.Match, rank)
	}
	total := len(wanted)
	if q.After != "" {
		at, found := slices.BinarySearch(wanted, q.After)
		if found {
			at++
		}
		wanted = wanted[at:]
	}
	wanted = wanted[min(max(q.Skip, 0), len(wanted)):]
	if q.N > 0 {
		wanted = wanted[:min(q.N, len(wanted))]
		err = w.lookAll(ctx, wanted, since, 0)
	}
	if err != nil {
		return nil, 0, err
	}
	page := make([]Summary, len(wanted))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, name := range wanted {
		page[i] = w.last(name)
	}
	return page, total, nil
}

// ranks are the sort keys of the orders.
var ranks = map[string]func(Summary) float64{
	"":        nil,
	"name":    nil,
	"use":     func(s Summary) float64 { return float64(s.Used) / float64(max(1, s.Limit)) },
	"waiting": func(s Summary) float64 { return float64(s.Waiting) },
	"oldest":  func(s Summary) float64 { return float64(s.Oldest) },
}

// last returns the last Summary of a semaphore. The lock is held.
func (w *Watcher) last(name string) Summary {
	found := Summary{Name: name}
	if s := w.semaphores[name]; s != nil {
		if !s.summary.Looked.IsZero() {
			found = s.summary
		}
		found.Err = s.err
	}
	return found
}

// arrange returns the names whose last Summary matches, sorted by its rank, and keeps the order
// of equal ranks. It ranks a name without a look like an unused semaphore. If such names came
// last, rows would change places with each look of the first round.
func (w *Watcher) arrange(names []string, match func(Summary) bool, rank func(Summary) float64) []string {
	type row struct {
		name string
		rank float64
	}
	var rows []row
	w.mu.Lock()
	for _, name := range names {
		s, r := w.last(name), row{name: name}
		if match != nil && !match(s) {
			continue
		}
		if rank != nil {
			r.rank = rank(s)
		}
		rows = append(rows, r)
	}
	w.mu.Unlock()
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.rank, a.rank) })
	for i := range rows {
		names[i] = rows[i].name
	}
	return names[:len(rows)]
}

// Totals are sums over the last looks at semaphores.
type Totals struct {
	Listed  int // semaphores in the last list
	Looked  int // semaphores of those with a look; the next fields are sums over these
	Holders int // permits
	Waiting int // callers
}

// Totals sums up the semaphores whose names begin with one of the prefixes; none: all. It
// makes no look.
func (w *Watcher) Totals(prefixes []string) Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t Totals
	for _, name := range w.names.list {
		if !begins(name, prefixes) {
			continue
		}
		t.Listed++
		if s := w.last(name); !s.Looked.IsZero() {
			t.Looked++
			t.Holders += s.Holders
			t.Waiting += s.Waiting
		}
	}
	return t
}

// Reached returns the time of the engine's last answer; zero: there was none.
func (w *Watcher) Reached() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached
}

// awaitRound continues rounds for Options.Linger. It waits for the next one if the last is
// older than oldRound.
func (w *Watcher) awaitRound(ctx context.Context) error {
	w.keepRounds(w.options.Linger)
	w.mu.Lock()
	began, done := w.rounds.began, w.rounds.done
	w.mu.Unlock()
	if time.Since(began) < oldRound {
		return nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rounds.err
}
