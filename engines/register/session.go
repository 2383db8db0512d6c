package register

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// session is one client's access to one semaphore.
type session struct {
	engine    *Engine
	semaphore *semaphore
	id        string
	who       engine.Client
	notify    func(protocol.Notification)
	closed    atomic.Bool
	fence     protocol.Fence // used by Step only

	mu    sync.Mutex
	known map[engine.ID]fact
}

// fact is a session's knowledge of a ticket or permit.
type fact struct {
	ticket  int64 // its life, as in protocol.Answer.Ticket; 0: it is a permit
	revoked bool
	ours    bool // this session receives its notifications
}

// Client implements protocol.Session.
func (s *session) Client() string { return s.id }

// Alive implements protocol.Living. Somebody writes the row, or the store itself says that it
// is busy, also to a step: a transaction of another program may have locked the row.
func (s *session) Alive(ctx context.Context) bool {
	first, read, began := int64(0), false, time.Now()
	return protocol.Sees(ctx, func() bool {
		s.semaphore.mu.Lock()
		refused := s.semaphore.refused.After(began)
		s.semaphore.mu.Unlock()
		if refused {
			return true
		}
		row, err := readDetached(ctx, func(ctx context.Context) (Row, error) { return s.engine.store.Read(ctx, s.semaphore.name) })
		if err != nil {
			failure, ok := errors.AsType[*engine.Error](err)
			return ok && failure.Busy
		}
		moved := read && row.Version != first
		first, read = row.Version, true
		return moved
	})
}

// Step implements protocol.Session. When ctx ends it returns; a call in a running step may
// still take effect, a queued one does not.
func (s *session) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.closed.Load() {
		return protocol.Reply{}, closed("step", s.semaphore.name)
	}
	if err := s.fence.Pass(&c); err != nil {
		return protocol.Reply{}, fail("step", s.semaphore.name, err, true)
	}
	c.Requests = slices.Clone(c.Requests) // the caller may reuse its own after ctx has ended
	p := &pending{session: s, call: c, done: make(chan struct{})}
	s.semaphore.add(p)
	select {
	case <-p.done:
		if p.err != nil {
			return protocol.Reply{}, fail("step", s.semaphore.name, p.err, false)
		}
		return p.reply, nil
	case <-ctx.Done():
		unsent := s.semaphore.withdraw(p)
		return protocol.Reply{}, fail("step", s.semaphore.name, ctx.Err(), unsent)
	}
}

// State implements protocol.Session.
func (s *session) State(ctx context.Context) (engine.State, error) {
	return readState(ctx, s, "state", (*ledger.Ledger).State)
}

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (protocol.Reports, error) {
	return readState(ctx, s, "reports", (*ledger.Ledger).Reports)
}

// readState reads the row and returns the result of of on its ledger.
func readState[T any](ctx context.Context, s *session, op string, of func(l *ledger.Ledger, now int64) T) (none T, err error) {
	name := s.semaphore.name
	if s.closed.Load() {
		return none, closed(op, name)
	}
	row, err := readDetached(ctx, func(ctx context.Context) (Row, error) { return s.engine.store.Read(ctx, name) })
	var m *loaded
	if err == nil {
		m, err = row.load()
	}
	if err != nil {
		return none, fail(op, name, err, true)
	}
	return of(m.ledger, row.time()), nil
}

// Close implements protocol.Session. It releases waiting tickets, because nobody would
// receive their grants. It keeps a ticket that another session has asked for since.
func (s *session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.engine.forget(s)
	waiting := s.tickets()
	if len(waiting) == 0 {
		return nil
	}
	c := protocol.Call{}
	for _, id := range waiting {
		c.Requests = append(c.Requests, protocol.Request{Kind: protocol.Release, ID: id, Mine: true})
	}
	p := &pending{session: s, call: c, done: make(chan struct{})}
	s.semaphore.add(p)
	waitFor(closeTime, p.done)
	return nil
}

// note records the tickets and permits in a reply. via returns the session that receives
// the notifications of a permit.
func (s *session) note(c protocol.Call, reply protocol.Reply, via func(engine.ID) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range reply.Answers {
		switch r := c.Requests[i]; {
		case a.Status == protocol.Queued || a.Status == protocol.Granted || a.Status == protocol.Revoked:
			s.known[r.ID] = fact{a.Ticket, a.Status == protocol.Revoked, via(r.ID) == s.id}
		case r.Kind == protocol.Ask || r.Kind == protocol.Renew || r.Kind == protocol.Release:
			delete(s.known, r.ID)
		}
	}
	s.noteGrants(reply.Notification.Grants)
}

func (s *session) noteGrants(grants []protocol.Grant) {
	for _, g := range grants {
		if _, ok := s.known[g.ID]; ok {
			s.known[g.ID] = fact{ours: true}
		}
	}
}

// tell notifies the client, unless the session is closed or n is empty.
func (s *session) tell(n protocol.Notification) {
	s.mu.Lock()
	s.noteGrants(n.Grants)
	s.mu.Unlock()
	if !s.closed.Load() && !n.Empty() {
		s.notify(n)
	}
}

func isTicket(f fact) bool { return f.ticket > 0 }
func isPermit(f fact) bool { return f.ticket == 0 }
func isAny(fact) bool      { return true }

// has reports whether the session has a ticket or permit for which which is true.
func (s *session) has(which func(fact) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.known {
		if which(f) {
			return true
		}
	}
	return false
}

func (s *session) tickets() (ids []engine.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.known {
		if isTicket(f) {
			ids = append(ids, id)
		}
	}
	return ids
}
