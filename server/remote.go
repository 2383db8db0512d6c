package server

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/wire"
)

const (
	// grace is how long a client may have neither a stream nor a call. Then the server
	// closes its sessions: the engine cannot notify it any more. Its permits stay until
	// their leases end.
	grace = 2 * time.Second

	// sweepEvery is how often the server looks for such clients.
	sweepEvery = 500 * time.Millisecond
)

// remotes are the engines of Go clients in other processes.
type remotes struct {
	mu       sync.RWMutex
	byID     map[string]*remote
	sessions map[string]*remoteSession // by the client's name for the session
	lives    map[string]life           // by the engine's name for the session, with earlier and closed ones
	pruned   time.Time                 // when old lives were last removed
}

// life says which client's permits a session of the server's engine has.
type life struct {
	client string
	base   uint64
	closed time.Time // zero: the session is open
}

// Permits outlive sessions, so the server remembers the names of closed sessions: for a
// day, and at most 100,000 of them.
const (
	rememberLife  = 24 * time.Hour
	rememberLives = 100_000
)

// remote is an engine in another process, with its stream.
type remote struct {
	id       string
	sessions map[string]*remoteSession // guarded by remotes.mu

	busy atomic.Int32 // running steps
	seen atomic.Int64 // the last time of a step or a stream, in ns

	mu     sync.Mutex
	stream chan struct{}    // closed when another stream replaces it; nil: there is none
	wake   chan struct{}    // has an element when dirty has one
	dirty  []*remoteSession // sessions with a notification to send
}

// remoteSession is a session of a client, together with the session of the server's engine
// that executes its calls.
//
// The two sessions have different names, but the ids of the client's permits must not
// change. So the server translates ids: the client's permit h-n is u-(base+n) in the
// engine, where base depends on h. If the session had earlier lives, on a server that was
// restarted, a permit may have an id of an earlier life: the server tries all of them.
type remoteSession struct {
	remote    *remote
	client    string // h
	name      string // of the semaphore
	base      uint64
	inner     protocol.Session
	innerName string        // u
	earlier   []wire.Life   // the earlier lives, oldest first
	callLock  chan struct{} // the lock of a call: full while one runs
	limit     int           // in the last reply; guarded by callLock

	// Guarded by remote.mu.
	news  protocol.Notification // not sent yet
	queue bool                  // the session is in remote.dirty
}

// baseOf is added to the numbers of a client's permits. It differs so much between clients
// that their numbers never overlap, even on an engine that assigns the same session names
// again after a restart. The sum is exact in a double.
func baseOf(client string) uint64 {
	hash := sha256.Sum256([]byte(client))
	return binary.BigEndian.Uint64(hash[:]) >> 16
}

// innerID is a permit's id in the engine, if it was granted in the given life.
func (rs *remoteSession) innerID(id engine.ID, as string) engine.ID {
	id.Client, id.Number = as, rs.base+id.Number
	return id
}

// outer translates the ids of grants to those of the client. A named permit has the same
// id everywhere.
func (rs *remoteSession) outer(grants []protocol.Grant) {
	for i := range grants {
		if id := &grants[i].ID; id.Client == rs.innerName {
			id.Client, id.Number = rs.client, id.Number-rs.base
		}
	}
}

// livesOf lists the engine's sessions that may have asked for the permit with this number,
// oldest first.
func (rs *remoteSession) livesOf(number uint64) []string {
	var list []string
	for i, l := range rs.earlier {
		if number <= l.Upto {
			for _, l := range rs.earlier[i:] {
				list = append(list, l.As)
			}
			break
		}
	}
	return append(list, rs.innerName)
}

// find returns an open session and increments its remote's busy.
func (m *remotes) find(client string) *remoteSession {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rs := m.sessions[client]
	if rs != nil {
		rs.remote.busy.Add(1)
	}
	return rs
}

// byInner returns the life of a session of the server's engine.
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

// remoteOf returns the remote with this id, or makes it. The lock is held.
func (m *remotes) remoteOf(id string) (r *remote, fresh bool) {
	if r = m.byID[id]; r != nil {
		return r, false
	}
	r = &remote{id: id, sessions: map[string]*remoteSession{}, wake: make(chan struct{}, 1)}
	r.seen.Store(time.Now().UnixNano())
	m.byID[id] = r
	return r, true
}

// open returns the client's session, and opens it if necessary. It increments the remote's
// busy.
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
	rs := &remoteSession{remote: r, client: client, name: o.Name, base: baseOf(client), earlier: o.Was, callLock: make(chan struct{}, 1)}
	inner, err := s.engine.Open(o.Name, o.Who, rs.notify)
	if err != nil {
		return nil, err
	}
	rs.inner, rs.innerName = inner, inner.Client()
	m.sessions[client], r.sessions[client] = rs, rs
	for _, l := range rs.earlier {
		if old, ok := m.lives[l.As]; !ok || !old.closed.IsZero() {
			m.lives[l.As] = life{client: client, base: rs.base}
		}
	}
	m.lives[rs.innerName] = life{client: client, base: rs.base}
	r.busy.Add(1)
	return rs, nil
}

// remove removes a session. The lock is held. The caller closes rs.inner.
func (m *remotes) remove(rs *remoteSession) {
	delete(m.sessions, rs.client)
	delete(rs.remote.sessions, rs.client)
	for _, as := range append(rs.livesOf(0), rs.innerName) {
		if l := m.lives[as]; l.client == rs.client {
			l.closed = time.Now()
			m.lives[as] = l
		}
	}
}

// closeSession closes a session at its client's request.
func (m *remotes) closeSession(client string) {
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

// sweep closes the sessions of remotes without a stream and without a call since then.
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

// maxGrants is the most grants that are kept for a client without a stream.
const maxGrants = 10_000

// notify queues a notification of the engine for the client's stream.
func (rs *remoteSession) notify(n protocol.Notification) {
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
	if len(p.Grants) > maxGrants { // the client finds its grants when it asks again
		p.Grants, p.Ask = nil, true
	}
	if !rs.queue {
		rs.queue = true
		r.dirty = append(r.dirty, rs)
	}
	r.wakeStream()
}

// takeNews appends the queued notifications to b and removes them from the queue.
func (r *remote) takeNews(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range r.dirty {
		b = wire.AppendNews(b, &wire.News{Client: rs.client, Notification: rs.news})
		rs.news, rs.queue = protocol.Notification{}, false
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
	return b
}
