package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sema"
	"sema/internal/client"
	"sema/internal/protocol"
)

// tell tells an observer, if it wants to know, of a permit of this semaphore.
func (x *semaphore) tell(f func(sema.Event), p *permit, e sema.Event) {
	if f == nil {
		return
	}
	e.Semaphore = x.name
	if p != nil {
		e.Permit, e.Weight, e.Label, e.Token = p.Wish.ID.String(), p.Wish.ID.Weight, p.Wish.Who.Label, p.Token()
		e.WouldWait = p.Slot() == protocol.WouldWait
	}
	f(e)
}

// tellAsked tells of the end of an ask. A permit is told of once, however often it is asked for.
func (a *asking) tellAsked(err error, waited time.Duration) {
	o := &a.x.server.options.Observer
	if err != nil {
		a.x.tell(o.Failed, a.p, sema.Event{Waited: waited, Err: asGo(err, a.wait)})
		return
	}
	a.x.loop.Lock()
	again := a.p.told
	if a.p.told = true; !again {
		a.p.since = a.x.loop.Now()
	}
	a.x.loop.Unlock()
	if !again {
		a.x.tell(o.Acquired, a.p, sema.Event{Waited: waited})
	}
}

// tellOver tells that a permit has ended; err is nil after a release. The lock is held, or p is over.
func (x *semaphore) tellOver(p *permit, err error) {
	if !p.told {
		return
	}
	p.told = false
	e := sema.Event{Held: x.loop.Now() - p.since, Err: err}
	if err != nil {
		x.tell(x.server.options.Observer.Lost, p, e)
		return
	}
	x.tell(x.server.options.Observer.Released, p, e)
}

// lostFor is a permit's loss as package sema has it.
func lostFor(r client.Reason) error {
	if r == client.Revoked {
		return sema.ErrRevoked
	}
	return sema.ErrLost
}

// asGo is the error of an ask as Acquire would return it, with a wait of so long.
func asGo(err error, wait time.Duration) error {
	p, ok := errors.AsType[*httpProblem](err)
	switch {
	case !ok && errors.Is(err, context.DeadlineExceeded):
		return sema.ErrEngine
	case !ok:
		return err
	case err == errNone && wait > 0:
		return errors.Join(sema.ErrBusy, context.DeadlineExceeded)
	case p.Status == http.StatusTooManyRequests, p.Status == http.StatusLocked:
		return sema.ErrBusy
	case p.Status == http.StatusConflict, p.Status == http.StatusNotFound:
		return &sema.WeightError{}
	case p.Status == http.StatusServiceUnavailable:
		return sema.ErrClosed
	}
	return err
}
