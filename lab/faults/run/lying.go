package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// lyingEngine is an engine with a planted bug.
type lyingEngine struct {
	*place
	bug  *planted
	seed uint64
}

// Open implements sema.Engine.
func (e *lyingEngine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s := &lyingSession{at: e.place, name: name, random: rand.New(rand.NewPCG(e.seed, 5)), tokens: map[engine.ID]int64{}, favoured: e.seed%2 == 0}
	told := notify
	if e.bug.notify != nil {
		told = func(n protocol.Notification) { e.bug.notify(s, n, notify) }
	}
	var err error
	s.Session, err = e.place.Open(name, who, told)
	s.lie = e.bug.step
	return s, err
}

// lyingSession is a session with a planted bug.
type lyingSession struct {
	protocol.Session
	at   *place
	name string
	lie  func(s *lyingSession, ctx context.Context, c protocol.Call) (protocol.Reply, error)

	mu     sync.Mutex
	random *rand.Rand
	tokens map[engine.ID]int64
	count  int64

	favoured bool
}

// Step implements protocol.Session.
func (s *lyingSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	return s.lie(s, ctx, c)
}

// once is true now and then: once in n times.
func (s *lyingSession) once(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n) == 0
}

// each carries out the call and has its answers changed.
func (s *lyingSession) each(ctx context.Context, c protocol.Call, change func(r *protocol.Request, a *protocol.Answer)) (protocol.Reply, error) {
	reply, err := s.Session.Step(ctx, c)
	for i := range reply.Answers {
		change(&c.Requests[i], &reply.Answers[i])
	}
	return reply, err
}

func (s *lyingSession) fromNowhere(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		if a.Status == protocol.Queued && s.once(50) {
			*a = protocol.Answer{Status: protocol.Granted, Token: time.Now().UnixMicro(), Slot: -1, Lease: r.Lease}
		}
	})
}

// asksForOthers asks for keys of its own now and then.
func (s *lyingSession) asksForOthers(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	c.Requests = slices.Clone(c.Requests)
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Key != "" && s.once(3) {
			r.Key = fmt.Sprint("of ", r.ID)
		}
	}
	return s.Session.Step(ctx, c)
}

// revives asks for a fifth of the lease, and calls what it finds ended renewed.
func (s *lyingSession) revives(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Kind == protocol.Ask || r.Kind == protocol.Renew {
			r.Lease /= 5
			r.Ticket = min(r.Ticket, r.Lease)
		}
	}
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		switch {
		case a.Status == protocol.Granted:
			a.Lease = 5 * r.Lease
			s.remember(r.ID, a.Token)
		case r.Kind == protocol.Renew && a.Status == protocol.Gone && s.recall(r.ID) != 0:
			*a = protocol.Answer{Status: protocol.Granted, Token: s.recall(r.ID), Slot: -1, Lease: 5 * r.Lease}
		}
	})
}

func (s *lyingSession) remember(id engine.ID, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[id] = token
}

func (s *lyingSession) recall(id engine.ID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[id]
}

func (s *lyingSession) ownCount(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		if a.Status != protocol.Granted {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tokens[r.ID] == 0 {
			s.count++
			s.tokens[r.ID] = s.count
		}
		a.Token = s.tokens[r.ID]
	})
}

// counter is a token that Redis counts, once for each permit.
func (s *lyingSession) counter(ctx context.Context, id engine.ID) int64 {
	if token := s.recall(id); token != 0 {
		return token
	}
	key := "planted:" + s.name
	n, err := s.at.rdb.Incr(ctx, key).Result()
	if err != nil {
		return 0
	}
	s.at.rdb.Expire(ctx, key, time.Minute)
	s.remember(id, n)
	return n
}

func (s *lyingSession) counts(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		if a.Status == protocol.Granted {
			a.Token = s.counter(ctx, r.ID)
		}
	})
}

func (s *lyingSession) countsGrants(n protocol.Notification, pass func(protocol.Notification)) {
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
}

func (s *lyingSession) barges(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	for i := range c.Requests {
		c.Requests[i].Unfair = true
	}
	return s.Session.Step(ctx, c)
}

// jumps has the callers of some processes go before all others.
func (s *lyingSession) jumps(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Kind == protocol.Ask && s.favoured {
			r.Waited += 5 * time.Second
		}
	}
	return s.Session.Step(ctx, c)
}

// asksOnce asks the engine once for each ticket. Later it answers by itself, and
// leaves waiters to the notifications.
func (s *lyingSession) asksOnce(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	known := c
	known.Requests = nil
	for _, r := range c.Requests {
		if r.Kind != protocol.Ask || s.recall(r.ID) == 0 {
			known.Requests = append(known.Requests, r)
		}
	}
	reply, err := s.Session.Step(ctx, known)
	if err != nil {
		return reply, err
	}
	answers, next := make([]protocol.Answer, len(c.Requests)), 0
	for i, r := range c.Requests {
		if ticket := s.recall(r.ID); r.Kind == protocol.Ask && ticket != 0 {
			answers[i] = protocol.Answer{Status: protocol.Queued, Ticket: ticket, Ahead: 1}
			continue
		}
		answers[i] = reply.Answers[next]
		if next++; answers[i].Status == protocol.Queued {
			s.remember(r.ID, answers[i].Ticket)
		}
	}
	reply.Answers = answers
	return reply, nil
}

func (s *lyingSession) losesGrants(n protocol.Notification, pass func(protocol.Notification)) {
	if len(n.Grants) > 0 && s.once(10) {
		n.Grants = nil
	}
	pass(n)
}

func (s *lyingSession) losesReleases(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Kind == protocol.Release && s.once(20) {
			r.Kind = protocol.Renew
			r.Lease = 10 * time.Second
		}
	}
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		if r.Lease == 10*time.Second {
			a.Status = protocol.Done
		}
	})
}

func (s *lyingSession) sleeps(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.once(50) {
		time.Sleep(time.Second)
	}
	return s.Session.Step(ctx, c)
}

func (s *lyingSession) loses(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	return s.each(ctx, c, func(r *protocol.Request, a *protocol.Answer) {
		if r.Kind == protocol.Renew && s.once(10) {
			*a = protocol.Answer{Status: protocol.Gone}
		}
	})
}

func (s *lyingSession) fails(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.once(50) {
		return protocol.Reply{}, &engine.Error{Op: "step", NotExecuted: true, Err: errors.New("planted")}
	}
	return s.Session.Step(ctx, c)
}

func (s *lyingSession) persists(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.once(50) {
		if err := s.at.rdb.Set(ctx, fmt.Sprintf("sema:{%s}:planted", s.name), 1, 0).Err(); err != nil {
			return protocol.Reply{}, &engine.Error{Op: "step", Temporary: true, Err: err}
		}
	}
	return s.Session.Step(ctx, c)
}

func (s *lyingSession) leaves(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.once(10) {
		go func() { select {} }()
	}
	return s.Session.Step(ctx, c)
}

var _ sema.Engine = (*lyingEngine)(nil)
