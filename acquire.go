package sema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// acquire asks for a permit and waits for it: for ever if wait is negative,
// not at all if it is 0.
func (s *Semaphore) acquire(ctx context.Context, n int, wait time.Duration) (*Permit, error) {
	if n < 1 || n > MaxLimit {
		return nil, &ArgumentError{"weight", n, fmt.Sprintf("1 … %d", MaxLimit)}
	}
	if ctx.Err() != nil {
		return nil, unavailable(ctx)
	}
	began := time.Now()
	p, err := s.acquireOne(ctx, n, wait, began)
	if err != nil {
		tell(s.options.Observer.Failed, Event{Name: s.name, Weight: n, Waited: time.Since(began), Err: err})
		return nil, err
	}
	if f := s.options.Observer.Acquired; f != nil {
		f(Event{Name: s.name, ID: p.ID(), Weight: n, Token: p.Token(), Waited: time.Since(began)})
	}
	return p, nil
}

func (s *Semaphore) acquireOne(ctx context.Context, n int, wait time.Duration, began time.Time) (*Permit, error) {
	// The wait's own limit bounds the calls, not the permit.
	bounded := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w within %v", ErrUnavailable, wait))
		defer cancel()
	}
	if s.options.OnConflict == Declare {
		if err := s.declare(bounded); err != nil {
			return nil, s.waitError(ctx, bounded, err)
		}
		began = time.Now()
	}
	c, err := s.newClaim(n, wait != 0, began)
	if err != nil {
		return nil, err
	}
	request := c.req // nobody changes it before the first answer
	answer, err := s.session.Acquire(bounded, request)
	switch {
	case err != nil:
		err = s.failed(c, err)
	case s.apply(c, request, answer, began):
		err = c.result
	default:
		err = s.await(bounded, c)
	}
	if err == nil {
		err = s.wholeLease(bounded, c)
	}
	if err == nil && bounded.Err() == nil && s.claimed(ctx, c) {
		return &c.permit, nil
	}
	err = s.waitError(ctx, bounded, s.unclaim(c, err))
	s.leave()
	return nil, err
}

// failed is what an ask without an answer means: nothing, if the hand-off came
// through all the same.
func (s *Semaphore) failed(c *claim, err error) error {
	var engine *EngineError
	untouched := errors.As(err, &engine) && engine.NotExecuted
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.settled {
		return c.result
	}
	c.clean = untouched
	return s.unanswered("acquire", err)
}

// claimed makes a permit of a claim that was granted, if it is still held.
func (s *Semaphore) claimed(ctx context.Context, c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state != held || s.closed {
		return false
	}
	c.parent, c.issued = ctx, true
	s.plan(c, c.since)
	s.left()
	return true
}

// wholeLease renews a granted claim of whose lease too little is left, or whose
// lease nobody will extend after a hand-off gave only the rest of the ticket's.
func (s *Semaphore) wholeLease(ctx context.Context, c *claim) error {
	now := time.Now()
	s.mu.Lock()
	late := c.state == held && !now.Before(c.trust)
	short := c.state == held && c.short && s.options.Renew == NoRenewal
	s.mu.Unlock()
	if !late && !short {
		return nil
	}
	return s.renewNow(ctx, c)
}

// unclaim ends a claim that did not become a permit and has the engine forget
// what it may have of it, unless the engine said that it has nothing.
func (s *Semaphore) unclaim(c *claim, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
	case s.closed:
		err = ErrClosed
	case c.over != nil: // granted, and gone again before the caller saw it
		err = c.over
	}
	delete(s.claims, c.req.ID)
	c.state = ended
	if !c.clean {
		s.giveBack(c.req.ID, time.Now().Add(s.options.Lease))
	}
	return err
}

// waitError prefers as the reason that the wait was over, if it was; an engine
// that did not answer until then is named as well.
func (s *Semaphore) waitError(ctx, bounded context.Context, err error) error {
	var over error
	switch {
	case ctx.Err() != nil:
		over = unavailable(ctx)
	case bounded.Err() != nil:
		over = context.Cause(bounded)
	case err == nil:
		return errNotRenewed // the grant is over; no reason is known
	default:
		return err
	}
	var engine *EngineError
	if errors.As(err, &engine) {
		return fmt.Errorf("%w: %w", over, err)
	}
	return over
}

// resume takes up an existing permit.
func (s *Semaphore) resume(ctx context.Context, id string, weight int) (*Permit, error) {
	c := &claim{sem: s, state: held, slot: -1, ahead: -1, since: time.Now(), req: s.request(id, weight, false)}
	c.permit.c, c.parent = c, ctx
	c.req.Token = 1 // a permit to be renewed, never granted
	c.inflight = true
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if _, exists := s.claims[id]; exists {
		s.mu.Unlock()
		return nil, &ArgumentError{"permit", id, "one that this Semaphore does not hold already"}
	}
	s.claims[id] = c
	s.busy++
	s.mu.Unlock()
	defer s.leave()

	sent := time.Now()
	answers, err := s.session.Renew(ctx, []Request{c.req})
	if err == nil && answers[0].Status != Granted {
		err = answers[0].err(s, c)
	}
	s.mu.Lock()
	if err == nil && s.closed {
		err = ErrClosed // its lease goes on without us
	}
	if err != nil {
		c.state = ended
		delete(s.claims, id)
		s.mu.Unlock()
		return nil, s.unanswered("resume", err)
	}
	c.inflight = false
	c.token, c.slot = answers[0].Token, answers[0].Slot
	c.sent, c.trust = sent, sent.Add(answers[0].Lease-s.options.Margin)
	c.issued = true
	s.plan(c, time.Now())
	s.mu.Unlock()
	return &c.permit, nil
}

// unanswered makes an *EngineError of a context's end, where it was the engine
// that kept the caller waiting.
func (s *Semaphore) unanswered(op string, err error) error {
	var engine *EngineError
	if errors.As(err, &engine) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &EngineError{Op: op, Name: s.name, Hint: "check the engine, or wait longer", Err: fmt.Errorf("no answer in time: %w", err)}
}

// declare carries out the Declare policy, once, before the first acquisition.
func (s *Semaphore) declare(ctx context.Context) error {
	if s.options.OnConflict != Declare {
		return nil
	}
	select {
	case s.declaring <- struct{}{}:
		defer func() { <-s.declaring }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.declared {
		return nil
	}
	if err := s.session.SetLimit(ctx, s.limit, false); err != nil {
		return s.unanswered("limit", err)
	}
	s.declared = true
	return nil
}
