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
	p, err := s.acquireOne(ctx, n, wait)
	if err != nil {
		tell(s.options.Observer.Failed, Event{Name: s.name, Weight: n, Waited: time.Since(began), Err: err})
		return nil, err
	}
	tell(s.options.Observer.Acquired, Event{Name: s.name, ID: p.ID(), Weight: n, Token: p.Token(), Waited: time.Since(began)})
	return p, nil
}

func (s *Semaphore) acquireOne(ctx context.Context, n int, wait time.Duration) (*Permit, error) {
	// The wait's own limit bounds the calls, not the permit.
	bounded := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w within %v", ErrUnavailable, wait))
		defer cancel()
	}
	if err := s.declare(bounded); err != nil {
		return nil, s.waitError(ctx, bounded, err)
	}
	c, err := s.newClaim(n, wait != 0)
	if err != nil {
		return nil, err
	}
	defer s.busy.Done()
	request, sent := c.req, c.sent
	answer, err := s.session.Acquire(bounded, request)
	if err == nil {
		s.apply(c, request, answer, sent)
		select {
		case err = <-c.done:
		case <-bounded.Done():
			err = bounded.Err()
		}
	} else {
		if errors.Is(err, context.DeadlineExceeded) {
			// Not for lack of permits: nobody said anything.
			err = &EngineError{Op: "acquire", Name: s.name, Hint: "check the engine, or wait longer", Err: fmt.Errorf("no answer in time: %w", err)}
		}
		select {
		case err = <-c.done: // the hand-off came through although the answer did not
		default:
		}
	}
	if err == nil {
		err = s.wholeLease(bounded, c)
	}
	if p := s.claimed(ctx, bounded, c, err); p != nil {
		return p, nil
	}
	return nil, s.waitError(ctx, bounded, s.unclaim(c, err))
}

// claimed makes a permit of a claim that was granted in time.
func (s *Semaphore) claimed(ctx, bounded context.Context, c *claim, err error) *Permit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || c.state != held || bounded.Err() != nil || s.closed {
		return nil
	}
	return s.newPermit(ctx, c)
}

// wholeLease renews a granted claim of whose lease too little is left, or whose
// lease nobody will extend after a hand-off gave only the rest of the ticket's.
func (s *Semaphore) wholeLease(ctx context.Context, c *claim) error {
	s.mu.Lock()
	late := c.state == held && !time.Now().Before(c.trust)
	short := c.state == held && c.handed && s.options.Renew == NoRenewal
	s.mu.Unlock()
	if !late && !short {
		return nil
	}
	return s.renewNow(ctx, c)
}

// unclaim ends a claim that did not become a permit and has the engine forget
// what it may have of it.
func (s *Semaphore) unclaim(c *claim, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && err == nil {
		err = ErrClosed
	}
	delete(s.claims, c.req.ID)
	var engine *EngineError
	clean := c.state == ended || errors.As(err, &engine) && engine.NotExecuted
	c.state = ended
	if !clean {
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
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if _, exists := s.claims[id]; exists {
		s.mu.Unlock()
		return nil, &ArgumentError{"permit", id, "one that this Semaphore does not hold already"}
	}
	c := &claim{sem: s, state: held, slot: -1, ahead: -1, since: time.Now(), done: make(chan error, 1), req: s.request(id, weight, false)}
	c.req.Token = 1 // a permit to be renewed, never granted
	c.inflight = true
	s.claims[id] = c
	s.mu.Unlock()

	sent := time.Now()
	answers, err := s.session.Renew(ctx, []Request{c.req})
	if err == nil && answers[0].Status != Granted {
		err = answers[0].err(s, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.inflight = false
	if err != nil {
		delete(s.claims, id)
		return nil, err
	}
	c.req.Token, c.slot = answers[0].Token, answers[0].Slot
	c.sent, c.trust = sent, sent.Add(answers[0].Lease-s.options.Margin)
	return s.newPermit(ctx, c), nil
}

// declare carries out the Declare policy before the first acquisition.
func (s *Semaphore) declare(ctx context.Context) error {
	if s.options.OnConflict != Declare {
		return nil
	}
	s.mu.Lock()
	done := s.declared
	s.mu.Unlock()
	if done {
		return nil
	}
	if err := s.session.SetLimit(ctx, s.limit, false); err != nil {
		return err
	}
	s.mu.Lock()
	s.declared = true
	s.mu.Unlock()
	return nil
}
