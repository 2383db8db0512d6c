package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"sema/engine"
)

// housekeeping is how often idle sessions are looked for.
const housekeeping = 5 * time.Second

// listTime bounds how long listing the names may take.
const listTime = 30 * time.Second

// rounds is the state of going through all semaphores. Guarded by the
// Watcher's lock.
type rounds struct {
	until   time.Time     // they go on until then
	keeping bool          // keeper runs
	hurry   bool          // the next one is due now
	wake    chan struct{} // a word for the keeper
	done    chan struct{} // closed at the end of each round, and made anew
	began   time.Time     // the last one that ended without an error
	err     error         // of the last one
}

// names is what exists. The list is guarded by the Watcher's lock, and written
// with turn held.
type names struct {
	turn  chan struct{}
	list  []string
	began time.Time // zero: not known
	took  time.Duration
}

// keep has the keeper run, and rounds go on for so long.
func (w *Watcher) keep(rounds time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, now := &w.rounds, time.Now()
	if rounds > 0 {
		if now.After(r.until) {
			w.hurry()
		}
		r.until = now.Add(rounds)
	}
	if !r.keeping && !w.closed {
		r.keeping = true
		w.running.Go(w.keeper)
	}
}

// hurry has the keeper begin a round now. The lock is held.
func (w *Watcher) hurry() {
	w.rounds.hurry = true
	select {
	case w.rounds.wake <- struct{}{}:
	default:
	}
}

// keeper goes round and closes idle sessions, until nothing is left to be done.
func (w *Watcher) keeper() {
	var next time.Time // round
	for {
		now := time.Now()
		w.mu.Lock()
		r, wide := &w.rounds, len(w.wide) > 0
		going := wide || w.followedAlways() || now.Before(r.until)
		due := going && (r.hurry || !now.Before(next))
		r.hurry = r.hurry && !due
		if !going && now.Sub(w.names.began) > housekeeping {
			r.began = time.Time{}
			w.name(nil)
			w.names.list, w.names.began = nil, time.Time{}
		}
		idle := w.pick(func(s *watched, _ int) bool { return now.Sub(s.looked) > idleSession })
		if w.closed || !going && w.open.Len() == 0 && len(w.semaphores) == 0 {
			r.keeping = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		for _, s := range idle {
			w.shut(s)
		}
		rest := housekeeping
		if due {
			took := w.round()
			every := w.options.Rounds
			if wide {
				every = w.options.Interval
			}
			next = now.Add(max(every, 10*took))
		}
		if going {
			rest = min(rest, time.Until(next))
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-w.rounds.wake:
		case <-w.ctx.Done():
		}
		timer.Stop()
	}
}

// round looks at all semaphores once. It returns how long it took to list them.
func (w *Watcher) round() time.Duration {
	began := time.Now()
	found, err := w.list(w.ctx, began)
	if err == nil {
		err = w.lookAll(w.ctx, w.alsoGone(found), began, w.options.Rate)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.tellWide(err)
	}
	w.rounds.err = err
	if err == nil {
		w.rounds.began = began
	}
	close(w.rounds.done)
	w.rounds.done = make(chan struct{})
	return w.names.took
}

// alsoGone adds the names that were there when last looked at: listeners want
// to hear that they are gone.
func (w *Watcher) alsoGone(found []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(found)
	for name, s := range w.semaphores {
		if !s.listed && s.state != nil && s.state.Limit > 0 {
			all = append(all, name)
		}
	}
	return all
}

// lookAll looks at the semaphores whose last look began before since, at most
// rate a second (0: as fast as can be). It fails only if no look succeeded, or
// ctx ended.
func (w *Watcher) lookAll(ctx context.Context, list []string, since time.Time, rate int) error {
	_, err := w.each(ctx, list, rate, func(name string) error { return w.glance(ctx, name, since) })
	return err
}

// each looks at semaphores as look does, several at a time and at most rate a second
// (0: as fast as can be), and says how many looks failed. The error is nil unless all
// did, or ctx ended.
func (w *Watcher) each(ctx context.Context, list []string, rate int, look func(name string) error) (failures int, failure error) {
	began, work := time.Now(), make(chan string)
	var mu sync.Mutex
	succeeded := 0
	var workers sync.WaitGroup
	for range min(w.options.Parallel, len(list)) {
		workers.Go(func() {
			for name := range work {
				err := look(name)
				mu.Lock()
				if err != nil {
					failure = err
					failures++
				} else {
					succeeded++
				}
				mu.Unlock()
			}
		})
	}
	enough := func() bool { // the engine is away: no need to hear it from all
		mu.Lock()
		defer mu.Unlock()
		return succeeded == 0 && failures > 2*w.options.Parallel
	}
	for i, name := range list {
		if rate > 0 {
			pause(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate))))
		}
		if ctx.Err() != nil || enough() {
			break
		}
		work <- name
	}
	close(work)
	workers.Wait()
	if succeeded > 0 || ctx.Err() != nil {
		failure = ctx.Err()
	}
	return failures, failure
}

// pause sleeps, if it is worth it.
func pause(ctx context.Context, d time.Duration) {
	if d < time.Millisecond {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// glance sees to it that a look at a semaphore has begun since then.
func (w *Watcher) glance(ctx context.Context, name string, since time.Time) error {
	s := w.use(name)
	defer w.disuse(s)
	if err := w.take(ctx, s); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	w.mu.Lock()
	known := s.err == nil && s.began.After(since)
	w.mu.Unlock()
	if known {
		return nil
	}
	_, err := w.look(ctx, s, false)
	return err
}

// list is the names of all semaphores, listed since then.
func (w *Watcher) list(ctx context.Context, since time.Time) ([]string, error) {
	n := &w.names
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	list, current := n.list, !n.began.Before(since)
	w.mu.Unlock()
	if current {
		return list, nil
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list, err := w.engine.List(bounded)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	// A key that looks like ours under a name that cannot be is nobody's.
	list = slices.DeleteFunc(list, func(name string) bool { return engine.ValidateName(name) != nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.name(list)
	n.list, n.began, n.took, w.reached = list, began, time.Since(began), time.Now()
	return list, nil
}

// name keeps the semaphores of these names, and forgets others that nobody needs.
// The lock is held.
func (w *Watcher) name(list []string) {
	for _, s := range w.semaphores {
		s.listed = false
	}
	for _, name := range list {
		s := w.semaphores[name]
		if s == nil {
			s = &watched{name: name, turn: make(chan struct{}, 1)}
			w.semaphores[name] = s
		}
		s.listed = true
	}
	for _, s := range w.semaphores {
		w.tidy(s)
	}
}
