package sema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Permit is one successful acquisition. Its methods are safe for concurrent
// use.
type Permit struct {
	sem *Semaphore
	c   *claim
	ctx *permitContext
}

// Context ends, with cause ErrLost, before anybody else can hold the permit;
// with cause ErrReleased after Release; and with the context that was given to
// Acquire, whose values it carries. Its Err is exact even right after the
// process was stopped and woke up again: it compares the clock.
func (p *Permit) Context() context.Context { return p.ctx }

// Err is nil while the permit is held and trusted, an ErrLost after it was
// lost, ErrReleased after it was released.
func (p *Permit) Err() error {
	_ = p.ctx.Err() // notices at once that time is up
	p.sem.mu.Lock()
	defer p.sem.mu.Unlock()
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
	p.sem.mu.Lock()
	defer p.sem.mu.Unlock()
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
	return p.sem.renewNow(ctx, p.c)
}

// Release gives the permit back and hands it to the next waiter. It does not
// depend on the context given to Acquire. It returns nil when the permit was
// held until now; an ErrLost when it had been lost before; ErrReleased when it
// had been released before. An *EngineError says that the engine did not
// confirm: the release is repeated in the background, and the permit comes
// back with its lease in any case.
func (p *Permit) Release() error { return p.release(ErrReleased) }

func (p *Permit) release(cause error) error {
	s, c := p.sem, p.c
	_ = p.ctx.Err()
	s.mu.Lock()
	if errors.Is(c.over, ErrReleased) || errors.Is(c.over, ErrClosed) {
		s.mu.Unlock()
		return ErrReleased
	}
	lost := c.over
	c.state, c.over = ended, cause
	delete(s.claims, c.req.ID)
	trust, held := c.trust, time.Since(c.since)
	s.busy++
	s.mu.Unlock()
	defer s.leave()
	p.ctx.end(cause)

	ctx, cancel := context.WithTimeout(context.Background(), s.callTimeout())
	defer cancel()
	found, err := s.session.Release(ctx, c.req.ID)
	if err != nil {
		s.mu.Lock()
		s.giveBack(c.req.ID, trust.Add(s.options.Margin))
		s.mu.Unlock()
	}
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
	tell(s.options.Observer.Released, Event{Name: s.name, ID: c.req.ID, Weight: c.req.Weight, Token: c.token, Held: held})
	return nil
}

// abandon ends the local side of a detached permit, which lives on.
func (p *Permit) abandon() {
	p.sem.mu.Lock()
	p.c.state, p.c.over = ended, ErrClosed
	delete(p.sem.claims, p.c.req.ID)
	p.sem.mu.Unlock()
	p.ctx.end(ErrClosed)
}

// permitContext ends with its permit. Err looks at the clock itself, because
// after a pause of the whole process the timer that should have ended the
// context may not have run yet.
type permitContext struct {
	context.Context // of context.WithCancelCause, so that children attach to it cheaply
	end             context.CancelCauseFunc
	permit          *Permit
}

func (x *permitContext) Err() error {
	x.permit.sem.endIfOverdue(x.permit.c)
	return x.Context.Err()
}
