package fileengine

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"sema"
	"sema/internal/ledger"
)

// session is one client's access to one semaphore.
type session struct {
	engine *Engine
	name   string
	file   string
	lock   *lock
	id     string
	by     sema.Client
	wake   func(sema.Wake)

	listening atomic.Bool
}

// Client implements sema.Session.
func (s *session) Client() string { return s.id }

// step changes the semaphore's file under its lock and passes on the news.
func (s *session) step(ctx context.Context, op string, f func(l *ledger.Ledger, now int64)) error {
	if err := s.engine.live(); err != nil {
		return fail(op, s.name, err)
	}
	news, err := s.change(ctx, f)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err != nil {
		return fail(op, s.name, err)
	}
	s.engine.deliver(news)
	return nil
}

func (s *session) change(ctx context.Context, f func(l *ledger.Ledger, now int64)) (map[string]*sema.Wake, error) {
	unlock, err := s.lock.take(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := s.load()
	if err != nil {
		return nil, err
	}
	f(l, now())
	news := l.Take()
	if l.Over(now()) {
		if err := os.Remove(s.file); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		return news, nil
	}
	return news, write(s.file, s.engine.process, stored{Name: s.name, Snapshot: l.Save()})
}

func (s *session) load() (*ledger.Ledger, error) {
	was, err := read(s.file)
	if err != nil {
		return nil, err
	}
	l := &ledger.Ledger{}
	if was != nil && was.Name != s.name {
		return nil, fmt.Errorf("%s is damaged: it is of %q", s.file, was.Name)
	}
	if was != nil {
		l = ledger.Load(was.Snapshot)
	}
	l.Reach = func(client string) bool { return s.engine.alive(processOf(client)) }
	return l, nil
}

// bury ends what dead processes had. It costs a lock probe for each process,
// so it is done only when it matters: before somebody has to wait.
func (s *session) bury(l *ledger.Ledger, now int64) {
	alive := map[string]bool{}
	for _, client := range l.Clients() {
		process := processOf(client)
		if _, known := alive[process]; !known {
			alive[process] = s.engine.alive(process)
		}
	}
	l.Bury(now, func(client string) bool { return !alive[processOf(client)] })
}

// Acquire implements sema.Session. A hand-off must find a listener, so this
// client listens before it queues for the first time.
func (s *session) Acquire(ctx context.Context, r sema.Request) (a sema.Answer, err error) {
	ask := func(r sema.Request) error {
		return s.step(ctx, "acquire", func(l *ledger.Ledger, now int64) {
			try := r
			try.Wait = false
			if a = l.Acquire(now, s.by, try); a.Status == sema.Refused {
				s.bury(l, now)
				a = l.Acquire(now, s.by, r)
			}
		})
	}
	if r.Wait && !s.listening.Load() {
		try := r
		try.Wait = false
		if err := ask(try); err != nil || a.Status != sema.Refused {
			return a, err
		}
		if err := s.engine.listen(s); err != nil {
			return a, fail("acquire", s.name, err)
		}
		s.listening.Store(true)
	}
	err = ask(r)
	return a, err
}

// Renew implements sema.Session.
func (s *session) Renew(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
	answers := make([]sema.Answer, len(rs))
	err := s.step(ctx, "renew", func(l *ledger.Ledger, now int64) {
		for _, r := range rs {
			if r.Token == 0 {
				s.bury(l, now)
				break
			}
		}
		for i, r := range rs {
			answers[i] = l.Renew(now, s.by, r)
		}
	})
	return answers, err
}

// Release implements sema.Session.
func (s *session) Release(ctx context.Context, id string) (found bool, err error) {
	err = s.step(ctx, "release", func(l *ledger.Ledger, now int64) { found = l.Release(now, id) })
	return found, err
}

// Revoke implements sema.Session.
func (s *session) Revoke(ctx context.Context, id string) (found bool, err error) {
	err = s.step(ctx, "revoke", func(l *ledger.Ledger, now int64) { found = l.Revoke(now, id) })
	return found, err
}

// SetLimit implements sema.Session.
func (s *session) SetLimit(ctx context.Context, limit int, pin bool) error {
	return s.step(ctx, "limit", func(l *ledger.Ledger, now int64) { l.SetLimit(now, limit, pin) })
}

// State implements sema.Session. It needs no lock: files are replaced whole.
func (s *session) State(context.Context) (sema.State, error) {
	l, err := s.load()
	if err != nil {
		return sema.State{}, fail("state", s.name, err)
	}
	t := now()
	s.bury(l, t)
	return l.State(t), nil
}

// Close implements sema.Session.
func (s *session) Close() error {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s.id)
	if e.watch != nil {
		e.watch.remove(e.inbox(s.id))
	}
	_ = os.Remove(e.inbox(s.id)) // may never have been there
	return nil
}

func processOf(client string) string {
	process, _, _ := strings.Cut(client, ".")
	return process
}
