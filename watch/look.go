package watch

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"sema/engine"
)

// idleSession is how long a session stays open after the last look.
const idleSession = time.Minute

// watched is what a Watcher knows about one semaphore.
type watched struct {
	name string
	turn chan struct{} // a lock that lasts through a look

	session engine.Session // guarded by turn

	// Guarded by the Watcher's lock. The findings of a look are written with turn held.
	users     int           // so many hold or await the turn
	listed    bool          // the engine listed it when last asked
	place     *list.Element // in Watcher.open
	looked    time.Time     // when the last look that succeeded ended
	began     time.Time     // and when it began
	summary   Summary       // of that look; its Looked is zero: there was none
	state     *engine.State // of that look, if somebody may want it
	err       error         // of the last look
	listeners map[*stream]struct{}
	stop      context.CancelFunc // of its poller; nil: there is none
}

// State is a snapshot of a semaphore, taken after the call began. One that
// nobody has used has limit 0. Errors are engine.ErrEngine, *engine.ArgumentError, or
// engine.ErrClosed.
func (w *Watcher) State(ctx context.Context, name string) (engine.State, error) {
	st, _, err := w.stateSince(ctx, name, time.Now())
	return st, err
}

// Recent is State, but the snapshot may have been taken for somebody else, at
// most Options.Fresh ago. It says when: ages and waits grew since then.
func (w *Watcher) Recent(ctx context.Context, name string) (engine.State, time.Time, error) {
	return w.stateSince(ctx, name, time.Now().Add(-w.options.Fresh))
}

func (w *Watcher) stateSince(ctx context.Context, name string, since time.Time) (engine.State, time.Time, error) {
	if err := engine.ValidateName(name); err != nil {
		return engine.State{}, time.Time{}, err
	}
	inner, leave, err := w.enter(ctx)
	if err != nil {
		return engine.State{}, time.Time{}, err
	}
	defer leave()
	w.keep(0)
	s := w.use(name)
	defer w.disuse(s)
	if err := w.take(inner, s); err != nil {
		return engine.State{}, time.Time{}, w.failed(ctx, "state", name, err)
	}
	defer func() { <-s.turn }()
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

// failed is the error of a call for its caller, whose context is ctx.
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

// use is what is known of a name, made if need be, and kept until disuse.
func (w *Watcher) use(name string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.semaphores[name]
	if s == nil {
		s = &watched{name: name, turn: make(chan struct{}, 1)}
		w.semaphores[name] = s
	}
	s.users++
	return s
}

func (w *Watcher) disuse(s *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.users--
	w.tidy(s)
}

// tidy forgets a semaphore that nobody needs: the names that people ask for may be
// any. The lock is held.
func (w *Watcher) tidy(s *watched) {
	if s.users == 0 && !s.listed && s.place == nil && len(s.listeners) == 0 {
		delete(w.semaphores, s.name)
	}
}

// take waits for the turn of a semaphore. Its owner gives it back by receiving.
func (w *Watcher) take(ctx context.Context, s *watched) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look takes a snapshot, notes it, and tells the listeners what changed. The
// turn is held. keep says that somebody may want the whole of it once more.
func (w *Watcher) look(ctx context.Context, s *watched, keep bool) (engine.State, error) {
	select {
	case w.parallel <- struct{}{}:
		defer func() { <-w.parallel }()
	case <-ctx.Done():
		return engine.State{}, ctx.Err()
	}
	if s.session == nil {
		session, err := w.engine.Open(s.name, w.who, func(engine.Notification) {})
		if err != nil {
			return engine.State{}, w.missed(ctx, s, err)
		}
		s.session = session
	}
	idle := w.opened(s)
	for _, other := range idle {
		w.shut(other)
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

// missed notes that a look failed, unless its caller had enough.
func (w *Watcher) missed(ctx context.Context, s *watched, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err == nil {
		w.publish(s, []Event{{Time: time.Now(), Semaphore: s.name, Kind: Unreachable, Err: err}})
	}
	s.err = err
	return err
}

// found notes what a look found.
func (w *Watcher) found(s *watched, began, now time.Time, st engine.State, keep bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := len(s.listeners) > 0 || w.heard(s.name)
	seen := Look{Summary: Summarize(s.name, now, st), State: st}
	if heard {
		if s.err != nil {
			w.publish(s, []Event{{Time: now, Semaphore: s.name, Kind: Reachable}})
		}
		switch {
		case s.state != nil:
			seen.Since = now.Sub(s.began)
			seen.Events = changes(s.name, *s.state, st, now, seen.Since)
		case s.summary.Looked.IsZero() && s.err == nil: // it was not there when others were first looked at
			seen.Events = changes(s.name, engine.State{}, st, now, 0)
		}
		w.publish(s, seen.Events)
	}
	w.tellFollowers(seen)
	s.err, s.began, s.looked, w.reached = nil, began, now, now
	s.summary = seen.Summary
	s.state = nil
	if keep || heard {
		s.state = &st
	}
}

// opened notes that a semaphore has a session, and picks those to be closed for it.
func (w *Watcher) opened(s *watched) (idle []*watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.place != nil {
		w.open.MoveToBack(s.place)
	} else {
		s.place = w.open.PushBack(s)
	}
	return w.pick(func(other *watched, open int) bool { return open > w.options.Open && other != s })
}

// pick takes the turns of semaphores whose session is to be closed, from the one
// looked at longest ago on, as long as f says so. Those in use are passed over.
// The lock is held; the caller shuts them without it.
func (w *Watcher) pick(f func(s *watched, open int) bool) (picked []*watched) {
	for at, open := w.open.Front(), w.open.Len(); at != nil; {
		s, next := at.Value.(*watched), at.Next()
		if !f(s, open) {
			break
		}
		if len(s.listeners) == 0 {
			select {
			case s.turn <- struct{}{}:
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
	w.open.Remove(s.place)
	s.place = nil
}

// shut closes the session of a semaphore that pick returned.
func (w *Watcher) shut(s *watched) {
	if s.session != nil {
		_ = s.session.Close() // it frees local things only
		s.session = nil
	}
	w.mu.Lock()
	if !w.heard(s.name) {
		s.state = nil
	}
	w.mu.Unlock()
	<-s.turn
	w.disuse(s)
}
