package fileengine

import (
	"context"
	"errors"
	"os"
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
	log    *log
	id     string
	who    engine.Client
	notify func(protocol.Notification)

	lasting atomic.Bool // tickets live as long as this process
	closed  atomic.Bool
	fence   protocol.Fence // used by Step only

	mu      sync.Mutex
	waiting map[engine.ID]int64 // tickets and their lives, as in protocol.Answer.Ticket
}

// Client implements protocol.Session.
func (s *session) Client() string { return s.id }

// Lasting implements protocol.Lasting.
func (s *session) Lasting() bool {
	s.lasting.Store(true)
	return true
}

// Alive implements protocol.Living. Somebody writes the log: then its lock is passed on.
func (s *session) Alive(ctx context.Context) bool {
	first, _ := os.Lstat(s.log.path)
	return protocol.Sees(ctx, func() bool {
		now, _ := os.Lstat(s.log.path)
		if first == nil || now == nil {
			return (first == nil) != (now == nil)
		}
		return !os.SameFile(first, now) || first.Size() != now.Size() || !first.ModTime().Equal(now.ModTime())
	})
}

// Step implements protocol.Session.
func (s *session) Step(ctx context.Context, c protocol.Call) (reply protocol.Reply, err error) {
	creates, asks := false, false
	for _, r := range c.Requests {
		creates = creates || r.Kind == protocol.Ask || r.Kind == protocol.SetLimit && r.Limit > 0
		asks = asks || r.Kind == protocol.Ask
	}
	c.Keep = 0 // this engine cannot recall a kept permit
	if asks && s.lasting.Load() {
		c.Requests = slices.Clone(c.Requests)
		for i := range c.Requests {
			c.Requests[i].Ticket = 0
		}
	}
	if s.closed.Load() {
		err = engine.ErrClosed
	} else if err = s.fence.Pass(&c); err == nil && asks {
		err = s.log.engine.ensureInbox(false)
	}
	if err == nil {
		err = s.log.step(ctx, creates, false, func(t *step) { reply = s.carryOut(t, c) })
	}
	if errors.Is(err, errNoLog) { // there is nothing to renew or release
		none := &ledger.Ledger{}
		return none.Step(0, s.id, s.who, c), nil
	}
	return reply, fail("step", s.log.name, err)
}

// carryOut executes a call. If an Ask was refused although nobody waits, it removes dead
// holders and tries again.
func (s *session) carryOut(t *step, c protocol.Call) protocol.Reply {
	reply := t.carryOut(record{Client: s.id, Who: s.who, Call: c})
	_, waits := t.log.ledger.Head()
	var refused []int
	for i, a := range reply.Answers {
		if a.Status == protocol.Refused && !waits {
			refused = append(refused, i)
		}
	}
	if len(refused) > 0 && len(t.reapDead(t.log.holders())) > 0 {
		again := protocol.Call{}
		for _, i := range refused {
			again.Requests = append(again.Requests, c.Requests[i])
		}
		second := t.carryOut(record{Client: s.id, Who: s.who, Call: again})
		for i, a := range second.Answers {
			reply.Answers[refused[i]] = a
		}
		reply.Notification.Merge(second.Notification)
	}
	t.setUntil(&reply.Notification)
	s.note(c, reply)
	t.reapBlockers()
	reply.Recheck = 0 // this engine itself watches the leases
	return reply
}

// note records which tickets wait.
func (s *session) note(c protocol.Call, reply protocol.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range reply.Answers {
		id := c.Requests[i].ID
		if a.Status == protocol.Queued {
			s.waiting[id] = a.Ticket
		} else {
			delete(s.waiting, id)
		}
	}
	for _, g := range reply.Notification.Grants {
		delete(s.waiting, g.ID)
	}
}

// deliver passes a notification on, with each grant of a waiting ticket once.
func (s *session) deliver(n protocol.Notification) {
	s.mu.Lock()
	var grants []protocol.Grant
	for _, g := range n.Grants {
		if life, ok := s.waiting[g.ID]; ok && g.Ticket >= life {
			delete(s.waiting, g.ID)
			grants = append(grants, g)
		}
	}
	n.Grants = grants
	s.mu.Unlock()
	if !s.closed.Load() && !n.Empty() {
		s.notify(n)
	}
}

// State implements protocol.Session. It leaves out the permits and tickets of dead processes.
func (s *session) State(ctx context.Context) (state engine.State, err error) {
	err = s.read(ctx, "state", func(t *step) {
		var processes []string
		for _, client := range t.log.ledger.Clients() {
			processes = append(processes, processOf(client))
		}
		if len(t.reapDead(slices.Compact(processes))) > 0 {
			t.reapBlockers()
		}
		state = t.log.ledger.State(t.At)
	})
	return state, err
}

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (reports protocol.Reports, err error) {
	err = s.read(ctx, "reports", func(t *step) { reports = t.log.ledger.Reports(t.At) })
	return reports, err
}

// read calls f with the log, unless there is none. It succeeds even if the records that f
// adds cannot be written.
func (s *session) read(ctx context.Context, op string, f func(t *step)) error {
	if s.closed.Load() {
		return fail(op, s.log.name, engine.ErrClosed)
	}
	done := false
	err := s.log.step(ctx, false, false, func(t *step) {
		f(t)
		done = true
	})
	if done || errors.Is(err, errNoLog) {
		return nil
	}
	return fail(op, s.log.name, err)
}

// Close implements protocol.Session. It releases waiting tickets, because nobody would
// receive their grants. It keeps a ticket that another session has asked for since.
func (s *session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.mu.Lock()
	c := protocol.Call{}
	for id := range s.waiting {
		c.Requests = append(c.Requests, protocol.Request{Kind: protocol.Release, ID: id, Mine: true})
	}
	s.mu.Unlock()
	if len(c.Requests) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/4)
		defer cancel()
		_ = s.log.step(ctx, false, true, func(t *step) {
			t.carryOut(record{Client: s.id, Who: s.who, Call: c})
			t.reapBlockers()
		})
	}
	s.log.engine.forget(s)
	return nil
}
