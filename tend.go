package sema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Semaphore with claims has one timer. When it fires, tend ends the permits
// whose trust is over and asks again for everything that is due, in one call.
// Without claims it does not run.

// schedule has tend run at t or earlier. The lock is held.
func (s *Semaphore) schedule(t time.Time) {
	if s.closed || !s.wake.IsZero() && !t.Before(s.wake) {
		return
	}
	s.wake = t
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(t), s.tend)
		return
	}
	s.timer.Reset(time.Until(t))
}

func (s *Semaphore) disarm() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// plan sets when a held permit is renewed next: in a third of the time it is
// trusted at the latest, so that two renewals may fail. The lock is held.
func (s *Semaphore) plan(c *claim, now time.Time) {
	if !c.issued {
		return // the caller has not got it yet; claimed plans
	}
	s.schedule(c.trust)
	if s.options.Renew == NoRenewal {
		return
	}
	c.due = now.Add(min(s.options.Renew, c.trust.Sub(now)/3))
	s.schedule(c.due)
}

// look has this client ask again at t on behalf of all that wait. The news is
// as of the given time; older news cannot put off what newer ones said. The
// lock is held.
func (s *Semaphore) look(t, asOf time.Time) {
	if !s.lookAt.IsZero() && asOf.Before(s.lookAsOf) && !t.Before(s.lookAt) {
		return
	}
	s.lookAt, s.lookAsOf = t, asOf
	s.schedule(t)
}

// tend runs when the timer fires.
func (s *Semaphore) tend() {
	now := time.Now()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.wake = time.Time{}
	look := !s.lookAt.IsZero() && !now.Before(s.lookAt)
	if look {
		s.lookAt = time.Time{}
	}
	// What is nearly due goes along: fewer calls.
	soon := now.Add(s.options.Lease / (4 * leaseParts))
	var events []func()
	var due []*claim
	asking := false
	for _, c := range s.claims {
		if c.state == held && c.issued && !now.Before(c.trust) {
			events = append(events, s.lose(c, errNotRenewed))
			continue
		}
		if look && c.state == waiting && c.req.Wait {
			asking = true
			if !c.inflight { // any ticket serves
				look, c.due = false, now
			}
		}
		if !c.inflight && !c.due.IsZero() && !c.due.After(soon) {
			c.inflight = true
			due = append(due, c)
		}
	}
	if look && asking { // all tickets are on their way: their answers may be older
		s.lookAt = now.Add(s.callTimeout() / 20)
	}
	for _, c := range s.claims {
		if c.state == held && c.issued {
			s.schedule(c.trust)
		}
		if !c.inflight && !c.due.IsZero() {
			s.schedule(c.due)
		}
	}
	if !s.lookAt.IsZero() {
		s.schedule(s.lookAt)
	}
	s.busy++
	s.mu.Unlock()
	defer s.leave()
	for _, f := range events {
		f()
	}
	if len(due) > 0 {
		s.ask(due)
	}
}

// ask asks again for waiting claims and renews held ones, in one call.
func (s *Semaphore) ask(due []*claim) {
	requests := make([]Request, len(due))
	s.mu.Lock()
	// Should the engine have forgotten them, they join again in their order.
	slices.SortFunc(due, func(a, b *claim) int { return cmp.Compare(a.req.Arrival, b.req.Arrival) })
	for i, c := range due {
		requests[i] = c.req
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.callTimeout())
	defer cancel()
	sent := time.Now()
	answers, err := s.session.Renew(ctx, requests)
	if err == nil {
		for i, c := range due {
			s.apply(c, requests[i], answers[i], sent)
		}
		return
	}
	err = s.unanswered("renew", err)
	s.mu.Lock()
	now := time.Now()
	retry := now.Add(s.callTimeout() / 4)
	for i, c := range due {
		c.inflight, c.due = false, retry
		switch {
		case c.state == waiting && now.Sub(c.sent) > s.options.Lease:
			c.state = ended
			c.settle(err) // out of reach for a whole lease
		case c.state == ended && requests[i].Token == 0:
			// The ask may have overtaken the release of its claim.
			s.giveBack(requests[i].ID, now.Add(requests[i].Lease))
		}
	}
	s.schedule(retry)
	s.mu.Unlock()
	for i := range due {
		tell(s.options.Observer.RenewFailed, Event{Name: s.name, ID: requests[i].ID, Weight: requests[i].Weight, Token: requests[i].Token, Err: err})
	}
}

// callContext is for a call that does not depend on its caller's context. Many
// calls share one, which lasts for one to two callTimeouts from now on. The
// lock is held.
func (s *Semaphore) callContext(now time.Time) context.Context {
	if s.calls == nil || s.callsEnd.Sub(now) < s.callTimeout() {
		s.callsEnd = now.Add(2 * s.callTimeout())
		s.calls, s.endCalls = context.WithDeadline(context.Background(), s.callsEnd)
	}
	return s.calls
}

// callTimeout bounds one call in the background. What does not answer for so
// long is asked again, several times within a lease.
func (s *Semaphore) callTimeout() time.Duration {
	return max(s.options.askEvery(), MinLease/2)
}

// renewNow renews one claim while the caller waits.
func (s *Semaphore) renewNow(ctx context.Context, c *claim) error {
	s.mu.Lock()
	request := c.req
	s.mu.Unlock()
	sent := time.Now()
	answers, err := s.session.Renew(ctx, []Request{request})
	if err != nil {
		return err
	}
	s.apply(c, request, answers[0], sent)
	s.endIfOverdue(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.over
}

// leave ends a piece of work that was counted in busy.
func (s *Semaphore) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left()
}

// left is leave with the lock held.
func (s *Semaphore) left() {
	if s.busy--; s.busy == 0 && s.closed {
		s.idle.Broadcast()
	}
}

// giveBack releases in the background what a failed or cancelled call may have
// left at the engine, until it succeeds or the lease would have ended anyway.
// The lock is held.
func (s *Semaphore) giveBack(id string, until time.Time) {
	s.busy++
	go func() {
		defer s.leave()
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			ctx, cancel := context.WithTimeout(context.Background(), s.callTimeout())
			_, err := s.session.Release(ctx, id)
			cancel()
			if err == nil || errors.Is(err, ErrClosed) || time.Now().After(until) {
				return
			}
			select {
			case <-s.quit:
				return // one attempt has been made; the lease does the rest
			case <-time.After(pause):
			}
		}
	}()
}

// onWake takes in news from the engine.
func (s *Semaphore) onWake(w Wake) {
	var events []func()
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		for _, f := range events {
			f()
		}
	}()
	if s.closed {
		return
	}
	now := time.Now()
	for _, g := range w.Grants {
		c := s.claims[g.ID]
		switch {
		case c == nil:
			// Granted at the moment its wait was given up.
			s.giveBack(g.ID, now.Add(s.options.Lease))
		case c.state == waiting && g.Ticket >= c.ticket:
			// The permit was handed over after the last ask was sent, and
			// lives as long as the ticket that ask gave. An older ticket's
			// grant has ended before this one's began.
			c.grant(g.Token, g.Slot, now)
			c.short, c.inflight = true, false
			c.trust = c.sent.Add(c.req.Ticket - s.options.Margin)
		}
	}
	if w.Closed {
		for _, c := range s.claims {
			if c.state == held && c.issued {
				events = append(events, s.lose(c, errEngineClosed))
				continue
			}
			c.state, c.over = ended, errEngineClosed
			c.settle(ErrClosed)
		}
	}
	if w.Ask {
		for _, c := range s.claims {
			if c.state != waiting {
				continue
			}
			if c.inflight {
				c.again = true
				continue
			}
			c.due = now
			s.schedule(now)
		}
	}
	if w.Look > 0 {
		s.look(now.Add(w.Look), now)
	}
}

var errEngineClosed = fmt.Errorf("%w: its engine was closed", ErrLost)
