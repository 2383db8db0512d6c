// Package sematest is an engine for the tests of programs that use semaphores.
//
// It keeps semaphores in memory, with all promises of package sema, and does
// what a real engine does only on a bad day, when it is told to:
//
//	engine := sematest.New(t)
//	go program(engine)                       // acquires a permit of "jobs", and works
//	engine.AwaitHeld(ctx, "jobs", 1)
//	engine.Lose("jobs")                      // its context ends, with cause sema.ErrLost
//	engine.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})
//
// Each acquisition and each release is a call to it: permits are not passed on,
// or kept, within the process, and sema.Options.Keep changes nothing.
//
// When the test ends, every permit that was not released fails it, with the
// place where it was acquired.
//
// In a testing/synctest bubble all of it goes by the bubble's time: leases end,
// delays pass and retries happen at once. Make the engine inside the bubble.
package sematest

import (
	"context"
	"sync"
	"testing"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/once"
	"sema/internal/protocol"
)

// Engine is an engine in memory that does what it is told. Its methods are
// safe for concurrent use, but those that say that they end the test are for the
// test's own goroutine.
type Engine struct {
	tb    testing.TB
	inner *memengine.Engine

	mu       sync.Mutex
	sessions map[string]*session // by their Client
	faults   []*injected
	places   map[engine.ID][]string // where what is held, or asked for, was acquired
	detached map[engine.ID]bool     // of these: those that are meant to outlive the program
	lost     map[engine.ID]bool     // held, and to be refused when they are renewed; true once that was tried
	changed  chan struct{}          // closed after each step, and made anew
	closing  once.Once
	leaks    []Permit // found when the engine was closed
}

// New makes an empty engine for a test. When the test ends, after all functions
// of tb.Cleanup that were given later, each permit that is still held and was
// not released is reported with tb.Errorf, and the engine is closed. Permits of
// Options.Detached are not reported, nor are those that were lost, nor those
// that Semaphore.Close gave back.
func New(tb testing.TB) *Engine {
	e := &Engine{
		tb: tb, inner: memengine.New(), sessions: map[string]*session{}, places: map[engine.ID][]string{},
		detached: map[engine.ID]bool{}, lost: map[engine.ID]bool{}, changed: make(chan struct{}),
	}
	tb.Cleanup(func() {
		tb.Helper()
		_ = e.Close()
		for _, p := range e.leaks {
			tb.Errorf("sematest: %v was not released; acquired at\n%s", p, p.Where)
		}
	})
	return e
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s := &session{engine: e, name: name, notify: notify, asking: map[engine.ID]bool{}}
	inner, err := e.inner.Open(name, who, func(n protocol.Notification) {
		s.granted(n)
		notify(n)
		e.stepped()
	})
	if err != nil {
		return nil, err
	}
	s.Session = inner
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions[s.Client()] = s
	return s, nil
}

// List implements sema.Engine. Faults do not affect it.
func (e *Engine) List(ctx context.Context) ([]string, error) { return e.inner.List(ctx) }

// Close implements sema.Engine. What is held then and was not released is
// reported when the test ends.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.mu.Lock()
		faults := e.faults
		e.faults = nil
		e.mu.Unlock()
		for _, f := range faults {
			f.end()
		}
		e.leaks = e.unreleased()
	})
	return e.inner.Close()
}

// stepped wakes those who wait for something to happen.
func (e *Engine) stepped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// session is a session of the memory engine, to which Engine adds faults and
// checks.
type session struct {
	protocol.Session
	engine *Engine
	name   string
	notify func(protocol.Notification)

	// Guarded by the engine's lock.
	asking map[engine.ID]bool // for what has been asked, and nothing granted
	seen   []string           // places where goroutines acquired
	looks  int                // so many stacks may be looked at
}

// granted notes which asks have an end.
func (s *session) granted(n protocol.Notification) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, g := range n.Grants {
		delete(s.asking, g.ID)
	}
}

// Step implements protocol.Session.
func (s *session) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	e := s.engine
	asked, alone := e.note(s, c)
	defer e.place(s, asked, alone)
	return through(ctx, s, "step", c.Requests, func() (protocol.Reply, error) {
		lost := e.prepare(s, &c)
		reply, err := s.Session.Step(ctx, c)
		if err == nil {
			e.learn(s, c, lost, &reply)
			s.granted(reply.Notification)
		}
		e.stepped()
		return reply, err
	})
}

// through makes a call of the memory engine, with the faults on its way there and back.
func through[T any](ctx context.Context, s *session, op string, requests []protocol.Request, call func() (T, error)) (none T, err error) {
	fault := s.engine.fault(s.name, requests)
	if err := fault.before(ctx, op); err != nil {
		return none, err
	}
	answer, err := call()
	if failure := fault.after(); err == nil && failure != nil {
		return none, failure
	}
	return answer, err
}

// prepare makes of a call what is to be carried out. It returns which requests
// are about lost permits, as they came, by their index.
func (e *Engine) prepare(s *session, c *protocol.Call) map[int]protocol.Kind {
	c.Keep = 0
	e.mu.Lock()
	defer e.mu.Unlock()
	var lost map[int]protocol.Kind
	for i, r := range c.Requests {
		if _, ok := e.lost[r.ID]; !ok || r.Kind != protocol.Renew && r.Kind != protocol.Release {
			continue
		}
		if lost == nil {
			lost = map[int]protocol.Kind{}
			c.Requests = append([]protocol.Request(nil), c.Requests...) // the rest is the caller's
		}
		lost[i] = r.Kind
		if r.Kind == protocol.Renew { // ask for what changes nothing
			c.Requests[i] = protocol.Request{Kind: protocol.Release, ID: engine.ID{Client: s.Client(), Weight: 1}}
		}
	}
	return lost
}

// learn takes in a reply: lost permits are gone, whatever the memory engine
// says, and what was not granted has no place.
func (e *Engine) learn(s *session, c protocol.Call, lost map[int]protocol.Kind, reply *protocol.Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply.Keep = false
	for i := range reply.Answers {
		id := c.Requests[i].ID
		a := &reply.Answers[i]
		if _, ok := lost[i]; ok {
			*a = protocol.Answer{Status: protocol.Gone}
		}
		switch {
		case lost[i] == protocol.Renew:
		case c.Requests[i].Kind == protocol.Release, c.Requests[i].Kind == protocol.Ask && a.Status != protocol.Granted && a.Status != protocol.Queued:
			e.forget(id)
			delete(s.asking, id)
		case c.Requests[i].Kind == protocol.Ask && a.Status == protocol.Granted:
			delete(s.asking, id)
		}
	}
}

// forget drops what is known of a permit. The lock is held.
func (e *Engine) forget(id engine.ID) {
	delete(e.places, id)
	delete(e.detached, id)
	delete(e.lost, id)
}

// State implements protocol.Session.
func (s *session) State(ctx context.Context) (engine.State, error) {
	return through(ctx, s, "state", nil, func() (engine.State, error) { return s.Session.State(ctx) })
}

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (protocol.Reports, error) {
	return through(ctx, s, "reports", nil, func() (protocol.Reports, error) { return s.Session.(protocol.Reporting).Reports(ctx) })
}

// Close implements protocol.Session.
func (s *session) Close() error {
	s.engine.mu.Lock()
	delete(s.engine.sessions, s.Client())
	s.engine.mu.Unlock()
	return s.Session.Close()
}
