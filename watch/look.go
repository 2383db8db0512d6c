package watch

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// idleSession is how long a session stays open after the last look.
const idleSession = time.Minute

// watched is the state of one semaphore in a Watcher.
type watched struct {
	name     string
	lookLock chan struct{} // the lock of a look: full while one runs

	session protocol.Session // guarded by lookLock

	// Guarded by the Watcher's lock. A look writes its results with lookLock held as well.
	users     int           // how many goroutines have or wait for lookLock
	listed    bool          // it is in the engine's last list
	openEntry *list.Element // in Watcher.open
	looked    time.Time     // the end of the last successful look
	began     time.Time     // the beginning of that look
	summary   Summary       // of that look; Looked is zero if there was none
	state     *engine.State // of that look; nil unless a caller may need it
	err       error         // of the last look
	listeners map[*stream]struct{}
	stop      context.CancelFunc // of its poller; nil: there is none
}

// State returns a snapshot of a semaphore that is taken after the call. An unused semaphore
// has limit 0. Errors are engine.ErrEngine, *engine.ArgumentError, or engine.ErrClosed.
func (w *Watcher) State(ctx context.Context, name string) (engine.State, error) {
	st, _, err := w.stateSince(ctx, name, time.Now())
	return st, err
}

// Recent is State, but the snapshot may be up to Options.Fresh old, so that callers share
// it. Recent also returns the time of the snapshot: ages and waits have grown since then.
func (w *Watcher) Recent(ctx context.Context, name string) (engine.State, time.Time, error) {
	return w.stateSince(ctx, name, time.Now().Add(-w.options.Fresh))
}

func (w *Watcher) stateSince(ctx context.Context, name string, since time.Time) (engine.State, time.Time, error) {
	if err := engine.ValidateName(name); err != nil {
		return engine.State{}, time.Time{}, err
	}
	inner, done, err := w.enter(ctx)
	if err != nil {
		return engine.State{}, time.Time{}, err
	}
	defer done()
	w.keepRounds(0)
	s := w.use(name)
	defer w.release(s)
	if err := w.lockLook(inner, s); err != nil {
		return engine.State{}, time.Time{}, w.failed(ctx, "state", name, err)
	}
	defer func() { <-s.lookLock }()
	w.mu.Lock()
	st, began, looked := s.state, s.began, s.looked
	w.mu.Unlock()
	if st != nil && began.After(since) {
		return *st, looked, nil
	}
	found, err := w.look(inner, s, true)
	return found, time.Now(), w.failed(ctx, "state", name, err)
}

var errNoAnswer = errors.New("no answer in time")

// failed makes the error of a call. ctx is the context of the caller.
func (w *Watcher) failed(ctx context.Context, op, name string, err error) error {
	var whole *engine.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		failure := &engine.Error{Op: op, Name: name, NotExecuted: true, Err: errNoAnswer}
		return fmt.Errorf("%w: %w", failure, ctx.Err())
	case w.ctx.Err() != nil:
		return engine.ErrClosed
	case errors.As(err, &whole):
		return err
	}
	return &engine.Error{Op: op, Name: name, NotExecuted: true, Err: err}
}

// use returns the state of a name, or makes it. It is kept until release.
func (w *Watcher) use(name string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.semaphores[name]
	if s == nil {
		s = &watched{name: name, lookLock: make(chan struct{}, 1)}
		w.semaphores[name] = s
	}
	s.users++
	return s
}

func (w *Watcher) release(s *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.users--
	w.removeUnused(s)
}

// removeUnused removes the state of a semaphore if it is unused: callers may ask for any number of
// names. The lock is held.
func (w *Watcher) removeUnused(s *watched) {
	if s.users == 0 && !s.listed && s.openEntry == nil && len(s.listeners) == 0 {
		delete(w.semaphores, s.name)
	}
}

// lockLook locks a semaphore for a look. The caller unlocks it by receiving from lookLock.
func (w *Watcher) lockLook(ctx context.Context, s *watched) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.lookLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look takes a snapshot, records it, and sends the changes to the listeners. The caller has
// locked the semaphore. With keep, the whole snapshot is kept for later callers.
func (w *Watcher) look(ctx context.Context, s *watched, keep bool) (engine.State, error) {
	select {
	case w.parallel <- struct{}{}:
		defer func() { <-w.parallel }()
	case <-ctx.Done():
		return engine.State{}, ctx.Err()
	}
	if s.session == nil {
		session, err := w.engine.Open(s.name, w.who, func(protocol.Notification) {})
		if err != nil {
			return engine.State{}, w.missed(ctx, s, err)
		}
		s.session = session
	}
	idle := w.opened(s)
	for _, other := range idle {
		w.closeSession(other)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	st, err := s.session.State(bounded)
	if err != nil {
		return engine.State{}, w.missed(ctx, s, err)
	}
	w.found(s, began, time.Now(), st, keep)
	return st, nil
}

// missed records that a look failed, unless the caller's context ended.
func (w *Watcher) missed(ctx context.Context, s *watched, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err == nil {
		w.publish(s, []Event{{Time: time.Now(), Semaphore: s.name, Kind: kindUnreachable, Err: err}})
	}
	s.err = err
	return err
}

func (w *Watcher) found(s *watched, began, now time.Time, st engine.State, keep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listened := len(s.listeners) > 0 || w.hasWideListener(s.name)
	seen := Summarize(s.name, now, st)
	var since time.Duration // since the beginning of the look before; 0: there was none to compare with
	var events []Event
	if listened {
		if s.err != nil {
			w.publish(s, []Event{{Time: now, Semaphore: s.name, Kind: kindReachable}})
		}
		switch {
		case s.state != nil:
			since = now.Sub(s.began)
			events = changes(s.name, *s.state, st, now, since)
		case s.summary.Looked.IsZero() && s.err == nil: // the semaphore is new since the first round
			events = changes(s.name, engine.State{}, st, now, 0)
		}
		w.publish(s, events)
	}
	for f := range w.followers {
		(*f)(Look{seen, st, since, events})
	}
	s.err, s.began, s.looked, w.reached = nil, began, now, now
	s.summary, s.state = seen, nil
	if keep || listened {
		s.state = &st
	}
}

// opened records that a semaphore has a session, and picks sessions to close if there are too
// many.
func (w *Watcher) opened(s *watched) (idle []*watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.openEntry != nil {
		w.open.MoveToBack(s.openEntry)
	} else {
		s.openEntry = w.open.PushBack(s)
	}
	return w.pick(func(other *watched, open int) bool { return open > w.options.Open && other != s })
}

// pick locks semaphores whose sessions are to be closed, in the order of their last look, as
// long as f returns true. It skips those in use. The Watcher's lock is held; the caller
// passes the result to closeSession without it.
func (w *Watcher) pick(f func(s *watched, open int) bool) (picked []*watched) {
	for at, open := w.open.Front(), w.open.Len(); at != nil; {
		s, next := at.Value.(*watched), at.Next()
		if !f(s, open) {
			break
		}
		if len(s.listeners) == 0 {
			select {
			case s.lookLock <- struct{}{}:
				w.unlist(s)
				s.users++
				picked = append(picked, s)
				open--
			default:
			}
		}
		at = next
	}
	return picked
}

func (w *Watcher) unlist(s *watched) {
	w.open.Remove(s.openEntry)
	s.openEntry = nil
}

// closeSession closes the session of a semaphore that pick returned.
func (w *Watcher) closeSession(s *watched) {
	if s.session != nil {
		_ = s.session.Close() // frees only local resources
		s.session = nil
	}
	w.mu.Lock()
	if !w.hasWideListener(s.name) {
		s.state = nil
	}
	w.mu.Unlock()
	<-s.lookLock
	w.release(s)
}
