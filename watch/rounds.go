package watch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sema/engine"
)

// housekeeping is how often idle sessions are closed.
const housekeeping = 5 * time.Second

// listTime is the time limit of listing the names.
const listTime = 30 * time.Second

// rounds is the state of the rounds through all semaphores. It is guarded by the Watcher's
// lock.
type rounds struct {
	until   time.Time     // rounds continue until then
	keeping bool          // the keeper runs
	due     bool          // the next round is due now
	wake    chan struct{} // an element wakes the keeper
	done    chan struct{} // closed and replaced at the end of each round
	began   time.Time     // the beginning of the last successful round
	err     error         // of the last round
}

// names are the existing semaphores. The fields are guarded by the Watcher's lock, and
// written with listLock held as well.
type names struct {
	listLock chan struct{} // the lock of a list: full while one runs
	list     []string
	began    time.Time // zero: there is no list
	took     time.Duration
}

// keepRounds starts the keeper, and continues rounds for the given time.
func (w *Watcher) keepRounds(rounds time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, now := &w.rounds, time.Now()
	if rounds > 0 {
		if now.After(r.until) {
			w.startRound()
		}
		r.until = now.Add(rounds)
	}
	if !r.keeping && !w.closed {
		r.keeping = true
		w.running.Go(w.keeper)
	}
}

// startRound makes the keeper begin a round now. The lock is held.
func (w *Watcher) startRound() {
	w.rounds.due = true
	select {
	case w.rounds.wake <- struct{}{}:
	default:
	}
}

// keeper makes rounds and closes idle sessions, until both are done.
func (w *Watcher) keeper() {
	var next time.Time // the time of the next round
	for {
		now := time.Now()
		w.mu.Lock()
		r, wide := &w.rounds, len(w.wide) > 0
		going := wide || slices.Contains(slices.Collect(maps.Values(w.followers)), true) || now.Before(r.until)
		due := going && (r.due || !now.Before(next))
		r.due = r.due && !due
		if !going && now.Sub(w.names.began) > housekeeping {
			r.began = time.Time{}
			w.setNames(nil)
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
			w.closeSession(s)
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

// round looks at all semaphores once. It returns the time that listing them took.
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

// alsoGone adds the semaphores that existed at their last look, so that listeners are
// notified of their end.
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

// lookAll looks at the semaphores whose last look began before since, at most rate a second
// (0: no limit). It fails only if no look succeeded, or ctx ended.
func (w *Watcher) lookAll(ctx context.Context, list []string, since time.Time, rate int) error {
	_, err := w.each(ctx, list, rate, func(name string) error { return w.ensureLook(ctx, name, since) })
	return err
}

// each calls look for each name, several at a time and at most rate a second (0: no limit).
// It returns how many failed. The error is nil unless all failed, or ctx ended.
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
	enough := func() bool { // the engine is away, so the other looks would fail too
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

// pause sleeps for d, unless d is under a millisecond.
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

// ensureLook looks at a semaphore, unless its last look began after since.
func (w *Watcher) ensureLook(ctx context.Context, name string, since time.Time) error {
	s := w.use(name)
	defer w.release(s)
	if err := w.lockLook(ctx, s); err != nil {
		return err
	}
	defer func() { <-s.lookLock }()
	w.mu.Lock()
	known := s.err == nil && s.began.After(since)
	w.mu.Unlock()
	if known {
		return nil
	}
	_, err := w.look(ctx, s, false)
	return err
}

// list returns the names of all semaphores, from a list that began after since.
func (w *Watcher) list(ctx context.Context, since time.Time) ([]string, error) {
	n := &w.names
	select {
	case n.listLock <- struct{}{}:
		defer func() { <-n.listLock }()
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
		return nil, cmp.Or(ctx.Err(), err)
	}
	// Invalid names come from other programs' keys in the store.
	list = slices.DeleteFunc(list, func(name string) bool { return engine.ValidateName(name) != nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setNames(list)
	n.list, n.began, n.took, w.reached = list, began, time.Since(began), time.Now()
	return list, nil
}

// setNames makes the state of the listed semaphores, and removes that of unused ones. The lock is
// held.
func (w *Watcher) setNames(list []string) {
	for _, s := range w.semaphores {
		s.listed = false
	}
	for _, name := range list {
		s := w.semaphores[name]
		if s == nil {
			s = &watched{name: name, lookLock: make(chan struct{}, 1)}
			w.semaphores[name] = s
		}
		s.listed = true
	}
	for _, s := range w.semaphores {
		w.removeUnused(s)
	}
}
