package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/classic"
	"sema/engine"
	"sema/internal/fixture/history"
	"sema/internal/protocol"
)

// planted is a bug that workers can have, so that the judge is judged as well.
type planted struct {
	name    string
	promise string // that it breaks
	fault   string // what it needs to show, beside load; empty: whatever comes
	keys    bool   // it needs keys that share a semaphore
	pools   bool   // it needs pools

	// The bug is in a session that lies: before a step, in requests and answers, in place of a
	// step, and in notifications. Or the semaphore is one of the book's.
	before   func(s *lyingSession, ctx context.Context) error
	ask      func(s *lyingSession, r *protocol.Request)
	answer   func(s *lyingSession, ctx context.Context, r *protocol.Request, a *protocol.Answer)
	step     func(s *lyingSession, ctx context.Context, c protocol.Call) (protocol.Reply, error)
	notify   func(s *lyingSession, n protocol.Notification, pass func(protocol.Notification))
	original func(rdb redis.UniversalClient, name string, limit int, o classic.Options) (classic.Semaphore, error)
}

// lost is how long the permit of a lost release stays.
const lost = 10 * time.Second

// plantedBugs are all there are.
var plantedBugs = []planted{
	{name: "a permit from nowhere", promise: history.PromiseLimit, answer: func(s *lyingSession, _ context.Context, r *protocol.Request, a *protocol.Answer) {
		if a.Status == protocol.Queued && s.once(50) {
			*a = protocol.Answer{Status: protocol.Granted, Token: time.Now().UnixMicro(), Slot: -1, Lease: r.Lease}
		}
	}},
	{
		name: "a renewal that revives", promise: history.PromiseLimit,
		ask: func(_ *lyingSession, r *protocol.Request) {
			if r.Kind == protocol.Ask || r.Kind == protocol.Renew {
				r.Lease /= 5
				r.Ticket = min(r.Ticket, r.Lease)
			}
		},
		answer: func(s *lyingSession, _ context.Context, r *protocol.Request, a *protocol.Answer) {
			switch {
			case a.Status == protocol.Granted:
				a.Lease = 5 * r.Lease
				s.remember(r.ID, a.Token)
			case r.Kind == protocol.Renew && a.Status == protocol.Gone && s.recall(r.ID) != 0:
				*a = protocol.Answer{Status: protocol.Granted, Token: s.recall(r.ID), Slot: -1, Lease: 5 * r.Lease}
			}
		},
	},
	{
		name: "the book's basic semaphore, clocks 100 ms apart", promise: history.PromiseLimit,
		original: func(rdb redis.UniversalClient, name string, limit int, o classic.Options) (classic.Semaphore, error) {
			return classic.NewBasic(rdb, name, limit, o)
		},
	},
	{
		name: "the book's fair semaphore, clocks 100 ms apart", promise: history.PromiseLimit,
		original: func(rdb redis.UniversalClient, name string, limit int, o classic.Options) (classic.Semaphore, error) {
			return classic.NewFair(rdb, name, limit, o)
		},
	},
	{name: "a permit of another key", promise: history.PromiseLimit, keys: true, ask: func(s *lyingSession, r *protocol.Request) {
		if r.Key != "" && s.once(3) {
			r.Key = engine.Key(fmt.Sprint("of ", r.ID))
		}
	}},
	{name: "a permit that takes nothing of its pools", promise: history.PromiseLimit, pools: true, ask: func(s *lyingSession, r *protocol.Request) {
		if r.Takes != "" && s.once(3) {
			r.Takes = ""
		}
	}},
	{name: "a token of the process's own counting", promise: history.PromiseTokens, answer: func(s *lyingSession, _ context.Context, r *protocol.Request, a *protocol.Answer) {
		if a.Status != protocol.Granted {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tokens[r.ID] == 0 {
			s.tokens[r.ID] = int64(len(s.tokens) + 1)
		}
		a.Token = s.tokens[r.ID]
	}},
	{
		name: "a counter as token, across a restart", promise: history.PromiseTokens, fault: "server: kill -9, nothing on disk",
		answer: func(s *lyingSession, ctx context.Context, r *protocol.Request, a *protocol.Answer) {
			if a.Status == protocol.Granted {
				a.Token = s.counter(ctx, r.ID)
			}
		},
		notify: func(s *lyingSession, n protocol.Notification, pass func(protocol.Notification)) {
			if len(n.Grants) == 0 {
				pass(n)
				return
			}
			go func() { // a notification may not block
				for i := range n.Grants {
					n.Grants[i].Token = s.counter(context.Background(), n.Grants[i].ID)
				}
				pass(n)
			}()
		},
	},
	{name: "barging", promise: history.PromiseOrder, ask: func(_ *lyingSession, r *protocol.Request) { r.Unfair = true }},
	{name: "newcomers that say they waited", promise: history.PromiseOrder, ask: func(s *lyingSession, r *protocol.Request) {
		if r.Kind == protocol.Ask && s.favoured { // the callers of some processes go before all others
			r.Waited += 5 * time.Second
		}
	}},
	{
		name: "a push without state", promise: history.PromiseWakeUp, step: (*lyingSession).asksOnce,
		notify: func(s *lyingSession, n protocol.Notification, pass func(protocol.Notification)) {
			if len(n.Grants) > 0 && s.once(10) {
				n.Grants = nil
			}
			pass(n)
		},
	},
	{
		name: "a release in two steps, the second of which may not come", promise: history.PromiseWakeUp,
		ask: func(s *lyingSession, r *protocol.Request) {
			if r.Kind == protocol.Release && s.once(20) {
				r.Kind, r.Lease = protocol.Renew, lost
			}
		},
		answer: func(_ *lyingSession, _ context.Context, r *protocol.Request, a *protocol.Answer) {
			if r.Lease == lost {
				a.Status = protocol.Done
			}
		},
	},
	{name: "a step that does not heed its context", promise: history.PromiseContexts, before: func(s *lyingSession, _ context.Context) error {
		if s.once(50) {
			time.Sleep(time.Second)
		}
		return nil
	}},
	{name: "a renewal that finds nothing", promise: history.PromiseTold, answer: func(s *lyingSession, _ context.Context, r *protocol.Request, a *protocol.Answer) {
		if r.Kind == protocol.Renew && s.once(10) {
			*a = protocol.Answer{Status: protocol.Gone}
		}
	}},
	{name: "an error that ends a wait", promise: history.PromiseTold, before: func(s *lyingSession, _ context.Context) error {
		if s.once(50) {
			return &engine.Error{Op: "step", NotExecuted: true, Err: errors.New("planted")}
		}
		return nil
	}},
	{name: "a key that stays for ever", promise: history.PromiseLeak, before: func(s *lyingSession, ctx context.Context) error {
		if s.once(50) {
			if err := s.at.RDB.Set(ctx, fmt.Sprintf("sema:{%s}:planted", s.name), 1, 0).Err(); err != nil {
				return &engine.Error{Op: "step", Temporary: true, Err: err}
			}
		}
		return nil
	}},
	{name: "a goroutine for each call", promise: history.PromiseLeak, before: func(s *lyingSession, _ context.Context) error {
		if s.once(10) {
			go func() { select {} }()
		}
		return nil
	}},
}

// plantedBug is the one of that name, or nil.
func plantedBug(name string) *planted {
	for i := range plantedBugs {
		if plantedBugs[i].name == name {
			return &plantedBugs[i]
		}
	}
	return nil
}

// skew is how far apart the clocks of neighbouring workers are, for the book's
// semaphores, which need them to agree.
const skew = 100 * time.Millisecond

// original has a handle use a semaphore of package classic, which does not wait:
// it tries again.
func (h *handle) original(rdb redis.UniversalClient, bug *planted) error {
	ahead := time.Duration(h.w.ID%3) * skew
	sem, err := bug.original(rdb, h.about.Name, h.about.Limit, classic.Options{
		Lease: h.about.Lease, Clock: func() time.Time { return time.Now().Add(ahead) },
	})
	h.close = func() error { return nil }
	h.acquire = func(ctx context.Context, what wish) (permit, error) {
		for {
			// Trusted for the lease from before it was asked for, less a tenth.
			until := time.Now().Add(h.about.Lease * 9 / 10)
			id, ok, err := sem.Acquire(ctx)
			switch {
			case ok:
				return &originalPermit{sem: sem, id: id, until: until}, nil
			case ctx.Err() != nil:
				return nil, fmt.Errorf("%w: %w", sema.ErrBusy, ctx.Err())
			case err == nil && what.try:
				return nil, sema.ErrBusy
			}
			select {
			case <-ctx.Done():
			case <-h.w.stopped:
				return nil, sema.ErrClosed
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return err
}

// originalPermit is a permit of package classic. It is not renewed.
type originalPermit struct {
	sem   classic.Semaphore
	id    string
	until time.Time
}

func (p *originalPermit) ID() string   { return p.id }
func (p *originalPermit) Token() int64 { return 0 }
func (p *originalPermit) Slot() int    { return -1 }

func (p *originalPermit) Err() error {
	if time.Now().After(p.until) {
		return sema.ErrLost
	}
	return nil
}

func (p *originalPermit) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.sem.Release(ctx, p.id); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	return nil
}
