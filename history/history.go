// Package history keeps what package watch sees: how much of each semaphore was
// used, who waited how long, who held it when, and what operators did.
//
//	h, err := history.New(watcher, &history.Options{Always: true})
//	defer h.Close()
//	points, err := h.Series("downloads", time.Now().Add(-time.Hour), time.Now(), time.Minute)
//	visits, err := h.Visits("downloads", from, to)
//
// It keeps an hour in memory, within a bound of bytes, and with a Store what is older.
// It has no more than a watch.Watcher sees: a permit that was held
// for less than the time between two looks may be missing, so counts are lower
// bounds, and times are right to within that time.
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
	"sema/watch"
)

// Options of a History. The zero value of each field is its default.
type Options struct {
	// Keep is how far back memory goes, 1 min … 24 h. Default 1 h.
	Keep time.Duration

	// Step is how fine it is, 10 ms … 1 min. Default 5 s.
	Step time.Duration

	// Bytes bounds the memory: 1 MB … 2 GB (2³¹ - 1 bytes). When it is full, the semaphore with the most
	// loses its oldest. Default 70 MB: an hour of 1,000 semaphores that change all the time.
	Bytes int

	// Always has the Watcher look at all semaphores all the time, once each of its
	// Options.Rounds. Default: it is kept what others look at.
	Always bool

	// Store keeps what is older than Keep, and outlives the process. Default: nothing does.
	Store Store

	// Log has what went wrong with the Store. Default slog.Default.
	Log *slog.Logger
}

// blockSteps is how many steps a block has.
const blockSteps = 60

// History keeps what a Watcher sees. Create it with New, share it, and close
// it. It is safe for concurrent use.
type History struct {
	options Options
	began   time.Time
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	semaphores map[string]*semaphore
	size       size // of all
	room       int  // for so many more visits that are still there
}

// New begins to keep what a Watcher sees. The Watcher stays the caller's to close,
// after the History. A nil options means the defaults. It fails only
// on values out of range, with an *engine.ArgumentError.
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
	w.Follow(h.ctx, options.Always, h.add)
	h.running.Go(h.keep)
	return h, nil
}

// Close ends the keeping, and stores what is to be stored. The part in memory can still be
// asked for.
func (h *History) Close() {
	h.cancel()
	h.running.Wait()
}

// Options are those in force, defaults filled in.
func (h *History) Options() Options { return h.options }

// Act keeps what an operator did. It is for the option Audit of a server, beside
// the Add of an access.Log; a dashboard tells its History by itself.
func (h *History) Act(r access.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.use(r.Name)
	h.resize(s, func() {
		s.change(h.options.Step, Change{
			Time: r.Time, What: r.What, Who: r.Who, Permit: r.Permit, Limit: r.Limit, PerKey: r.PerKey, Key: r.Key, Cap: r.Cap, Share: r.Share, Result: r.Result,
		})
	})
}

// use is what is kept of a semaphore, made if need be. The lock is held.
func (h *History) use(name string) *semaphore {
	s := h.semaphores[name]
	if s == nil {
		s = &semaphore{here: map[string]*Visit{}, room: &h.room}
		h.semaphores[name] = s
	}
	return s
}

// add keeps what a look found.
func (h *History) add(l watch.Look) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.semaphores[l.Name]
	if s == nil && l.Limit == 0 {
		return // a name that somebody asked for, and nobody uses
	}
	s = h.use(l.Name)
	h.resize(s, func() { s.add(h.options.Step, l) })
}

// resize notes how much memory a change of a semaphore took, and makes room. The
// lock is held.
func (h *History) resize(s *semaphore, change func()) {
	h.size = h.size.minus(s.size)
	change()
	h.size = h.size.plus(s.size)
	// Figures have six parts of eight, visits that have ended one, and those that go
	// on one: a crowd of visits leaves the figures alone.
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

// shrink drops something of the semaphore that has the most. The lock is held.
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

// keep forgets what is old, and has it stored before, until Close.
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

// forget drops what ended before then.
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
