// Package history records the looks of package watch: the use of each semaphore, its
// holders, its waiters and their waits, and the acts of operators.
//
//	h, err := history.New(watcher, &history.Options{Always: true})
//	defer h.Close()
//	points, err := h.Series("downloads", time.Now().Add(-time.Hour), time.Now(), time.Minute)
//	visits, err := h.Visits("downloads", from, to)
//
// A History has the last hour in memory, up to a number of bytes. With a Store it also has
// older data. It knows only the looks of a watch.Watcher, and may miss a permit that is held
// for less than the time between two looks. So counts are lower bounds, and times are exact
// to within that time.
package history

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/looks"
	"sema/watch"
)

// Options of a History. The zero value of each field is its default.
type Options struct {
	// Keep is how long data stays in memory. Default 1 h, range 1 min … 24 h.
	Keep time.Duration

	// Step is the resolution of the figures. Default 5 s, range 10 ms … 1 min.
	Step time.Duration

	// Bytes is the largest size of the data in memory. When it is reached, the semaphore
	// with the most data loses its oldest part. Default 70 MB, enough for an hour of 1,000
	// semaphores that change all the time. Range 1 MB … 2 GB (2³¹ - 1 bytes).
	Bytes int

	// Always makes the Watcher look at all semaphores all the time, once each of its
	// Options.Rounds. Default false: the History records only looks that others cause.
	Always bool

	// Store keeps the data that is older than Keep, also after the process has ended.
	// Default: none.
	Store Store

	// Log receives the errors of the Store. Default slog.Default.
	Log *slog.Logger
}

// blockSteps is the number of steps in a block.
const blockSteps = 60

// History records the looks of a Watcher. Create it with New, share it, and close it. It is
// safe for concurrent use.
type History struct {
	options Options
	began   time.Time
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	semaphores map[string]*semaphore
	size       size // of all semaphores
	room       int  // how many more current visits may be followed
}

// Give makes the dashboard that is made with options, a *dashboard.Options, show h in place of
// an hour of its own. The caller closes h, after the dashboard. The dashboard tells h what
// operators do there. Package dashboard sets Give.
var Give func(options any, h *History)

// New begins to record the looks of a Watcher. The caller closes the Watcher, after the
// History. Nil options are the defaults. New fails only on options out of range, with an
// *engine.ArgumentError.
func New(w *watch.Watcher, o *Options) (*History, error) {
	if o == nil {
		o = &Options{}
	}
	options := *o
	options.Keep = cmp.Or(o.Keep, time.Hour)
	options.Step = cmp.Or(o.Step, 5*time.Second)
	options.Bytes = cmp.Or(o.Bytes, 70_000_000)
	options.Log = cmp.Or(o.Log, slog.Default())
	if err := cmp.Or(
		engine.ValidateRange("history", "Options.Keep", options.Keep, time.Minute, 24*time.Hour),
		engine.ValidateRange("history", "Options.Step", options.Step, 10*time.Millisecond, time.Minute),
		engine.ValidateRange("history", "Options.Bytes", options.Bytes, 1_000_000, math.MaxInt32),
	); err != nil {
		return nil, err
	}
	h := &History{options: options, began: time.Now(), semaphores: map[string]*semaphore{}, room: options.Bytes / 8 / hereBytes}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	looks.Follow(h.ctx, w, options.Always, h.add)
	h.running.Go(h.keep)
	return h, nil
}

// Close stops recording and stores the latest data. The data in memory can still be read.
func (h *History) Close() {
	h.cancel()
	h.running.Wait()
}

// Options returns the History's options with the defaults filled in.
func (h *History) Options() Options { return h.options }

// Act records an operator's act. Call it from the option Audit of a server, in addition to
// the Add of an rights.Log. A dashboard calls Act of its History itself.
func (h *History) Act(r access.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.use(r.Name)
	r.Name, r.From, r.Caller = "", "", "" // nobody reads these here
	h.resize(s, func() { s.change(h.options.Step, r) })
}

// use returns the data of a semaphore, or makes it. The lock is held.
func (h *History) use(name string) *semaphore {
	s := h.semaphores[name]
	if s == nil {
		s = &semaphore{here: map[string]*Visit{}, room: &h.room}
		h.semaphores[name] = s
	}
	return s
}

// add records a look.
func (h *History) add(l looks.Look) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.semaphores[l.Name]
	if s == nil && l.Limit == 0 {
		return // a caller asked for the name of an unused semaphore
	}
	s = h.use(l.Name)
	h.resize(s, func() { s.add(h.options.Step, l) })
}

// resize changes the data of a semaphore, counts its memory, and drops old data if there is
// too much. The lock is held.
func (h *History) resize(s *semaphore, change func()) {
	h.size = h.size.minus(s.size)
	change()
	h.size = h.size.plus(s.size)
	// Six eighths are for figures, one for visits that have ended, and one for current
	// visits. So many visits do not displace the figures.
	for h.size.rows > h.options.Bytes/4*3 {
		if !h.shrink(func(s size) int { return s.rows }, (*semaphore).dropBlock) {
			break
		}
	}
	for h.size.visits > h.options.Bytes/8 {
		if !h.shrink(func(s size) int { return s.visits }, (*semaphore).dropVisits) {
			break
		}
	}
}

// shrink drops data of the semaphore that has the most. The lock is held.
func (h *History) shrink(of func(size) int, drop func(*semaphore) bool) bool {
	var most *semaphore
	for _, s := range h.semaphores {
		if most == nil || of(s.size) > of(most.size) {
			most = s
		}
	}
	before := most.size
	dropped := drop(most)
	h.size = h.size.minus(before).plus(most.size)
	return dropped
}

// keep stores new data and drops old data from time to time, until Close.
func (h *History) keep() {
	ticker := time.NewTicker(min(time.Minute, h.options.Keep/10))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-h.ctx.Done():
			h.store()
			return
		}
		h.store()
		h.forget(time.Now().Add(-h.options.Keep))
	}
}

// forget drops data that ended before a time.
func (h *History) forget(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.semaphores {
		h.size = h.size.minus(s.size)
		for len(s.blocks) > 0 && s.blocks[0].end(h.options.Step).Before(before) {
			s.dropBlock()
		}
		h.size = h.size.plus(s.size)
		if len(s.blocks) == 0 && s.looked.Before(before) {
			h.size = h.size.minus(s.size)
			h.room += len(s.here)
			delete(h.semaphores, name)
		}
	}
}
