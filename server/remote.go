package server

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/wire"
)

const (
	// grace is how long a client may be without a stream and without a call
	// until its sessions are closed. Its tickets then count as those of a client
	// that cannot be reached. Its permits have their leases.
	grace = 2 * time.Second

	// sweepEvery is how often such clients are looked for.
	sweepEvery = 500 * time.Millisecond
)

// remotes are the engines of Go clients elsewhere.
type remotes struct {
	mu       sync.RWMutex
	byID     map[string]*remote
	sessions map[string]*remoteSession // by the client's name of them
	lives    map[string]life           // by those of the server's engine, earlier and closed ones too
	pruned   time.Time                 // when lives was last gone through
}

// life is whose permits those of a session of the server's engine are.
type life struct {
	client string
	base   uint64
	closed time.Time // zero: it is open
}

// Permits outlive sessions, so the server remembers the names of sessions: each
// for a day, and 100,000 at most.
const (
	rememberLife  = 24 * time.Hour
	rememberLives = 100_000
)

// remote is one engine of a client, with its stream.
type remote struct {
	id       string
	sessions map[string]*remoteSession // guarded by remotes.mu

	busy atomic.Int32 // steps at hand
	seen atomic.Int64 // when it last made a step or had a stream, in ns

	mu     sync.Mutex
	stream chan struct{}    // closed when another stream takes over; nil: none
	wake   chan struct{}    // has an element when there is something to tell
	dirty  []*remoteSession // with something to tell
}

// remoteSession is one session of a client, and the session of the server's
// engine that carries out its calls.
//
// The engine's session has a name of its own, and a client's permits have to
// keep theirs: so ids are translated. A permit that the client calls h-n is
// u-(base+n) to the engine, where base is made of h. If the session had earlier
// lives, on a server that was restarted, its permits of then may have the
// engine's names of then: each is looked for.
type remoteSession struct {
	remote *remote
	client string // h
	name   string // of the semaphore
	base   uint64
	inner  engine.Session
	as     string      // u
	was    []wire.Life // earlier ones, oldest first
	turn   chan struct{}
	limit  int // as the last reply had it; of whoever has its turn

	// Guarded by remote.mu.
	news  engine.Notification // to be told
	queue bool                // it is in remote.dirty
}

// baseOf is added to the numbers of a client's permits. It is large enough that
// no two clients come near each other, even on an engine that gives out the same
// session names again after a restart; and exact in a double.
func baseOf(client string) uint64 {
	hash := sha256.Sum256([]byte(client))
	return binary.BigEndian.Uint64(hash[:]) >> 16
}

// inner is a permit's id to the engine, in the given life.
func (rs *remoteSession) innerID(id engine.ID, as string) engine.ID {
	id.Client, id.Number = as, rs.base+id.Number
	return id
}

// outer gives the permits of grants their ids to clients. A named permit has
// the same everywhere.
func (rs *remoteSession) outer(grants []engine.Grant) {
	for i := range grants {
		if id := &grants[i].ID; id.Client == rs.as {
			id.Client, id.Number = rs.client, id.Number-rs.base
		}
	}
}

// lives are the engine's names under which the session may have asked for the
// permit with this number, oldest first.
func (rs *remoteSession) livesOf(number uint64) []string {
	var list []string
	for i, l := range rs.was {
		if number <= l.Upto {
			for _, l := range rs.was[i:] {
				list = append(list, l.As)
			}
			break
		}
	}
	return append(list, rs.as)
}

// find is a session, marked as busy until its remote's busy is lowered.
func (m *remotes) find(client string) *remoteSession {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rs := m.sessions[client]
	if rs != nil {
		rs.remote.busy.Add(1)
	}
	return rs
}

// byInner is whose permits those are that the server's engine has under this
// name of a session.
func (m *remotes) byInner(as string) (l life, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l, ok = m.lives[as]
	return l, ok
}

func (m *remotes) byClient(client string) *remoteSession {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sessions[client]
}

// remoteOf is the remote with this id, made if need be. The lock is held.
func (m *remotes) remoteOf(id string) (r *remote, fresh bool) {
	if r = m.byID[id]; r != nil {
		return r, false
	}
	r = &remote{id: id, sessions: map[string]*remoteSession{}, wake: make(chan struct{}, 1)}
	r.seen.Store(time.Now().UnixNano())
	m.byID[id] = r
	return r, true
}

// open opens a session, marked as busy, unless it is open already.
func (s *Server) open(id, client string, o *wire.Open) (*remoteSession, error) {
	m := &s.remotes
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed.Load() {
		return nil, closing()
	}
	if rs := m.sessions[client]; rs != nil {
		rs.remote.busy.Add(1)
		return rs, nil
	}
	r, _ := m.remoteOf(id)
	rs := &remoteSession{remote: r, client: client, name: o.Name, base: baseOf(client), was: o.Was, turn: make(chan struct{}, 1)}
	inner, err := s.engine.Open(o.Name, o.Who, rs.notify)
	if err != nil {
		return nil, err
	}
	rs.inner, rs.as = inner, inner.Client()
	m.sessions[client], r.sessions[client] = rs, rs
	for _, l := range rs.was {
		if old, ok := m.lives[l.As]; !ok || !old.closed.IsZero() {
			m.lives[l.As] = life{client: client, base: rs.base}
		}
	}
	m.lives[rs.as] = life{client: client, base: rs.base}
	r.busy.Add(1)
	return rs, nil
}

// remove forgets a session. The lock is held; the caller closes what is inner.
func (m *remotes) remove(rs *remoteSession) {
	delete(m.sessions, rs.client)
	delete(rs.remote.sessions, rs.client)
	for _, as := range append(rs.livesOf(0), rs.as) {
		if l := m.lives[as]; l.client == rs.client {
			l.closed = time.Now()
			m.lives[as] = l
		}
	}
}

// shut closes a session, as its client asked.
func (m *remotes) shut(client string) {
	m.mu.Lock()
	rs := m.sessions[client]
	if rs != nil {
		m.remove(rs)
	}
	m.mu.Unlock()
	if rs != nil {
		_ = rs.inner.Close()
	}
}

// sweep closes the sessions of those that have not been heard of since.
func (m *remotes) sweep(since time.Time) {
	var gone []*remoteSession
	m.mu.Lock()
	prune := since.Sub(m.pruned) > time.Minute
	if prune {
		m.pruned = since
	}
	for as, l := range m.lives {
		if !prune {
			break
		}
		if !l.closed.IsZero() && (since.Sub(l.closed) > rememberLife || len(m.lives) > rememberLives) {
			delete(m.lives, as)
		}
	}
	for id, r := range m.byID {
		r.mu.Lock()
		idle := r.stream == nil && r.busy.Load() == 0 && r.seen.Load() < since.UnixNano()
		r.mu.Unlock()
		if !idle {
			continue
		}
		for _, rs := range r.sessions {
			gone = append(gone, rs)
			m.remove(rs)
		}
		delete(m.byID, id)
	}
	m.mu.Unlock()
	for _, rs := range gone {
		_ = rs.inner.Close()
	}
}

// maxGrants bounds what is remembered for a client that does not listen.
const maxGrants = 10_000

// notify takes in a notification of the engine's.
func (rs *remoteSession) notify(n engine.Notification) {
	n.Closed = false // the client's session outlives this server
	if n.Empty() {
		return
	}
	r := rs.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &rs.news
	had := len(p.Grants)
	p.Merge(n)
	rs.outer(p.Grants[had:])
	if len(p.Grants) > maxGrants { // asking again tells the same
		p.Grants, p.Ask = nil, true
	}
	if !rs.queue {
		rs.queue = true
		r.dirty = append(r.dirty, rs)
	}
	r.poke()
}

// take is what there is to tell.
func (r *remote) take(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range r.dirty {
		b = wire.AppendNews(b, &wire.News{Client: rs.client, Notification: rs.news})
		rs.news, rs.queue = engine.Notification{}, false
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
	return b
}
