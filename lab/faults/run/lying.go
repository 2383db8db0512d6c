package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/lab/faults/ground"
)

// lyingEngine is an engine with a planted bug.
type lyingEngine struct {
	*ground.Place
	bug  *planted
	seed uint64
}

// Open implements sema.Engine.
func (e *lyingEngine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s := &lyingSession{bug: e.bug, at: e.Place, name: name, random: rand.New(rand.NewPCG(e.seed, 5)), tokens: map[engine.ID]int64{}, favoured: e.seed%2 == 0}
	told := notify
	if e.bug.notify != nil {
		told = func(n protocol.Notification) { e.bug.notify(s, n, notify) }
	}
	var err error
	s.Session, err = e.Place.Open(name, who, told)
	return s, err
}

// lyingSession is a session with a planted bug.
type lyingSession struct {
	protocol.Session
	bug      *planted
	at       *ground.Place
	name     string
	favoured bool

	mu     sync.Mutex
	random *rand.Rand
	tokens map[engine.ID]int64
}

// Step implements protocol.Session.
func (s *lyingSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.bug.before != nil {
		if err := s.bug.before(s, ctx); err != nil {
			return protocol.Reply{}, err
		}
	}
	if s.bug.ask != nil {
		c.Requests = slices.Clone(c.Requests)
		for i := range c.Requests {
			s.bug.ask(s, &c.Requests[i])
		}
	}
	step := s.Session.Step
	if s.bug.step != nil {
		step = func(ctx context.Context, c protocol.Call) (protocol.Reply, error) { return s.bug.step(s, ctx, c) }
	}
	reply, err := step(ctx, c)
	if s.bug.answer != nil {
		for i := range reply.Answers {
			s.bug.answer(s, ctx, &c.Requests[i], &reply.Answers[i])
		}
	}
	return reply, err
}

// once is true now and then: once in n times.
func (s *lyingSession) once(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n) == 0
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

// counter is a token that Redis counts, once for each permit.
func (s *lyingSession) counter(ctx context.Context, id engine.ID) int64 {
	if token := s.recall(id); token != 0 {
		return token
	}
	key := "planted:" + s.name
	n, err := s.at.RDB.Incr(ctx, key).Result()
	if err != nil {
		return 0
	}
	s.at.RDB.Expire(ctx, key, time.Minute)
	s.remember(id, n)
	return n
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
