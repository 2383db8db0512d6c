// Package memengine keeps semaphores in the memory of one process: for
// programs that run alone, and for tests.
//
// It keeps every promise of package sema. Its clock is the monotonic one, so
// leases do not feel a change of the system's time.
package memengine

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"sema"
	"sema/internal/ledger"
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
func (e *Engine) Open(name string, client sema.Client, wake func(sema.Wake)) (sema.Session, error) {
	if err := sema.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, sema.ErrClosed
	}
	e.clients++
	s := &session{engine: e, id: "m" + strconv.FormatUint(e.clients, 36), by: client, wake: wake}
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
		return nil, sema.ErrClosed
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
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, sem := range e.names {
		sem.mu.Lock()
		open := slices.Collect(maps.Values(sem.sessions))
		clear(sem.sessions)
		sem.mu.Unlock()
		for _, s := range open {
			s.wake(sema.Wake{Closed: true})
		}
	}
	return nil
}

type session struct {
	engine *Engine
	sem    *semaphore
	id     string
	by     sema.Client
	wake   func(sema.Wake)
}

// step runs f on the ledger and passes on the news it made.
func (s *session) step(ctx context.Context, op string, f func(l *ledger.Ledger, now int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sem := s.sem
	sem.mu.Lock()
	if sem.sessions[s.id] != s {
		sem.mu.Unlock()
		return &sema.EngineError{Op: op, NotExecuted: true, Err: sema.ErrClosed}
	}
	f(&sem.ledger, s.engine.now())
	news := sem.ledger.Take()
	if news == nil {
		sem.mu.Unlock()
		return nil
	}
	told := make(map[*session]*sema.Wake, len(news))
	for client, w := range news {
		if to := sem.sessions[client]; to != nil {
			told[to] = w
		}
	}
	sem.mu.Unlock()
	for to, w := range told {
		to.wake(*w)
	}
	return nil
}

func (s *session) Client() string { return s.id }

func (s *session) Acquire(ctx context.Context, r sema.Request) (a sema.Answer, err error) {
	err = s.step(ctx, "acquire", func(l *ledger.Ledger, now int64) { a = l.Acquire(now, s.by, r) })
	return a, err
}

func (s *session) Renew(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
	answers := make([]sema.Answer, len(rs))
	err := s.step(ctx, "renew", func(l *ledger.Ledger, now int64) {
		for i, r := range rs {
			answers[i] = l.Renew(now, s.by, r)
		}
	})
	return answers, err
}

func (s *session) Release(ctx context.Context, id string) (found bool, err error) {
	err = s.step(ctx, "release", func(l *ledger.Ledger, now int64) { found = l.Release(now, id) })
	return found, err
}

func (s *session) Revoke(ctx context.Context, id string) (found bool, err error) {
	err = s.step(ctx, "revoke", func(l *ledger.Ledger, now int64) { found = l.Revoke(now, id) })
	return found, err
}

func (s *session) SetLimit(ctx context.Context, limit int, pin bool) error {
	return s.step(ctx, "limit", func(l *ledger.Ledger, now int64) { l.SetLimit(now, limit, pin) })
}

func (s *session) State(ctx context.Context) (st sema.State, err error) {
	err = s.step(ctx, "state", func(l *ledger.Ledger, now int64) { st = l.State(now) })
	return st, err
}

func (s *session) Close() error {
	s.sem.mu.Lock()
	defer s.sem.mu.Unlock()
	delete(s.sem.sessions, s.id)
	return nil
}
