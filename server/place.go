package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"sema/engine"
)

// desks has what the JSON API needs of each semaphore: its callers know no
// sessions and renew by themselves, but while they wait, the server asks for
// them.
type desks struct {
	mu     sync.Mutex
	byName map[string]*place
	closed bool
	using  sync.WaitGroup // requests at hand
}

// place is one semaphore to the callers of the JSON API.
type place struct {
	server *Server
	name   string
	users  int // requests at hand; guarded by desks.mu

	loading sync.Mutex // while it finds out what it knew before

	mu      sync.Mutex
	desks   map[engine.Client]*desk
	entries map[uint64]*entry
	known   map[uint64]engine.ID // permits that an earlier life of the server gave; nil: not asked yet

	paused   bool // as of pausedAt
	pausedAt time.Time
}

// entry is one permit of the JSON API, from the wish to its end. It is guarded
// by its place's lock.
type entry struct {
	desk  *desk
	id    engine.ID
	limit int
	lease time.Duration
	wait  bool // it may queue
	came  time.Time
	refs  int // requests that wait for it, or live as long as it does

	state   entryState
	err     error         // why it is over
	changed chan struct{} // closed, and another made, whenever state changes
	ahead   int           // queued: so many are before it
	due     time.Time     // queued: when it is asked for again
	heard   time.Time     // queued: when the engine last answered
	token   int64         // held
	slot    int           // held
	until   time.Time     // held: its lease does not end before
	granted bool          // asking: it was told that its turn came
	tell    bool          // a renewal is wanted now: somebody may have revoked it
	told    bool          // its caller was answered that it is granted, and may rely on it
}

type entryState int

const (
	asking entryState = iota
	queued
	held
	over
)

// set changes the state, and tells who waits for that.
func (e *entry) set(state entryState) {
	e.state = state
	e.poke()
}

func (e *entry) poke() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// end is set over.
func (e *entry) end(err error) {
	e.err = err
	e.set(over)
}

// numberOf makes the number of a permit of the id that its caller gave it. It
// is the same on every server and in every life.
func numberOf(who *Who, id string) uint64 {
	hash := sha256.Sum256([]byte(who.Name + "\x00" + id))
	return binary.BigEndian.Uint64(hash[:]) >> 4
}

// place finds or makes what belongs to a semaphore. The caller calls leave in
// the end.
func (s *Server) place(name string) (p *place, leave func(), err error) {
	d := &s.desks
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || s.closed.Load() {
		return nil, nil, closing()
	}
	p = d.byName[name]
	if p == nil {
		p = &place{server: s, name: name, desks: map[engine.Client]*desk{}, entries: map[uint64]*entry{}}
		d.byName[name] = p
	}
	p.users++
	d.using.Add(1)
	return p, func() {
		d.mu.Lock()
		p.users--
		d.mu.Unlock()
		d.using.Done()
	}, nil
}

// load finds out which permits there are that an earlier life of the server may
// have given, so that asking for one again gives the same.
func (p *place) load(ctx context.Context) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	p.mu.Lock()
	loaded := p.known != nil
	p.mu.Unlock()
	if loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	st, err := p.server.stateOf(ctx, p.name)
	if err != nil {
		return err
	}
	known := map[uint64]engine.ID{}
	for _, h := range st.Holders {
		if id, err := engine.ParseID(h.ID); err == nil {
			known[id.Number] = id
		}
	}
	p.mu.Lock()
	p.known = known
	p.mu.Unlock()
	return nil
}

// find is the id of a permit that was given under a number, by this server or
// another; ok is false if there is none.
func (p *place) find(ctx context.Context, number uint64) (id engine.ID, ok bool, err error) {
	p.mu.Lock()
	if e := p.entries[number]; e != nil && e.state == held {
		id, ok = e.id, true
	}
	p.mu.Unlock()
	if ok {
		return id, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	st, err := p.server.stateOf(ctx, p.name)
	if err != nil {
		return id, false, err
	}
	for _, h := range st.Holders {
		if id, err := engine.ParseID(h.ID); err == nil && id.Number == number {
			return id, true, nil
		}
	}
	return id, false, nil
}

// stopped reports whether the semaphore is paused, as of a second ago at most.
func (p *place) stopped(ctx context.Context) bool {
	p.mu.Lock()
	fresh, paused := time.Since(p.pausedAt) < time.Second, p.paused
	p.mu.Unlock()
	if fresh {
		return paused
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	st, err := p.server.stateOf(ctx, p.name)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.pausedAt = st.Paused, time.Now()
	return p.paused
}

// idleTime is how long what nobody uses is kept.
const placeIdle = time.Minute

// sweep forgets permits whose leases are over, desks without permits, and
// places without either.
func (d *desks) sweep(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.byName {
		p.mu.Lock()
		for n, e := range p.entries {
			if e.refs == 0 && (e.state == over || e.state == held && e.until.Before(now)) {
				delete(p.entries, n)
				e.desk.entries--
			}
		}
		for who, k := range p.desks {
			if k.entries == 0 && len(k.ops) == 0 && !k.carrying && now.Sub(k.seen) > placeIdle {
				delete(p.desks, who)
				k.close()
			}
		}
		if p.users == 0 && len(p.desks) == 0 && len(p.entries) == 0 {
			delete(d.byName, name)
		}
		p.mu.Unlock()
	}
}

// close waits for the requests at hand, which have been told to end, sends what
// is owed to the engine, and closes all sessions.
func (d *desks) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.using.Wait()
	for _, p := range d.byName { // nobody changes it any more
		for _, k := range p.desks {
			k.drain()
		}
	}
}
