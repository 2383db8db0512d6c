package server

import (
	"context"
	"time"

	"sema"
	"sema/engine"
)

const (
	// again is how soon a failed call is repeated.
	again = 250 * time.Millisecond

	// maxTicket bounds the life of a ticket: so long may a server that died keep
	// a hand-off.
	maxTicket = 15 * time.Second

	// maxOps bounds the requests of a call.
	maxOps = 1000
)

// desk is a session of the engine that asks for the callers of the JSON API who
// describe themselves alike. All of it but inner is guarded by the place's lock.
type desk struct {
	place   *place
	inner   engine.Session
	entries int // of the place's
	seen    time.Time

	ops      []op
	carrying bool
	idle     chan struct{} // closed when nothing is carried any more; nil: nobody asks
	calls    uint64
	fence    bool
	deaf     bool // the engine cannot notify it
	timer    *time.Timer
	armed    time.Time // when the timer fires; zero: it does not
}

// op is a request and what to do about its answer, under the lock. sent is when
// it left.
type op struct {
	request engine.Request
	entry   *entry // of an Ask of a ticket; nil: send it whatever happens meanwhile
	done    func(a engine.Answer, sent time.Time, err error)
}

// desk finds or opens the desk of a caller. The lock is held.
func (p *place) desk(who engine.Client) (*desk, error) {
	k := p.desks[who]
	if k == nil {
		k = &desk{place: p}
		inner, err := p.server.engine.Open(p.name, who, k.notify)
		if err != nil {
			return nil, err
		}
		k.inner = inner
		p.desks[who] = k
	}
	k.seen = time.Now()
	return k, nil
}

// send has a request carried out. The lock is held.
func (k *desk) send(o op) {
	k.ops = append(k.ops, o)
	if !k.carrying {
		k.carrying = true
		go k.carry()
	}
}

// carry carries calls until there is nothing to send.
func (k *desk) carry() {
	for {
		k.place.mu.Lock()
		n := min(len(k.ops), maxOps)
		if n == 0 {
			k.carrying = false
			if k.idle != nil {
				close(k.idle)
				k.idle = nil
			}
			k.place.mu.Unlock()
			return
		}
		ops := append([]op(nil), k.ops[:n]...)
		clear(k.ops[:n])
		k.ops = k.ops[n:]
		k.calls++
		sent := time.Now() // or a little later
		call := engine.Call{Number: k.calls, Fence: k.fence, Requests: make([]engine.Request, n)}
		for i := range ops {
			r := ops[i].request
			if e := ops[i].entry; e != nil {
				r.Waited = time.Since(e.came)
			}
			call.Requests[i] = r
		}
		k.place.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), stepTime/2)
		reply, err := k.inner.Step(ctx, call)
		cancel()
		k.place.mu.Lock()
		if err == nil && len(reply.Answers) < n {
			err = &engine.Error{Op: "step", Name: k.place.name, Temporary: true, Err: context.Canceled}
		}
		k.fence = err != nil
		k.deaf = err == nil && reply.Deaf
		for i, o := range ops {
			a := engine.Answer{}
			if err == nil {
				a = reply.Answers[i]
			}
			o.done(a, sent, err)
		}
		if err == nil {
			k.take(reply.Notification)
			if reply.Recheck > 0 {
				k.recheck(sent.Add(reply.Recheck))
			}
		}
		k.place.mu.Unlock()
	}
}

// notify takes in a notification of the engine's. It may come from within a
// Step.
func (k *desk) notify(n engine.Notification) {
	k.place.mu.Lock()
	defer k.place.mu.Unlock()
	k.take(n)
}

// take takes in a notification. The lock is held.
func (k *desk) take(n engine.Notification) {
	for _, g := range n.Grants {
		e := k.place.entries[g.ID.Number]
		switch {
		case e == nil || e.desk != k:
		case e.state == queued:
			k.ask(e) // asking tells for certain
		case e.state == asking:
			e.granted = true // the answer that it is queued is still on its way
		}
	}
	if n.Recheck > 0 {
		k.recheck(time.Now().Add(n.Recheck))
	}
	if !n.Ask && !n.Renew && !n.Closed {
		return
	}
	for _, e := range k.place.entries {
		switch {
		case e.desk != k:
		case n.Closed && (e.state == queued || e.state == asking):
			e.end(closing())
		case n.Ask && e.state == queued:
			k.ask(e)
		case n.Renew && e.state == held && e.refs > 0:
			e.tell = true
			e.poke()
		}
	}
}

// ticketOf is the life of an entry's ticket.
func ticketOf(e *entry) time.Duration { return min(e.lease, maxTicket) }

// ask asks for a permit, or for what became of a ticket. The lock is held.
func (k *desk) ask(e *entry) {
	e.due = time.Now().Add(ticketOf(e))
	k.send(op{
		request: engine.Request{
			Kind: engine.Ask, ID: e.id, Limit: e.limit, Lease: e.lease, Ticket: ticketOf(e), Wait: e.wait, Detached: true,
			Again: e.state == queued,
		},
		entry: e,
		done:  func(a engine.Answer, sent time.Time, err error) { k.asked(e, a, sent, err) },
	})
}

// asked takes in the answer to an Ask.
func (k *desk) asked(e *entry, a engine.Answer, sent time.Time, err error) {
	if e.state != asking && e.state != queued { // given up meanwhile, and let go
		return
	}
	switch {
	case err != nil && e.state == queued && time.Since(e.heard) < e.lease:
		k.later(e, time.Now().Add(again))
	case err != nil:
		k.letGo(e, err)
	case a.Status == engine.Granted:
		e.token, e.slot = a.Token, a.Slot
		if a.Lease < e.lease*9/10 { // handed over: the first lease ends with the ticket
			k.renew(e, func(a engine.Answer, sent time.Time, err error) { k.toppedUp(e, a, sent, err) })
			return
		}
		e.until = sent.Add(a.Lease)
		e.set(held)
	case a.Status == engine.Queued && e.told && e.refs == 0: // it was lost, and nobody waits for another
		k.letGo(e, errGone)
	case a.Status == engine.Queued:
		e.told, e.heard = false, sent
		if e.state == asking {
			// A later call may reach the engine faster. It must not change places
			// with somebody who came a moment before.
			e.came = e.came.Add(time.Since(sent))
		}
		if e.state != queued || e.ahead != a.Ahead {
			e.ahead = a.Ahead
			e.set(queued)
		}
		next := ticketOf(e) / 3
		if k.deaf {
			next = min(next, time.Second)
		}
		k.later(e, sent.Add(next))
		if e.granted {
			k.ask(e)
		}
		e.granted = false
	case a.Status == engine.Refused:
		e.end(errNone)
	case a.Status == engine.Revoked:
		e.end(errRevoked)
	case a.Status == engine.TooHeavy:
		e.end(tooHeavy(e.id.Weight))
	default:
		k.letGo(e, &engine.Error{Op: "acquire", Name: k.place.name, Err: sema.ErrUnavailable})
	}
}

// renew gives a permit a whole lease. The lock is held.
func (k *desk) renew(e *entry, done func(engine.Answer, time.Time, error)) {
	k.send(op{request: engine.Request{Kind: engine.Renew, ID: e.id, Lease: e.lease}, done: done})
}

// toppedUp takes in the answer to the first renewal of a permit that was handed
// over.
func (k *desk) toppedUp(e *entry, a engine.Answer, sent time.Time, err error) {
	switch {
	case e.state != asking && e.state != queued:
	case err != nil:
		if e.state == asking {
			e.set(queued)
		}
		k.later(e, time.Now().Add(again))
	case a.Status == engine.Granted:
		e.until = sent.Add(a.Lease)
		e.set(held)
	case a.Status == engine.Revoked:
		k.letGo(e, errRevoked)
	default:
		k.ask(e) // too late: it is in its place again
	}
}

// later has a ticket asked for again. The lock is held.
func (k *desk) later(e *entry, at time.Time) {
	e.due = at
	k.arm(at)
}

// recheck has one ticket asked for again. The lock is held.
func (k *desk) recheck(at time.Time) {
	var first *entry
	for _, e := range k.place.entries {
		if e.desk != k || e.state != queued {
			continue
		}
		if !e.due.After(at) {
			return // one will be, in time
		}
		if first == nil || e.came.Before(first.came) {
			first = e
		}
	}
	if first != nil {
		k.later(first, at)
	}
}

// arm has the timer fire at the given time, or before. The lock is held.
func (k *desk) arm(at time.Time) {
	if !k.armed.IsZero() && !at.Before(k.armed) {
		return
	}
	k.armed = at
	if k.timer == nil {
		k.timer = time.AfterFunc(time.Until(at), k.tick)
	} else {
		k.timer.Reset(time.Until(at))
	}
}

// tick asks again for all tickets that are due.
func (k *desk) tick() {
	k.place.mu.Lock()
	defer k.place.mu.Unlock()
	k.armed = time.Time{}
	now, next := time.Now(), time.Time{}
	for _, e := range k.place.entries {
		if e.desk != k || e.state != queued {
			continue
		}
		if !e.due.After(now) {
			k.ask(e)
		}
		if next.IsZero() || e.due.Before(next) {
			next = e.due
		}
	}
	if !next.IsZero() {
		k.arm(next)
	}
}
