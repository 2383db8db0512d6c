package redisengine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sema/engine"
)

// confirmWait bounds the wait for a subscription to be confirmed.
const confirmWait = 250 * time.Millisecond

// session is one client's access to one semaphore.
type session struct {
	name     string
	keys     keys
	id       string
	who      string // its description
	notify   func(engine.Notification)
	caller   *caller
	messages *dispatcher
	forget   func() // has the engine forget it
	closed   atomic.Bool

	// Of Step, of which there is one at a time.
	words   words
	try     []engine.Request // see firstWait; its memory is used again
	known   time.Time        // until when the server has the client's description
	sub     *subscription    // nil: it never waited, nor wanted to keep anything
	unheard bool             // it could not subscribe when it wanted to keep something
}

// Client implements engine.Session.
func (s *session) Client() string { return s.id }

// Step implements engine.Session.
func (s *session) Step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if s.closed.Load() {
		return engine.Reply{}, s.fail(engine.ErrClosed)
	}
	if c.Keep > 0 && !s.listens(ctx) {
		c.Keep = 0
	}
	if !slices.ContainsFunc(c.Requests, func(r engine.Request) bool { return r.Kind == engine.Ask && r.Wait }) {
		return s.step(ctx, c)
	}
	if s.sub == nil || len(s.sub.refusal) > 0 {
		return s.firstWait(ctx, c)
	}
	if s.caller.cluster != nil { // the slot may have moved to another node
		if sub, err := s.messages.subscribe(ctx, s.keys.state(), s.sub.channel, s.notify); err == nil {
			s.sub = sub
		}
	}
	return s.step(ctx, c)
}

// listens reports whether the session has a subscription, or can have one, so
// that what it is told of keeping permits can be taken back. It tries once: a
// session that cannot subscribe uses the semaphore without keeping.
func (s *session) listens(ctx context.Context) bool {
	if s.sub == nil && !s.unheard {
		s.unheard = s.listen(ctx) != nil
	}
	return s.sub != nil && len(s.sub.refusal) == 0
}

// firstWait carries out a call with waiting asks when nobody listens for this
// session yet. Most asks need not wait, and then no subscription is needed. For
// those that must, it is there first, so that no hand-off goes unheard. If it
// takes too long, the call goes on: a client that asks again finds its permit.
func (s *session) firstWait(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if passes(c) {
		if err := s.listen(ctx); err != nil {
			return engine.Reply{}, err
		}
		return s.step(ctx, c)
	}
	try, again := c, engine.Call{Number: c.Number, Keep: c.Keep}
	s.try = append(s.try[:0], c.Requests...)
	try.Requests = s.try
	for i := range try.Requests {
		try.Requests[i].Wait = false
	}
	reply, err := s.step(ctx, try)
	if err != nil {
		return reply, err
	}
	var at []int
	for i, r := range c.Requests {
		later := func(other engine.Request) bool { return other.ID == r.ID }
		if r.Wait && reply.Answers[i].Status == engine.Refused && !slices.ContainsFunc(c.Requests[i+1:], later) {
			at = append(at, i)
			again.Requests = append(again.Requests, r)
		}
	}
	if len(at) == 0 {
		return reply, nil
	}
	failed := func(err *engine.Error) (engine.Reply, error) {
		err.NotExecuted = err.NotExecuted && len(at) == len(c.Requests) // else the rest has been carried out
		return engine.Reply{}, err
	}
	if err := s.listen(ctx); err != nil {
		return failed(err)
	}
	second, err := s.step(ctx, again)
	if err != nil {
		return failed(err.(*engine.Error))
	}
	for k, i := range at {
		reply.Answers[i] = second.Answers[k]
	}
	reply.Limit, reply.Recheck = second.Limit, second.Recheck
	reply.Unreachable, reply.Leave = second.Unreachable, second.Leave
	reply.Recalled = reply.Recalled && slices.ContainsFunc(reply.Answers, func(a engine.Answer) bool { return a.Status == engine.Refused })
	reply.Notification.Merge(second.Notification)
	return reply, nil
}

// passes reports whether a call has an ask that could be granted although a
// heavier one before it has to wait: without tickets it would be. So does one that
// asks by name, for an ask that does not wait drops the ticket that another session
// may have.
func passes(c engine.Call) bool {
	heaviest := 0
	for _, r := range c.Requests {
		if r.Kind == engine.Ask && (r.ID.Weight < heaviest || r.Wait && r.Who != nil) {
			return true
		}
		if r.Kind == engine.Ask && r.Wait {
			heaviest = max(heaviest, r.ID.Weight)
		}
	}
	return false
}

// listen makes the session's subscription.
func (s *session) listen(ctx context.Context) *engine.Error {
	sub, err := s.messages.subscribe(ctx, s.keys.state(), s.keys.inbox(s.id), s.notify)
	if err == nil {
		s.sub = sub
		if s.closed.Load() { // meanwhile: Close may have found nothing to leave
			s.messages.leave(sub.channel)
		}
		err = s.messages.wait(ctx, sub, confirmWait)
	}
	if err == nil {
		return nil
	}
	e := s.caller.wrap("subscribe", s.name, err)
	e.NotExecuted = true
	return e
}

// step runs the script once.
func (s *session) step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	now := time.Now()
	who := s.describe(now, c)
	want, on := s.caller.replicas, 0
	var text string
	var err error
	for {
		keyed := s.words.keyed
		if args := s.words.encode(c, who); want > 0 && wantsReplicas(c) {
			text, on, err = s.caller.replicated(ctx, &s.words, s.keys.state(), args)
		} else {
			text, err = s.caller.run(ctx, now, &s.words, args)
		}
		if keyed || err == nil || !strings.HasPrefix(err.Error(), "SEMAKEYED ") {
			break
		}
		s.words.keyed = true // and again: nothing was done
	}
	if err != nil {
		return engine.Reply{}, s.fail(err)
	}
	reply, err := decode(text, len(c.Requests))
	if err != nil {
		return engine.Reply{}, s.fail(err)
	}
	if who != nil {
		s.known = now.Add(who.keep)
	}
	if on < want {
		if needsReplicas(c, reply.Answers) {
			return engine.Reply{}, s.fail(fmt.Errorf("%w: %d of %d", ErrTooFewReplicas, on, want))
		}
		markUnsure(reply.Notification.Grants)
	}
	if reply.Unreachable && s.sub != nil {
		s.messages.deaf(s.sub)
	}
	return reply, nil
}

// describe is what a call says of its client: something if a permit or ticket is
// at stake, which the server might know longer than whose it is.
func (s *session) describe(now time.Time, c engine.Call) *description {
	longest := time.Duration(0)
	for i := range c.Requests {
		longest = max(longest, c.Requests[i].Lease)
	}
	keep := 2*longest + time.Minute
	if longest == 0 || s.known.Sub(now) > keep*2/3 {
		return nil
	}
	return &description{s.who, keep}
}

func (s *session) fail(err error) error { return s.caller.wrap("step", s.name, err) }

// Close implements engine.Session.
func (s *session) Close() error {
	s.closed.Store(true)
	s.forget()
	s.messages.leave(s.keys.inbox(s.id))
	return nil
}
