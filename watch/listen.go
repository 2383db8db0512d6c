package watch

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Filter says which semaphores to hear of.
type Filter struct {
	Name     string   // this semaphore alone, looked at every Options.Interval
	Prefixes []string // without Name: those that begin with one of these; none: all
}

// stream is what one listener has still to hear.
type stream struct {
	prefixes []string
	most     int
	hears    bool // guarded by the Watcher's lock: of many semaphores, after a first round
	away     bool // guarded by the Watcher's lock: it was told that rounds fail

	mu     sync.Mutex
	events []Event
	missed int
	more   chan struct{} // has a value when there is something new
}

// Events is what happens from now on, until ctx or the Watcher ends, or the
// loop does:
//
//	for e := range w.Events(ctx, watch.Filter{Name: "downloads"}) { … }
//
// The first event is Began. Events of one semaphore come in an order in which
// they can have happened. Many semaphores are looked at round after round,
// every Options.Interval if the Rate allows. A listener that is slow loses the
// oldest events and is told how many (Missed). A name that cannot be stays
// Unreachable.
func (w *Watcher) Events(ctx context.Context, of Filter) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.ctx, cancel)()
		t := &stream{prefixes: of.Prefixes, most: w.options.Buffer, more: make(chan struct{}, 1)}
		if of.Name != "" {
			s := w.use(of.Name)
			defer w.disuse(s)
			defer w.leave(s, t)
			w.join(ctx, s, t)
		} else {
			defer w.leaveAll(t)
			w.joinAll(ctx, t)
		}
		for ctx.Err() == nil {
			for _, e := range t.take() {
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

// add has a listener hear of events, if there is room.
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

// take is what has come, in front of it what was missed.
func (t *stream) take() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	if t.missed > 0 {
		events = append([]Event{{Time: time.Now(), Kind: Missed, Missed: t.missed}}, events...)
	}
	t.events, t.missed = nil, 0
	return events
}

// join has a stream hear of one semaphore, from a first look on.
func (w *Watcher) join(ctx context.Context, s *watched, t *stream) {
	ctx, leave, err := w.enter(ctx)
	if err != nil {
		return
	}
	defer leave()
	w.keep(0)
	if w.take(ctx, s) != nil {
		return
	}
	defer func() { <-s.turn }()
	st, err := w.look(ctx, s, true)
	if ctx.Err() != nil {
		return
	}
	t.add(Event{Time: time.Now(), Semaphore: s.name, Kind: Began, Limit: st.Limit})
	if err != nil {
		t.add(Event{Time: time.Now(), Semaphore: s.name, Kind: Unreachable, Err: err})
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

func (w *Watcher) leave(s *watched, t *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(s.listeners, t)
	if len(s.listeners) == 0 && s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// poll looks at a semaphore as long as somebody listens to it.
func (w *Watcher) poll(ctx context.Context, s *watched) {
	defer w.disuse(s)
	ticker := time.NewTicker(w.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		_ = w.glance(ctx, s.name, time.Now().Add(-w.options.Interval/2)) // listeners are told
	}
}

// joinAll has a stream hear of many semaphores, after a first round.
func (w *Watcher) joinAll(ctx context.Context, t *stream) {
	w.mu.Lock()
	w.wide[t] = struct{}{} // from now on what looks find is kept
	asked, done := time.Now(), w.rounds.done
	w.hurry()
	w.mu.Unlock()
	w.keep(0)
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
		if err != nil && !t.away {
			t.away = true
			t.add(Event{Time: time.Now(), Kind: Unreachable, Err: err})
		}
		if current {
			t.hears = true
			t.add(Event{Time: time.Now(), Kind: Began})
		}
		w.mu.Unlock()
		if current {
			return
		}
	}
}

func (w *Watcher) leaveAll(t *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wide, t)
}

// heard reports whether a stream of many semaphores has this one, or somebody
// follows all looks. The lock is held.
func (w *Watcher) heard(name string) bool {
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

// publish tells all listeners of a semaphore. The lock is held.
func (w *Watcher) publish(s *watched, events []Event) {
	if len(events) == 0 {
		return
	}
	for t := range s.listeners {
		t.add(events...)
	}
	for t := range w.wide {
		if t.hears && begins(s.name, t.prefixes) {
			t.add(events...)
		}
	}
}

// tellWide tells listeners of many semaphores whether rounds succeed. The lock
// is held.
func (w *Watcher) tellWide(err error) {
	for t := range w.wide {
		if !t.hears || t.away == (err != nil) {
			continue
		}
		t.away = err != nil
		e := Event{Time: time.Now(), Kind: Reachable}
		if err != nil {
			e.Kind, e.Err = Unreachable, err
		}
		t.add(e)
	}
}
