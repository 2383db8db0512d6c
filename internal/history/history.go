// Package history keeps what a watch.Watcher saw of each semaphore in the last hour: its use,
// the waits of its callers, and what happened, with the acts of operators.
//
// A History knows only the looks of its Watcher, and may miss a permit that is held for less
// than the time between two looks. So counts are lower bounds, and times are exact to within
// that time.
package history

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
	"unsafe"

	"sema/access"
	"sema/engine"
	"sema/watch"
)

// Keep is how far back a History goes.
const Keep = time.Hour

// maxStep is the coarsest resolution of the figures.
const maxStep = Keep / 120

// usualBytes is the size of the data that a History keeps at the most. It is enough for an
// hour of 1,000 semaphores that change all the time. Its memory is about a third larger,
// because lists have room to grow.
const usualBytes = 48_000_000

// mostEvents is how many events a semaphore has at the most.
const mostEvents = 4000

// Options of a History.
type Options struct {
	Always bool // the Watcher looks at all semaphores all the time; else only if other calls cause looks
	Bytes  int  // 0: usualBytes
}

// History keeps the looks of a Watcher. Create it with New, share it, and close it. It is
// safe for concurrent use.
type History struct {
	step      time.Duration // the resolution of the figures
	mostRows  int
	mostBytes int // of events
	cancel    context.CancelFunc

	mu         sync.Mutex
	forgot     time.Time // when old data was dropped
	semaphores map[string]*semaphore
	rows       int // of all semaphores
	bytes      int // of the events of all semaphores
}

// semaphore has the data of one semaphore. It is guarded by the History's lock.
type semaphore struct {
	rows   []row   // the oldest first
	events []Event // in the order of the looks
	bytes  int     // of events
	waits  Waits   // of all rows

	// Of the last look. The snapshot is shared, and not to be changed.
	looked  time.Time
	holders []engine.Holder
	waiters []engine.Waiter
	leases  map[string]time.Duration // of holders: the longest rest of the lease in any look
	dying   int                      // holders that have not renewed for two thirds of their lease

	full, paused time.Time                 // the first of the looks that all found it so; zero: the last did not
	acts         map[string]*access.Record // the last of each kind that was done
}

// Event is something that happened.
type Event struct {
	watch.Event                // Time is that of a grant, or of a ticket, rather than of the look that found it
	Act         *access.Record // of an operator; nil: a look found a change
}

// size is about the memory of an event, in bytes.
func (e *Event) size() int {
	n := int(unsafe.Sizeof(*e)) + len(e.Permit) + len(e.Key) + len(e.Takes) + len(e.Client.Host) + len(e.Client.Label) + len(e.Client.Version) + len(e.Client.Caller)
	if e.Act != nil {
		n += int(unsafe.Sizeof(*e.Act)) + len(e.Act.Who) + len(e.Act.Permit) + len(e.Act.Key) + len(e.Act.Pools) + len(e.Act.Result)
	}
	return n
}

// New begins to keep the looks of a Watcher. The caller closes the Watcher, after the History.
func New(w *watch.Watcher, o Options) *History {
	bytes := cmp.Or(o.Bytes, usualBytes)
	h := &History{
		step: min(2*w.Options().Rounds, maxStep), semaphores: map[string]*semaphore{},
		mostRows: bytes / 2 / int(unsafe.Sizeof(row{})), mostBytes: bytes / 2, // so many events do not displace the figures
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	w.Follow(ctx, o.Always, h.add)
	return h
}

// Close ends the History. What it has can still be read.
func (h *History) Close() { h.cancel() }

// Step is the resolution of the figures.
func (h *History) Step() time.Duration { return h.step }

// Act notes the act of an operator.
func (h *History) Act(r access.Record) {
	h.lock()
	defer h.mu.Unlock()
	s := h.use(r.Name)
	h.note(s, Event{Event: watch.Event{Time: r.Time}, Act: &r})
	if r.Result == "done" {
		if s.acts == nil {
			s.acts = map[string]*access.Record{} // most semaphores need none
		}
		s.acts[r.What] = &r
	}
	h.shrink()
}

// use returns the data of a semaphore, or makes it. The lock is held.
func (h *History) use(name string) *semaphore {
	s := h.semaphores[name]
	if s == nil {
		s = &semaphore{}
		h.semaphores[name] = s
	}
	return s
}

// add keeps a look.
func (h *History) add(l watch.Look) {
	h.lock()
	defer h.mu.Unlock()
	if l.Limit == 0 && h.semaphores[l.Name] == nil {
		return // a caller asked for the name of an unused semaphore
	}
	s := h.use(l.Name)
	fresh := row{at: l.Looked.UnixNano() / int64(h.step), n: 1, used: int32(l.Used), limit: int32(l.Limit), waiting: int32(l.Waiting)}
	var waiting map[string]time.Duration
	if len(l.Events) > 0 {
		waiting = make(map[string]time.Duration, len(l.State.Waiters))
		for i := range l.State.Waiters {
			waiting[l.State.Waiters[i].ID] = l.State.Waiters[i].Waiting
		}
	}
	for _, e := range l.Events {
		switch e.Kind {
		case "queued":
			e.Time = e.Time.Add(-waiting[e.Permit])
		case "granted":
			e.Time = e.Time.Add(-e.Held)
			if l.Since > 0 || e.Held < h.step { // else how long it waited is unknown
				class := &fresh.waits[classOf(e.Waited)]
				*class = sum(*class, 1)
			}
		}
		h.note(s, Event{Event: e})
	}
	before := len(s.rows)
	s.put(fresh)
	h.rows += len(s.rows) - before
	s.hold(l)
	h.shrink()
}

// note adds an event. The lock is held.
func (h *History) note(s *semaphore, e Event) {
	if time.Since(e.Time) > Keep {
		return
	}
	if len(s.events) == mostEvents {
		h.dropEvents(s, mostEvents/2)
	}
	s.events = append(s.events, e)
	s.bytes += e.size()
	h.bytes += e.size()
}

// hold replaces the holders and waiters by those of a look.
func (s *semaphore) hold(l watch.Look) {
	leases := make(map[string]time.Duration, len(l.State.Holders))
	s.looked, s.holders, s.waiters, s.dying = l.Looked, l.State.Holders, l.State.Waiters, 0
	for i := range s.holders {
		holder := &s.holders[i]
		leases[holder.ID] = max(s.leases[holder.ID], holder.Left)
		if dying(holder, leases) {
			s.dying++
		}
	}
	s.leases = leases
	s.full = lasts(s.full, l.Looked, l.Limit > 0 && l.Used >= l.Limit)
	s.paused = lasts(s.paused, l.Looked, l.Paused)
}

// lasts is since when something is so that a look found so, or not.
func lasts(since, looked time.Time, now bool) time.Time {
	switch {
	case !now:
		return time.Time{}
	case since.IsZero():
		return looked
	}
	return since
}

// dying reports whether a holder had not renewed for two thirds of its lease at the last
// look. A living holder renews twice in that time.
func dying(holder *engine.Holder, leases map[string]time.Duration) bool {
	return holder.Left < leases[holder.ID]/3
}

// shrink drops the older half of the largest semaphore's past, as long as all have
// too much. The lock is held.
func (h *History) shrink() {
	most := func(of func(*semaphore) int) (found *semaphore) {
		for _, s := range h.semaphores {
			if found == nil || of(s) > of(found) {
				found = s
			}
		}
		return found
	}
	for h.rows > h.mostRows {
		s := most(func(s *semaphore) int { return len(s.rows) })
		h.dropRows(s, (len(s.rows)+1)/2)
	}
	for h.bytes > h.mostBytes {
		s := most(func(s *semaphore) int { return s.bytes })
		h.dropEvents(s, (len(s.events)+1)/2)
	}
}

// dropRows drops the n oldest rows. The lock is held.
func (h *History) dropRows(s *semaphore, n int) {
	for i := range s.rows[:n] {
		for class, count := range s.rows[i].waits {
			s.waits[class] -= int(count)
		}
	}
	s.rows = drop(s.rows, n)
	h.rows -= n
}

// dropEvents drops the n oldest events. The lock is held.
func (h *History) dropEvents(s *semaphore, n int) {
	for i := range s.events[:n] {
		size := s.events[i].size()
		s.bytes -= size
		h.bytes -= size
	}
	s.events = drop(s.events, n)
}

// drop returns a list without its n first elements, in at most twice the memory that it needs.
func drop[T any](list []T, n int) []T {
	list = slices.Delete(list, 0, n)
	if cap(list) > 2*len(list) {
		list = slices.Clone(list)
	}
	return list
}

// lock locks the History, and drops old data once a minute.
func (h *History) lock() {
	h.mu.Lock()
	now := time.Now()
	if now.Sub(h.forgot) < time.Minute {
		return
	}
	h.forgot = now
	before := now.Add(-Keep)
	for name, s := range h.semaphores {
		h.dropRows(s, old(s.rows, func(r row) bool { return (r.at+int64(r.n))*int64(h.step) < before.UnixNano() }))
		h.dropEvents(s, old(s.events, func(e Event) bool { return e.Time.Before(before) }))
		if len(s.rows)+len(s.events) == 0 && s.looked.Before(before) {
			delete(h.semaphores, name)
		}
	}
}

// old is how many of a list are old, from its beginning on.
func old[T any](list []T, isOld func(T) bool) int {
	if n := slices.IndexFunc(list, func(x T) bool { return !isOld(x) }); n >= 0 {
		return n
	}
	return len(list)
}

// Events returns the last events of a semaphore, the newest first, at most most of them.
func (h *History) Events(name string, most int) []Event {
	h.lock()
	defer h.mu.Unlock()
	s := h.semaphores[name]
	if s == nil {
		return nil
	}
	list := slices.Clone(s.events)
	slices.SortStableFunc(list, func(a, b Event) int { return a.Time.Compare(b.Time) })
	slices.Reverse(list)
	return list[:min(most, len(list))]
}

// Caller is one that holds a permit or waits for one, or did.
type Caller struct {
	Semaphore string
	ID        string
	Key       engine.Key
	Client    engine.Client
	Kind      string    // of the last watch.Event about it: queued, granted; released, ended, left
	Time      time.Time // of that
	Dying     bool      // it has not renewed for two thirds of its lease
}

// Here calls f with each holder and waiter of the last look at each semaphore. The History's
// lock is held meanwhile.
func (h *History) Here(f func(Caller)) {
	h.lock()
	defer h.mu.Unlock()
	for name, s := range h.semaphores {
		for i := range s.holders {
			holder := &s.holders[i]
			f(Caller{name, holder.ID, holder.Key, holder.Client, "granted", s.looked.Add(-holder.Age), dying(holder, s.leases)})
		}
		for i := range s.waiters {
			waiter := &s.waiters[i]
			f(Caller{name, waiter.ID, waiter.Key, waiter.Client, "queued", s.looked.Add(-waiter.Waiting), false})
		}
	}
}

// Gone calls f with each that held or waited and has gone. The History's lock is held
// meanwhile.
func (h *History) Gone(f func(Caller)) {
	h.lock()
	defer h.mu.Unlock()
	for name, s := range h.semaphores {
		for i := range s.events {
			switch e := &s.events[i]; e.Kind {
			case "released", "ended", "left":
				f(Caller{name, e.Permit, e.Key, e.Client, e.Kind, e.Time, false})
			}
		}
	}
}

// Glance is a summary of a semaphore.
type Glance struct {
	Dying int           // holders that have not renewed for two thirds of their lease
	Usual time.Duration // nineteen of twenty waits of the last hour did not reach it
	Waits int           // how many waits that is of

	Full, Paused time.Time      // the first of the looks that all found it so; zero: the last did not
	Pause, Limit *access.Record // the last that an operator did; nil: none
}

// Glance summarizes a semaphore.
func (h *History) Glance(name string) Glance {
	h.lock()
	defer h.mu.Unlock()
	s := h.semaphores[name]
	if s == nil {
		return Glance{}
	}
	return Glance{s.dying, s.waits.Below(.95), s.waits.Count(), s.full, s.paused, s.acts["pause"], s.acts["limit"]}
}
