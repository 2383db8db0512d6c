package sema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// claim is the client's side of one permit, from the first ask to the end. All
// fields but those of req that never change are guarded by sem.mu.
type claim struct {
	sem   *Semaphore
	state claimState
	req   Request
	since time.Time // when the wait began; once held, when the permit was granted
	sent  time.Time // when the request was sent that the last good answer belongs to
	trust time.Time // held: when the permit's context ends
	due   time.Time // when to ask again or renew; zero: not
	slot  int

	ticket   int64 // life of the ticket in the last answer
	ahead    int   // tickets ahead in the last answer; -1: not queued yet
	token    int64 // the fencing token; 0 if the engine did not record it
	short    bool  // granted with less than the lease asked for: what was left of a ticket
	clean    bool  // the engine said that it has nothing of this claim
	inflight bool  // an ask or renewal is on its way
	again    bool  // ask once more when it is back

	settled bool          // held, or ended: there is nothing to wait for
	result  error         // settled: nil if it was held
	done    chan struct{} // closed when settled; nil as long as nobody waits

	issued bool            // the caller has the permit
	permit Permit          // in here, to be one allocation with it
	parent context.Context // of the permit's, as given to Acquire
	ctx    *permitContext  // the permit's, made when first asked for
	over   error           // why the permit ended
	cause  error           // the same when it ended first: released may follow on lost
}

type claimState int

const (
	waiting claimState = iota
	held
	ended
)

// newClaim registers a claim that is about to be sent, so that a hand-off that
// overtakes the answer finds it. The caller counts as busy until it calls
// leave, or claimed has.
func (s *Semaphore) newClaim(n int, wait bool, now time.Time) (*claim, error) {
	id := ID{Client: s.client, Slot: s.options.Slots, Listed: s.options.Label != "" || s.options.Detached, Weight: n}
	c := &claim{sem: s, req: s.request("", n, wait), since: now, sent: now, slot: -1, ahead: -1, inflight: true}
	c.permit.c = c
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.busy++
	s.number++
	id.Number = s.number
	c.req.ID = id.String()
	s.claims[c.req.ID] = c
	return c, nil
}

func (s *Semaphore) request(id string, weight int, wait bool) Request {
	return Request{
		ID: id, Weight: weight, Limit: s.limit, Strict: s.options.OnConflict == Refuse,
		Lease: s.options.Lease, Ticket: s.options.ticketLife(),
		Wait: wait, Unfair: s.options.Unfair, Detached: s.options.Detached,
	}
}

// settle tells the waiting caller, once.
func (c *claim) settle(err error) {
	if c.settled {
		return
	}
	c.settled, c.result = true, err
	if c.done != nil {
		close(c.done)
	}
}

// await waits until the claim is settled.
func (s *Semaphore) await(ctx context.Context, c *claim) error {
	s.mu.Lock()
	if c.settled {
		s.mu.Unlock()
		return c.result
	}
	c.done = make(chan struct{})
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.result
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apply takes in the answer to a request of a claim, sent at the given time. It
// reports whether the claim is settled.
func (s *Semaphore) apply(c *claim, r Request, a Answer, sent time.Time) (settled bool) {
	now := time.Now()
	var events []func()
	s.mu.Lock()
	defer func() {
		settled = c.settled
		s.mu.Unlock()
		for _, f := range events {
			f()
		}
	}()
	c.inflight = false
	if a.Limit != 0 && a.Limit != s.stored {
		s.stored = a.Limit
		if a.Limit != s.limit {
			e := Event{Name: s.name, Limit: s.limit, Stored: a.Limit}
			events = append(events, func() { tell(s.options.Observer.LimitDiffers, e) })
		}
	}
	if a.Look > 0 {
		s.look(now.Add(a.Look), sent)
	}
	switch {
	case c.state == ended:
		if r.Token == 0 && (a.Status == Granted || a.Status == Queued) {
			s.giveBack(r.ID, now.Add(r.Lease)) // the ask overtook the release
		}
	case a.Status == Granted:
		if sent.Before(c.sent) {
			break // an answer that was overtaken
		}
		switch {
		case c.state == waiting:
			c.grant(a.Token, a.Slot, now)
			c.short = a.Lease < r.Lease
		case !c.issued:
			// The hand-off's news came first. Should they have been old, so
			// that the ask was granted anew, its token and slot count.
			c.slot = a.Slot
			if a.Token != 0 {
				c.token = a.Token
			}
		case r.Token == 0:
			return settled // an ask on its way when the hand-off came: perhaps of another grant
		case !now.Before(c.trust):
			events = append(events, s.lose(c, errNotRenewed))
			return settled
		}
		c.sent, c.trust = sent, sent.Add(a.Lease-s.options.Margin)
		s.plan(c, now)
	case a.Status == Queued && c.req.Wait:
		if c.state == held {
			break // the hand-off overtook this answer
		}
		c.sent, c.ticket, c.req.Arrival = sent, a.Ticket, a.Arrival
		c.due = sent.Add(s.options.askEvery())
		if c.again {
			c.again, c.due = false, now
		}
		s.schedule(c.due)
		if c.ahead != a.Ahead {
			c.ahead = a.Ahead
			e := Event{Name: s.name, ID: c.req.ID, Weight: c.req.Weight, Ahead: a.Ahead, Waited: now.Sub(c.since)}
			events = append(events, func() { tell(s.options.Observer.Queued, e) })
		}
	case c.state == held:
		events = append(events, s.lose(c, a.err(s, c)))
	default:
		c.state, c.clean = ended, a.Status != Revoked
		c.settle(a.err(s, c))
	}
	return settled
}

// grant turns a ticket into a permit; the caller sets sent and trust.
func (c *claim) grant(token int64, slot int, now time.Time) {
	c.state, c.since, c.due = held, now, time.Time{}
	c.req.Token, c.token, c.slot = max(1, token), token, slot
	c.settle(nil)
}

// end notes that a claim is over, and why.
func (c *claim) end(cause error) {
	c.state, c.over = ended, cause
	if c.cause == nil {
		c.cause = cause
	}
}

// lose ends a permit that is not held any more. The result, to be called
// without the lock, ends the context and tells the observer.
func (s *Semaphore) lose(c *claim, cause error) func() {
	c.end(cause)
	delete(s.claims, c.req.ID)
	ctx := c.ctx
	e := Event{Name: s.name, ID: c.req.ID, Weight: c.req.Weight, Token: c.token, Held: time.Since(c.since), Err: cause}
	return func() {
		ctx.finish(cause)
		tell(s.options.Observer.Lost, e)
	}
}

// endIfOverdue ends a permit whose trust is over, if nobody has yet.
func (s *Semaphore) endIfOverdue(c *claim) {
	now := time.Now()
	s.mu.Lock()
	if c.state != held || now.Before(c.trust) {
		s.mu.Unlock()
		return
	}
	after := s.lose(c, errNotRenewed)
	s.mu.Unlock()
	after()
}

var errNotRenewed = fmt.Errorf("%w: not renewed in time", ErrLost)

// err is what an answer other than Granted and Queued means to the caller.
func (a Answer) err(s *Semaphore, c *claim) error {
	switch a.Status {
	case Refused:
		return ErrUnavailable
	case Gone:
		return fmt.Errorf("%w: the engine has no permit %s any more", ErrLost, c.req.ID)
	case Revoked:
		return ErrRevoked
	case TooHeavy:
		return &WeightError{Name: s.name, Weight: c.req.Weight, Limit: a.Limit}
	case LimitDiffers:
		return &LimitError{Name: s.name, Stored: a.Limit, Wanted: s.limit}
	}
	return &EngineError{Op: "acquire", Name: s.name, Err: errors.New("the engine's answer makes no sense")}
}
