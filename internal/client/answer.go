package client

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"sema/engine"
)

// Answer takes in the reply to the call in flight.
func (m *Machine) Answer(now time.Duration, reply engine.Reply) {
	if len(reply.Answers) != len(m.items) {
		m.Failed(now, &engine.Error{Op: "step", Temporary: true, Err: errors.New("the engine's answer does not fit the call")})
		return
	}
	m.flying, m.fence, m.failures, m.paused, m.lastErr = false, false, 0, 0, nil
	m.used = false
	if reply.Limit != 0 && reply.Limit != m.stored {
		m.stored = reply.Limit
		if reply.Limit != m.cfg.Limit {
			m.tell(Event{Kind: LimitDiffers, Limit: reply.Limit})
		}
	}
	m.allow(overrule(reply.Leave, m.overruled), m.sent+m.contact())
	for i, answer := range reply.Answers {
		switch it := m.items[i]; {
		case it.order != nil:
			m.orderAnswered(now, it.order, answer)
		case m.requests[i].Kind == engine.Renew:
			m.back(it.claim)
			m.renewed(now, it.claim, answer)
			m.renewAgain(it.claim)
		default:
			if answer.Status == engine.Queued && (m.requests[i].Again || m.wouldKeep) {
				m.deaf = reply.Deaf
			}
			m.back(it.claim)
			m.asked(now, it.claim, answer, reply)
			m.renewAgain(it.claim)
		}
	}
	m.tellQueued()
	if reply.Recheck > 0 {
		m.recheckAt(now+reply.Recheck, m.sent)
	}
	clear(m.items)
	m.Notify(now, reply.Notification)
}

// back notes that a claim is not in the call in flight any more. While it was,
// Tick passed over what is due for it.
func (m *Machine) back(c *claim) {
	c.pending = false
	if c.state != Ended {
		m.schedule(c.due)
	}
}

// renewAgain renews a permit once more, if the answer may be older than what was
// told of it.
func (m *Machine) renewAgain(c *claim) {
	if c.again && c.state == Held {
		c.again = false
		m.push(c)
	}
}

// tellQueued tells those who wait without a ticket that they do: the engine has
// answered since they came, and others of this process go first.
func (m *Machine) tellQueued() {
	if m.short() {
		return
	}
	for a := m.untold; a != nil; a = a.later {
		if a.claim == nil {
			m.queued(a, m.ahead+1)
		}
	}
	m.untold = nil
}

func (m *Machine) orderAnswered(now time.Duration, o *Order, answer engine.Answer) {
	if o == &m.declaring {
		m.declared = true
		return
	}
	if o.claim != nil {
		m.renewed(now, o.claim, answer)
	}
	// A release or a removal that was sent twice and found nothing the second time
	// did its work the first time.
	if kind := o.request.Kind; o.unsure && (kind == engine.Release || kind == engine.Remove) && answer.Status == engine.Gone {
		answer.Status = engine.Done
	}
	if !o.told {
		o.told = true
		m.tell(Event{Kind: Answered, Order: o, Answer: answer})
	}
}

// asked takes in the answer to an ask.
func (m *Machine) asked(now time.Duration, c *claim, answer engine.Answer, reply engine.Reply) {
	a := c.holder
	if c.state == Ended {
		return // given up while it travelled; its release follows
	}
	c.since = 0
	switch answer.Status {
	case engine.Granted:
		switch {
		case !c.issued() && !c.kept:
			// Should a notification have told of a grant, this may be another
			// one, if that one's time was up.
			m.grant(now, c, answer.Token, answer.Slot, m.sent, answer.Lease)
		case now >= c.valid || c.granted != answer.Token:
			m.lose(c, m.overdueReason(c))
		default: // the hand-off's notification came first
			c.sent = m.sent
			m.validUntil(c, max(c.valid, m.sent+answer.Lease-m.cfg.Margin))
			m.plan(now, c)
		}
	case engine.Queued:
		if c.state == Held && (c.issued() || c.kept || answer.Ticket <= c.ticket) {
			if !c.issued() && !c.kept { // and has to be renewed, which waited for this call
				m.push(c)
			}
			return // the hand-off overtook this answer
		}
		m.become(c, Waiting)
		c.sent, c.ticket = m.sent, answer.Ticket
		m.ahead = answer.Ahead
		c.due = m.sent + m.askEvery()
		if reply.Deaf {
			c.due = m.sent + min(m.askEvery(), max(m.askEvery()/20, minDeaf))
		}
		if m.cfg.Lasting {
			c.due = never
		}
		if c.again {
			c.again = false
			m.push(c)
		}
		m.schedule(c.due)
		if a == nil { // spare
			return
		}
		m.queued(a, answer.Ahead)
	case engine.Refused:
		if a != nil && reply.Recalled && a.retries < maxRetries {
			// What others keep is on its way back.
			c.due = now + max(now-m.sent, minRetry)<<a.retries
			a.retries++
			m.schedule(c.due)
			return
		}
		m.refuse(c, Event{Reason: Refused}, false)
	case engine.TooHeavy:
		limit := reply.Limit
		if limit == 0 {
			limit = m.cfg.Limit
		}
		m.refuse(c, Event{Reason: TooHeavy, Limit: limit}, false)
		m.refuseWho(func(a *Acquisition) bool { return a.weight > limit }, Event{Reason: TooHeavy, Limit: limit})
	case engine.LimitDiffers:
		m.refuse(c, Event{Reason: LimitIsAnother, Limit: reply.Limit}, false)
		m.refuseWho(func(*Acquisition) bool { return true }, Event{Reason: LimitIsAnother, Limit: reply.Limit})
	case engine.Revoked:
		m.refuse(c, Event{Reason: Revoked}, true)
	default:
		m.refuse(c, Event{Reason: EngineFailed, Err: &engine.Error{Op: "acquire", Err: errors.New("the engine's answer makes no sense")}}, true)
	}
}

// refuseWho refuses callers in line who have no ticket, for the same reason as
// one before them: their asks would hold up those behind, one after the other.
func (m *Machine) refuseWho(who func(*Acquisition) bool, e Event) {
	for a := m.next; a != nil; {
		next := a.later
		if a.claim == nil && who(a) {
			m.deny(a, e)
		}
		a = next
	}
}

// refuse ends a claim, and its caller if it has one. held says that the engine
// may have something of it.
func (m *Machine) refuse(c *claim, e Event, held bool) {
	if a := c.holder; a != nil {
		m.deny(a, e)
	}
	if held {
		m.giveBack(c)
	}
	m.end(c)
}

// grant makes a permit of a ticket or a wish. The lease counts from sent on.
func (m *Machine) grant(now time.Duration, c *claim, token int64, slot int, sent, lease time.Duration) {
	m.become(c, Held)
	c.began, c.sent, c.due = sent, sent, never
	c.granted, c.token, c.received, c.slot = token, token, now, slot
	c.short = lease < m.lease()
	m.validUntil(c, sent+lease-m.cfg.Margin)
	m.give(now, c)
}

// give gives a permit to a caller, unless it has to be renewed before: its time
// is up already, or nobody will renew the little it has.
func (m *Machine) give(now time.Duration, c *claim) {
	if now >= c.valid || c.short && m.cfg.Renew == 0 {
		m.push(c)
		return
	}
	m.plan(now, c)
	m.deliver(now, c)
}

// validUntil sets until when a permit may be trusted.
func (m *Machine) validUntil(c *claim, t time.Duration) {
	if m.cfg.MaxHold > 0 {
		t = min(t, c.began+m.cfg.MaxHold)
	}
	c.valid = t
}

// renewed takes in the answer to a renewal.
func (m *Machine) renewed(now time.Duration, c *claim, answer engine.Answer) {
	used := c.issued() || c.kept
	switch {
	case c.state != Held:
	case used && now >= c.valid:
		m.lose(c, m.overdueReason(c)) // too late: somebody may have been told
	case used && answer.Status == engine.Granted && answer.Token != c.granted:
		m.lose(c, NotRenewed) // the engine has made another grant under this id
	case answer.Status == engine.Granted:
		c.sent, c.since, c.short = m.sent, 0, false
		if !used { // what it had is over, or not enough: it begins now
			c.began, c.slot = m.sent, answer.Slot
			c.granted, c.token, c.received = answer.Token, answer.Token, now
		}
		m.validUntil(c, m.sent+answer.Lease-m.cfg.Margin)
		if used {
			m.plan(now, c)
		} else {
			m.give(now, c)
		}
	case used && answer.Status == engine.Revoked:
		m.lose(c, Revoked)
	case used:
		m.lose(c, Gone)
	case answer.Status == engine.Revoked:
		m.refuse(c, Event{Reason: Revoked}, !c.resumed)
	case c.resumed:
		m.refuse(c, Event{Reason: Gone}, false)
	default:
		// The hand-off lapsed before its caller had it. The wait goes on, in
		// its old place.
		a := c.holder
		m.drop(c)
		if a != nil {
			m.askAnew(a)
		}
	}
}

// askAnew has a caller whose claim came to nothing ask under another id.
func (m *Machine) askAnew(a *Acquisition) {
	c := m.claim(a)
	i, _ := slices.BinarySearchFunc(m.fresh, c, func(x, y *claim) int { return cmp.Compare(x.cameAt(), y.cameAt()) })
	m.fresh = slices.Insert(m.fresh, i, c)
}

// Failed takes in that the call in flight had no answer.
func (m *Machine) Failed(now time.Duration, err error) {
	var failure *engine.Error
	if !errors.As(err, &failure) {
		failure = &engine.Error{Op: "step", Err: err}
	}
	m.flying, m.lastErr = false, failure
	m.fence = m.fence || !failure.NotExecuted
	if m.failures == 0 {
		m.failing = m.sent
	}
	m.failures++
	m.paused = now + min(minPause<<min(m.failures-1, 10), maxPause)
	m.schedule(m.paused)
	var orders []*Order
	var fresh []*claim
	for i, it := range m.items {
		switch {
		case it.order != nil:
			if m.orderFailed(now, it.order, failure) {
				orders = append(orders, it.order)
			}
		case it.claim.state == Asking:
			m.back(it.claim)
			if m.askFailed(now, it.claim, failure) {
				fresh = append(fresh, it.claim)
			}
		default:
			if m.requests[i].Anew {
				it.claim.moved, m.moved = true, true
			}
			m.back(it.claim)
			m.dueFailed(now, it.claim, failure)
		}
	}
	clear(m.items)
	if m.cfg.Lasting && !failure.NotExecuted { // the reply that got lost may have told of grants
		m.returnSpares()
		for _, c := range m.all {
			if c.state == Waiting {
				m.push(c)
			}
		}
	}
	m.passedOver(now, failure)
	m.orders = append(orders, m.orders...)
	m.fresh = append(fresh, m.fresh...)
}

// passedOver keeps what is promised to those for whom the call that failed had
// no room: as long as calls fail their turn does not come.
func (m *Machine) passedOver(now time.Duration, failure *engine.Error) {
	for _, o := range m.orders {
		if o.since == 0 {
			o.since = now
		}
		if now-o.since >= patience && !o.told {
			o.told = true
			m.tell(Event{Kind: Answered, Order: o, Err: failure})
		}
	}
	for _, c := range slices.Clone(m.fresh) {
		if c.state == Asking && c.holder != nil && m.outOfPatience(now, c.holder) {
			m.fail(c, failure, c.touched())
		}
	}
	m.fresh = slices.DeleteFunc(m.fresh, func(c *claim) bool { return c.state != Asking })
	for _, c := range slices.Clone(m.due) {
		switch since := max(c.cameAt(), m.failing); {
		case c.state == Ended || c.issued() || c.kept:
		case c.resumed && now-since >= patience:
			m.fail(c, failure, false)
		case !c.resumed && m.away(now):
			m.fail(c, failure, true)
		}
	}
	for a := m.next; a != nil; {
		next := a.later
		if a.claim == nil && m.outOfPatience(now, a) {
			m.deny(a, Event{Reason: EngineFailed, Err: failure})
		}
		a = next
	}
}

// away reports whether all calls have failed for longer than a lease. Who waits
// waits no longer.
func (m *Machine) away(now time.Duration) bool { return m.failures > 0 && now-m.failing > m.cfg.Lease }

// outOfPatience reports whether a caller without a ticket has waited long enough
// for the engine: three seconds if that has never answered, else a lease.
func (m *Machine) outOfPatience(now time.Duration, a *Acquisition) bool {
	if a.state == Waiting {
		return m.away(now)
	}
	return now-max(a.came, m.failing) >= patience
}

// fail ends a claim and its caller, because the engine failed.
func (m *Machine) fail(c *claim, failure *engine.Error, held bool) {
	m.refuse(c, Event{Reason: EngineFailed, Err: failure}, held)
}

// orderFailed reports whether the order is to be sent again.
func (m *Machine) orderFailed(now time.Duration, o *Order, failure *engine.Error) (again bool) {
	if o == &m.declaring {
		return false // it is sent again with the wishes behind it
	}
	o.unsure = o.unsure || !failure.NotExecuted
	if o.since == 0 {
		o.since = m.sent
	}
	over := !failure.Temporary || now-o.since >= patience
	if over && !o.told {
		o.told = true
		m.tell(Event{Kind: Answered, Order: o, Err: failure})
	}
	if errors.Is(failure, engine.ErrClosed) || m.closed && !failure.Temporary {
		return false // it would be refused again, and somebody waits for the end
	}
	return o.owed || !over && !o.told
}

// askFailed reports whether the wish is to be sent again.
func (m *Machine) askFailed(now time.Duration, c *claim, failure *engine.Error) (again bool) {
	if c.since == 0 {
		c.since = m.sent
	}
	if failure.Temporary && now-c.since < patience || c.holder != nil && c.holder.state == Waiting && !m.away(now) {
		return true
	}
	// What failed before may have been carried out.
	m.fail(c, failure, m.fence)
	return false
}

// dueFailed keeps on renewing and asking again, within what is promised.
func (m *Machine) dueFailed(now time.Duration, c *claim, failure *engine.Error) {
	if c.state == Ended {
		return
	}
	if c.since == 0 {
		c.since = m.sent
	}
	used := c.issued() || c.kept
	switch {
	case c.resumed && !used && (!failure.Temporary || now-c.since >= patience):
		m.fail(c, failure, false)
		return
	case c.state == Held && !used && !failure.Temporary, !used && m.away(now) && !c.resumed:
		m.fail(c, failure, true)
		return
	}
	m.push(c)
	if a := c.holder; a != nil {
		m.tell(Event{Kind: AskFailed, A: a, Err: failure})
	}
}
