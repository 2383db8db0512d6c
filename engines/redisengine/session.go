package redisengine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/rediserror"
)

// confirmWait bounds the wait for a subscription to be confirmed.
const confirmWait = 250 * time.Millisecond

// session is one client's access to one semaphore.
type session struct {
	name     string
	keys     keys
	id       string
	notify   func(protocol.Notification)
	caller   *caller
	messages *dispatcher
	forget   func() // removes the session from the engine
	closed   atomic.Bool

	// Only Step uses these fields, and Step is never called concurrently.
	words          words
	noWait         [1]protocol.Request // of firstWait; here so that a call allocates none
	describedUntil time.Time           // until when the server has the client's description
	sub            *subscription       // nil: the session never had a permit, never waited, nor wanted to keep permits
	listening      bool                // the subscription's confirmation was awaited
	cannotListen   bool                // an attempt to subscribe failed
}

// Client implements protocol.Session.
func (s *session) Client() string { return s.id }

// Step implements protocol.Session.
func (s *session) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.closed.Load() {
		return protocol.Reply{}, s.fail(engine.ErrClosed)
	}
	if c.Keep > 0 && !s.listens(ctx) {
		c.Keep = 0
	}
	if s.caller.cluster != nil && s.sub != nil && len(s.sub.refusal) == 0 { // the slot may have moved to another node
		if sub, err := s.messages.subscribe(ctx, s.keys.state(), s.sub.channel, s.notify); err == nil {
			s.sub = sub
		}
	}
	if !slices.ContainsFunc(c.Requests, func(r protocol.Request) bool { return r.Kind == protocol.Ask && r.Wait }) {
		return s.step(ctx, c)
	}
	if !s.listening || len(s.sub.refusal) > 0 {
		return s.firstWait(ctx, c)
	}
	return s.step(ctx, c)
}

// Alive implements protocol.Living. The server answers on some connection.
func (s *session) Alive(ctx context.Context) bool {
	_, err := cancellable(ctx, func() (string, error) {
		master, err := s.caller.master(ctx, s.keys.state())
		if err != nil {
			return "", err
		}
		return master.Ping(ctx).Result()
	})
	return err == nil || rediserror.FromServer(err) && rediserror.Sort(err).Busy
}

// listens reports whether the session has a subscription, and tries once to
// make one. Only a session with a subscription may keep permits, because the
// engine must be able to recall them.
func (s *session) listens(ctx context.Context) bool {
	if !s.listening && !s.cannotListen {
		s.cannotListen = s.listen(ctx) != nil
	}
	return s.listening && len(s.sub.refusal) == 0
}

// firstWait carries out a call with waiting asks for a session without a
// subscription. It subscribes before it queues an ask: so it misses no hand-off.
// An ask that comes alone is first sent as one that does not wait: most are
// granted, and need not wait for a subscription. In other calls, and for named permits, that
// would be wrong: a light ask could be granted before an earlier heavy one, and
// an ask that does not wait drops the ticket of another session. If subscribing
// takes too long, the call goes on: a client that asks again finds its permit.
func (s *session) firstWait(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if len(c.Requests) == 1 && c.Requests[0].Who == nil {
		noWait := c
		s.noWait[0] = c.Requests[0]
		s.noWait[0].Wait = false
		noWait.Requests = s.noWait[:]
		reply, err := s.step(ctx, noWait)
		if err != nil || reply.Answers[0].Status != protocol.Refused {
			return reply, err
		}
		c.Fence = false // the first step has raised it
	}
	if err := s.listen(ctx); err != nil {
		return protocol.Reply{}, err
	}
	return s.step(ctx, c)
}

// listen subscribes the session to its inbox, and waits until the server has confirmed that.
func (s *session) listen(ctx context.Context) *engine.Error {
	err := s.subscribe(ctx)
	if err == nil {
		s.listening = true
		err = s.messages.wait(ctx, s.sub, confirmWait)
	}
	if err == nil {
		return nil
	}
	return s.caller.wrap("subscribe", s.name, err)
}

// subscribe subscribes the session to its inbox, without waiting for the server.
func (s *session) subscribe(ctx context.Context) error {
	sub, err := s.messages.subscribe(ctx, s.keys.state(), s.keys.inbox(s.id), s.notify)
	if err != nil {
		return err
	}
	s.sub = sub
	if s.closed.Load() { // Close ran before the subscription was there
		s.messages.unsubscribe(sub.channel)
	}
	return nil
}

// step runs the script once.
func (s *session) step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if err := s.caller.check(ctx, s.name); err != nil {
		return protocol.Reply{}, err
	}
	now := time.Now()
	described := s.describe(now, c)
	want, on := s.caller.replicas, 0
	var text string
	var err error
	for {
		keyed := s.words.keyed
		if args := s.words.encode(c, described); want > 0 && wantsReplicas(c) {
			text, on, err = s.caller.replicated(ctx, &s.words, s.keys.state(), args)
		} else {
			text, err = s.caller.run(ctx, &s.words, args)
		}
		if keyed || !redis.HasErrorPrefix(err, "SEMAKEYED") {
			break
		}
		s.words.keyed = true // the script has changed nothing: send the call again, with the keys
	}
	if err != nil {
		return protocol.Reply{}, s.fail(err)
	}
	reply, err := decode(text, len(c.Requests))
	if err != nil {
		return protocol.Reply{}, s.fail(err)
	}
	if described > 0 {
		s.describedUntil = now.Add(described)
	}
	if on < want {
		if needsReplicas(c, reply.Answers) {
			return protocol.Reply{}, s.fail(fmt.Errorf("%w: %d of %d", ErrTooFewReplicas, on, want))
		}
		markUnsure(reply.Notification.Grants)
	}
	if s.sub == nil && !s.cannotListen && slices.ContainsFunc(reply.Answers, func(a protocol.Answer) bool { return a.Status == protocol.Granted }) {
		s.cannotListen = s.subscribe(ctx) != nil // so that a holder hears at once that its permit was revoked
	}
	if reply.Unreachable && s.listening {
		s.messages.resubscribe(s.sub)
	}
	return reply, nil
}

// describe returns how long the server must keep the client's description, if the call
// must send it: a permit or ticket of the call could otherwise outlive the
// description that the server has. Otherwise it returns 0.
func (s *session) describe(now time.Time, c protocol.Call) time.Duration {
	longest := time.Duration(0)
	for i := range c.Requests {
		longest = max(longest, c.Requests[i].Lease)
	}
	keep := 2*longest + time.Minute
	if longest == 0 || s.describedUntil.Sub(now) > keep*2/3 {
		return 0
	}
	return keep
}

func (s *session) fail(err error) error { return s.caller.wrap("step", s.name, err) }

// Close implements protocol.Session.
func (s *session) Close() error {
	s.closed.Store(true)
	s.forget()
	s.messages.unsubscribe(s.keys.inbox(s.id))
	return nil
}
