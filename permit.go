package sema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Permit is one successful acquisition. Its methods are safe for concurrent
// use.
type Permit struct{ c *claim }

// Context ends, with cause ErrLost, before anybody else can hold the permit;
// with cause ErrReleased after Release; and with the context that was given to
// Acquire, whose values it carries. Its Err is exact even right after the
// process was stopped and woke up again: it compares the clock.
func (p *Permit) Context() context.Context {
	c, s := p.c, p.c.sem
	s.mu.Lock()
	x, cause := c.ctx, c.cause
	s.mu.Unlock()
	if x != nil {
		return x
	}
	// The parent may be the context of another permit of the same Semaphore,
	// which takes the lock. What has ended before the context was made has its
	// own cause, and not the parent's.
	parent := c.parent
	if cause != nil {
		parent = context.WithoutCancel(parent)
	}
	inner, end := context.WithCancelCause(parent)
	x = &permitContext{Context: inner, end: end, c: c}
	s.mu.Lock()
	first := c.ctx == nil
	if first {
		c.ctx = x
	}
	kept := c.ctx
	cause = c.cause
	s.mu.Unlock()
	if !first {
		end(nil)
	}
	if cause != nil {
		kept.finish(cause)
	}
	return kept
}

// Err is nil while the permit is held and trusted, an ErrLost after it was
// lost, ErrReleased after it was released.
func (p *Permit) Err() error {
	s := p.c.sem
	s.endIfOverdue(p.c)
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.c.over
}

// ID names the permit towards the engine and its operators.
func (p *Permit) ID() string { return p.c.req.ID }

// Weight is how much of the limit the permit takes.
func (p *Permit) Weight() int { return p.c.req.Weight }

// Token is the fencing token: larger than that of every permit of the same
// semaphore that was granted before. Storage that remembers the largest token
// it saw, per slot where the limit is above 1, can refuse a holder of the past.
// Tokens follow the order of grants where the engine records them (see
// Options.Label); else one that was asked for twice may be newer than its
// grant. It is 0 for a resumed permit whose token the engine did not record.
func (p *Permit) Token() int64 { return p.c.token }

// Slot is the permit's index 0 … limit-1 with Options.Slots, else -1.
func (p *Permit) Slot() int { return p.c.slot }

// Deadline is when the permit's context will end unless the permit is renewed
// before. Renewals move it. What happens until then is safe; the margin that
// follows is the time to stop.
func (p *Permit) Deadline() time.Time {
	s := p.c.sem
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.c.trust
}

// Renew gives the permit a whole new lease now. Automatic renewal does the
// same in the background. It fails with an ErrLost or ErrReleased when the
// permit is not held any more, and with an *EngineError when the engine could
// not be asked: the permit is then held until Deadline, as before.
func (p *Permit) Renew(ctx context.Context) error {
	if err := p.Err(); err != nil {
		return err
	}
	return p.c.sem.renewNow(ctx, p.c)
}

// Release gives the permit back and hands it to the next waiter. It does not
// depend on the context given to Acquire. It returns nil when the permit was
// held until now; an ErrLost when it had been lost before; ErrReleased when it
// had been released before. An *EngineError says that the engine did not
// confirm: the release is repeated in the background, and the permit comes
// back with its lease in any case.
func (p *Permit) Release() error { return p.release(ErrReleased) }

func (p *Permit) release(cause error) error {
	c, s := p.c, p.c.sem
	now := time.Now()
	s.mu.Lock()
	if errors.Is(c.over, ErrReleased) || errors.Is(c.over, ErrClosed) {
		s.mu.Unlock()
		return ErrReleased
	}
	var lose func()
	if c.state == held && !now.Before(c.trust) {
		lose = s.lose(c, errNotRenewed)
	}
	lost := c.over
	c.end(cause)
	delete(s.claims, c.req.ID)
	trust, held := c.trust, now.Sub(c.since)
	s.busy++
	pctx, ctx := c.ctx, s.callContext(now)
	s.mu.Unlock()
	if lose != nil {
		lose()
	}
	pctx.finish(cause)

	found, err := s.session.Release(ctx, c.req.ID)
	s.mu.Lock()
	if err != nil {
		s.giveBack(c.req.ID, trust.Add(s.options.Margin))
	}
	s.left()
	s.mu.Unlock()
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return s.unanswered("release", err)
	case !found:
		err = fmt.Errorf("%w: the engine had no permit %s any more", ErrLost, c.req.ID)
		tell(s.options.Observer.Lost, Event{Name: s.name, ID: c.req.ID, Weight: c.req.Weight, Token: c.token, Held: held, Err: err})
		return err
	}
	if f := s.options.Observer.Released; f != nil {
		f(Event{Name: s.name, ID: c.req.ID, Weight: c.req.Weight, Token: c.token, Held: held})
	}
	return nil
}

// abandon ends the local side of a detached permit, which lives on.
func (p *Permit) abandon() {
	s := p.c.sem
	s.mu.Lock()
	p.c.end(ErrClosed)
	delete(s.claims, p.c.req.ID)
	ctx := p.c.ctx
	s.mu.Unlock()
	ctx.finish(ErrClosed)
}

// permitContext ends with its permit. Err looks at the clock itself, because
// after a pause of the whole process the timer that should have ended the
// context may not have run yet.
type permitContext struct {
	context.Context // of context.WithCancelCause, so that children attach to it cheaply
	end             context.CancelCauseFunc
	c               *claim
}

func (x *permitContext) Err() error {
	x.c.sem.endIfOverdue(x.c)
	return x.Context.Err()
}

// finish ends the context, if there is one.
func (x *permitContext) finish(cause error) {
	if x != nil {
		x.end(cause)
	}
}
