package watch

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Filter selects the semaphores of a listener.
type Filter struct {
	Name     string   // only this semaphore, with a look every Options.Interval
	Prefixes []string // without Name: semaphores that begin with one of these; none: all
}

// stream has the events that a listener has not received yet.
type stream struct {
	prefixes []string
	most     int
	live     bool // guarded by the Watcher's lock: the first round is complete
	failing  bool // guarded by the Watcher's lock: the listener knows that rounds fail

	mu     sync.Mutex
	events []Event
	missed int
	more   chan struct{} // has an element when there are new events
}

// Events returns the events from now on, until the loop ends, or ctx or the Watcher:
//
//	for e := range w.Events(ctx, watch.Filter{Name: "downloads"}) { … }
//
// The first event is Began. The events of one semaphore come in a possible order of their
// changes. For many semaphores the Watcher makes a round every Options.Interval, or less
// often if the Rate requires that. A slow listener loses the oldest events, and is told
// their number (Missed). An invalid name stays Unreachable.
func (w *Watcher) Events(ctx context.Context, of Filter) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.ctx, cancel)()
		t := &stream{prefixes: of.Prefixes, most: w.options.Buffer, more: make(chan struct{}, 1)}
		if of.Name != "" {
			s := w.use(of.Name)
			defer w.release(s)
			defer w.removeListener(s, t)
			w.addListener(ctx, s, t)
		} else {
			defer w.removeWide(t)
			w.addWide(ctx, t)
		}
		for ctx.Err() == nil {
			for _, e := range t.drain() {
				if !yield(e) {
					return
				}
			}
			select {
			case <-t.more:
			case <-ctx.Done():
			}
		}
	}
}

// add queues events for the listener. If there are too many, it drops the oldest.
func (t *stream) add(events ...Event) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	t.events = append(t.events, events...)
	if over := len(t.events) - t.most; over > 0 {
		t.missed += over
		t.events = append(t.events[:0:0], t.events[over:]...)
	}
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// drain returns the queued events and empties the queue. If events were dropped, the first
// one is Missed.
func (t *stream) drain() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	if t.missed > 0 {
		events = append([]Event{{Time: time.Now(), Kind: kindMissed, Missed: t.missed}}, events...)
	}
	t.events, t.missed = nil, 0
	return events
}

// addListener adds a stream to the listeners of one semaphore, after a first look.
func (w *Watcher) addListener(ctx context.Context, s *watched, t *stream) {
	ctx, done, err := w.enter(ctx)
	if err != nil {
		return
	}
	defer done()
	w.keepRounds(0)
	if w.lockLook(ctx, s) != nil {
		return
	}
	defer func() { <-s.lookLock }()
	st, err := w.look(ctx, s, true)
	if ctx.Err() != nil {
		return
	}
	t.add(Event{Time: time.Now(), Semaphore: s.name, Kind: kindBegan, Limit: st.Limit})
	if err != nil {
		t.add(Event{Time: time.Now(), Semaphore: s.name, Kind: kindUnreachable, Err: err})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.listeners == nil {
		s.listeners = map[*stream]struct{}{}
	}
	s.listeners[t] = struct{}{}
	if s.stop == nil && !w.closed {
		polling, stop := context.WithCancel(w.ctx)
		s.stop = stop
		s.users++
		w.running.Go(func() { w.poll(polling, s) })
	}
}

func (w *Watcher) removeListener(s *watched, t *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(s.listeners, t)
	if len(s.listeners) == 0 && s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// poll looks at a semaphore every Interval, as long as it has listeners.
func (w *Watcher) poll(ctx context.Context, s *watched) {
	defer w.release(s)
	ticker := time.NewTicker(w.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		_ = w.ensureLook(ctx, s.name, time.Now().Add(-w.options.Interval/2)) // listeners receive an error as an event
	}
}

// addWide adds a stream to the listeners of many semaphores, after a first round.
func (w *Watcher) addWide(ctx context.Context, t *stream) {
	w.mu.Lock()
	w.wide[t] = struct{}{} // from now on the Watcher keeps snapshots, to compare them
	asked, done := time.Now(), w.rounds.done
	w.startRound()
	w.mu.Unlock()
	w.keepRounds(0)
	var err error
	for ctx.Err() == nil {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		done, err = w.rounds.done, w.rounds.err
		current := !w.rounds.began.Before(asked)
		if err != nil && !t.failing {
			t.failing = true
			t.add(Event{Time: time.Now(), Kind: kindUnreachable, Err: err})
		}
		if current {
			t.live = true
			t.add(Event{Time: time.Now(), Kind: kindBegan})
		}
		w.mu.Unlock()
		if current {
			return
		}
	}
}

func (w *Watcher) removeWide(t *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wide, t)
}

// hasWideListener reports whether a stream of many semaphores includes this one, or there is a
// follower. The lock is held.
func (w *Watcher) hasWideListener(name string) bool {
	if len(w.followers) > 0 {
		return true
	}
	for t := range w.wide {
		if begins(name, t.prefixes) {
			return true
		}
	}
	return false
}

// publish sends events to all listeners of a semaphore. The lock is held.
func (w *Watcher) publish(s *watched, events []Event) {
	if len(events) == 0 {
		return
	}
	for t := range s.listeners {
		t.add(events...)
	}
	for t := range w.wide {
		if t.live && begins(s.name, t.prefixes) {
			t.add(events...)
		}
	}
}

// tellWide sends Reachable or Unreachable to the listeners of many semaphores, if the result
// of rounds has changed. The lock is held.
func (w *Watcher) tellWide(err error) {
	for t := range w.wide {
		if !t.live || t.failing == (err != nil) {
			continue
		}
		t.failing = err != nil
		e := Event{Time: time.Now(), Kind: kindReachable}
		if err != nil {
			e.Kind, e.Err = kindUnreachable, err
		}
		t.add(e)
	}
}
