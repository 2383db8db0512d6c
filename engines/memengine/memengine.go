// Package memengine keeps semaphores in the memory of one process: for
// programs that run alone, and for tests.
//
// It keeps every promise of package sema. Its clock is the monotonic one, so
// leases do not feel a change of the system's time.
package memengine

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// Engine holds semaphores. Create it with New and share it: two engines know
// nothing of each other.
type Engine struct {
	base time.Time // leases and tokens count from here, on the monotonic clock

	mu      sync.Mutex
	names   map[string]*semaphore
	clients uint64
	sweepAt int // when names has grown to this, the idle ones are removed
	closed  bool
}

// semaphore is one ledger and the sessions to be told of its news.
type semaphore struct {
	mu       sync.Mutex
	ledger   ledger.Ledger
	sessions map[string]*session
}

// New makes an empty engine.
func New() *Engine { return &Engine{base: time.Now(), names: map[string]*semaphore{}} }

func (e *Engine) now() int64 { return e.base.UnixMicro() + time.Since(e.base).Microseconds() }

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	e.clients++
	s := &session{engine: e, id: "m" + strconv.FormatUint(e.clients, 36), who: who, notify: notify}
	s.sem = e.names[name]
	if s.sem == nil {
		e.sweep()
		s.sem = &semaphore{sessions: map[string]*session{}}
		sem := s.sem
		sem.ledger.Reach = func(client string) bool { return sem.sessions[client] != nil }
		e.names[name] = sem
	}
	s.sem.mu.Lock()
	s.sem.sessions[s.id] = s
	s.sem.mu.Unlock()
	return s, nil
}

// List implements sema.Engine.
func (e *Engine) List(context.Context) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	names := []string{}
	for name, sem := range e.names {
		sem.mu.Lock()
		over := sem.ledger.Over(e.now())
		sem.mu.Unlock()
		if !over {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// sweep removes semaphores that nobody uses, each time their number has
// doubled. The engine's lock is held.
func (e *Engine) sweep() {
	if len(e.names) < e.sweepAt {
		return
	}
	for name, sem := range e.names {
		sem.mu.Lock()
		unused := len(sem.sessions) == 0 && sem.ledger.Over(e.now())
		sem.mu.Unlock()
		if unused {
			delete(e.names, name)
		}
	}
	e.sweepAt = max(64, 2*len(e.names))
}

// Close implements sema.Engine. All semaphores are forgotten.
func (e *Engine) Close() error {
	var open []*session
	e.mu.Lock()
	e.closed = true
	for _, sem := range e.names {
		sem.mu.Lock()
		for _, s := range sem.sessions {
			s.closed = true
			open = append(open, s)
		}
		clear(sem.sessions)
		sem.mu.Unlock()
	}
	e.mu.Unlock()
	for _, s := range open {
		s.notify(protocol.Notification{Closed: true})
	}
	return nil
}

type session struct {
	engine *Engine
	sem    *semaphore
	id     string
	who    engine.Client
	notify func(protocol.Notification)
	closed bool           // guarded by the semaphore's lock
	fence  protocol.Fence // so is it
}

func (s *session) Client() string { return s.id }

// Step implements protocol.Session. Notifications are passed on without a lock.
func (s *session) Step(_ context.Context, c protocol.Call) (protocol.Reply, error) {
	sem := s.sem
	sem.mu.Lock()
	if s.closed {
		sem.mu.Unlock()
		return protocol.Reply{}, closed("step")
	}
	if err := s.fence.Pass(&c); err != nil {
		sem.mu.Unlock()
		return protocol.Reply{}, err
	}
	reply := sem.ledger.Step(s.engine.now(), s.id, s.who, c)
	news := sem.ledger.Notifications()
	if len(news) == 0 {
		sem.mu.Unlock()
		return reply, nil
	}
	told := make(map[*session]*protocol.Notification, len(news))
	for client, n := range news {
		if to := sem.sessions[client]; to != nil && !n.Empty() {
			told[to] = n
		}
	}
	sem.mu.Unlock()
	for to, n := range told {
		to.notify(*n)
	}
	return reply, nil
}

// State implements protocol.Session.
func (s *session) State(ctx context.Context) (engine.State, error) {
	if err := ctx.Err(); err != nil {
		return engine.State{}, err
	}
	s.sem.mu.Lock()
	defer s.sem.mu.Unlock()
	if s.closed {
		return engine.State{}, closed("state")
	}
	return s.sem.ledger.State(s.engine.now()), nil
}

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (protocol.Reports, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Reports{}, err
	}
	s.sem.mu.Lock()
	defer s.sem.mu.Unlock()
	if s.closed {
		return protocol.Reports{}, closed("reports")
	}
	return s.sem.ledger.Reports(s.engine.now()), nil
}

// Close implements protocol.Session.
func (s *session) Close() error {
	s.sem.mu.Lock()
	defer s.sem.mu.Unlock()
	s.closed = true
	delete(s.sem.sessions, s.id)
	return nil
}

func closed(op string) error {
	return &engine.Error{Op: op, NotExecuted: true, Err: engine.ErrClosed}
}
