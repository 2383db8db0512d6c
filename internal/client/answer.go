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
	if reply.Limit != 0 && reply.Limit != m.stored {
		m.stored = reply.Limit
		if reply.Limit != m.cfg.Limit {
			m.tell(Event{Kind: LimitDiffers, Limit: reply.Limit})
		}
	}
	for i, answer := range reply.Answers {
		switch it := m.items[i]; {
		case it.order != nil:
			m.orderAnswered(now, it.order, answer)
		case m.requests[i].Kind == engine.Renew:
			m.back(it.a)
			m.renewed(now, it.a, answer)
		default:
			m.back(it.a)
			m.asked(now, it.a, answer, m.requests[i], reply.Limit)
		}
	}
	if reply.Recheck > 0 {
		m.recheckAt(now+reply.Recheck, m.sent)
	}
	clear(m.items)
	m.Notify(now, reply.Notification)
}

// back notes that an acquisition is not in the call in flight any more. While it
// was, Tick passed over what is due for it.
func (m *Machine) back(a *Acquisition) {
	a.pending = false
	if a.state != Ended {
		m.schedule(a.due)
	}
}

func (m *Machine) orderAnswered(now time.Duration, o *Order, answer engine.Answer) {
	if o == &m.declaring {
		m.declared = true
		return
	}
	if o.a != nil {
		m.renewed(now, o.a, answer)
	}
	// A release that was sent twice and found nothing the second time did its
	// work the first time.
	if o.unsure && o.request.Kind == engine.Release && answer.Status == engine.Gone {
		answer.Status = engine.Done
	}
	if !o.told {
		o.told = true
		m.tell(Event{Kind: Answered, Order: o, Answer: answer})
	}
}

// asked takes in the answer to an ask.
func (m *Machine) asked(now time.Duration, a *Acquisition, answer engine.Answer, r engine.Request, limit int) {
	if a.state == Ended || a.id != r.ID {
		return // given up while it travelled; its release follows
	}
	a.since = 0
	switch answer.Status {
	case engine.Granted:
		switch {
		case a.state != Held || !a.issued:
			// Should a notification have told of a grant, this may be another
			// one, if that one's time was up.
			m.grant(now, a, answer.Token, answer.Slot, m.sent, answer.Lease)
		case now >= a.valid || a.token != answer.Token:
			m.lose(a, m.overdueReason(a))
		default: // the hand-off's notification came first
			a.sent = m.sent
			m.validUntil(a, max(a.valid, m.sent+answer.Lease-m.cfg.Margin))
			m.plan(now, a)
		}
	case engine.Queued:
		if a.state == Held && (a.issued || answer.Ticket <= a.ticket) {
			if !a.issued { // and has to be renewed, which waited for this call
				m.push(a)
			}
			return // the hand-off overtook this answer
		}
		a.state, a.sent, a.ticket = Waiting, m.sent, answer.Ticket
		// The engine counts back from when the call reached it, which was now at
		// the latest. Who is asked for next must not have a place before that,
		// though its call may be faster. Numbers are rounded on the way.
		m.place = max(m.place, a.place+now-m.sent+2*time.Microsecond)
		a.due = m.sent + m.askEvery()
		if m.cfg.Lasting {
			a.due = never
		}
		if a.again {
			a.again = false
			m.push(a)
		}
		m.schedule(a.due)
		if a.ahead != answer.Ahead {
			a.ahead = answer.Ahead
			m.tell(Event{Kind: Queued, A: a, Ahead: answer.Ahead})
		}
	case engine.Refused:
		m.deny(now, a, Event{Reason: Refused}, false)
	case engine.TooHeavy:
		if limit == 0 {
			limit = m.cfg.Limit
		}
		m.deny(now, a, Event{Reason: TooHeavy, Limit: limit}, false)
	case engine.LimitDiffers:
		m.deny(now, a, Event{Reason: LimitIsAnother, Limit: limit}, false)
	case engine.Revoked:
		m.deny(now, a, Event{Reason: Revoked}, true)
	default:
		m.deny(now, a, Event{Reason: EngineFailed, Err: &engine.Error{Op: "acquire", Err: errors.New("the engine's answer makes no sense")}}, true)
	}
}

// grant makes a permit of a ticket or a wish. The lease counts from sent on.
func (m *Machine) grant(now time.Duration, a *Acquisition, token int64, slot int, sent, lease time.Duration) {
	a.state, a.granted, a.began, a.sent, a.due = Held, now, sent, sent, never
	a.token, a.slot = token, slot
	a.short = lease < min(m.cfg.Lease, m.askFor(now, a).Lease)
	m.validUntil(a, sent+lease-m.cfg.Margin)
	m.issue(now, a)
}

// issue gives the caller its permit, unless the permit has to be renewed
// before: its time is up already, or nobody will renew the little it has.
func (m *Machine) issue(now time.Duration, a *Acquisition) {
	if now >= a.valid || a.short && m.cfg.Renew == 0 {
		m.push(a)
		return
	}
	a.issued = true
	m.plan(now, a)
	m.tell(Event{Kind: Granted, A: a})
}

// validUntil sets until when a permit may be trusted.
func (m *Machine) validUntil(a *Acquisition, t time.Duration) {
	if m.cfg.MaxHold > 0 {
		t = min(t, a.began+m.cfg.MaxHold)
	}
	a.valid = t
}

// renewed takes in the answer to a renewal.
func (m *Machine) renewed(now time.Duration, a *Acquisition, answer engine.Answer) {
	switch {
	case a.state != Held:
	case a.issued && now >= a.valid:
		m.lose(a, m.overdueReason(a)) // too late: somebody may have been told
	case a.issued && answer.Status == engine.Granted && answer.Token != a.token:
		m.lose(a, NotRenewed) // the engine has made another grant under this id
	case answer.Status == engine.Granted:
		a.sent, a.since, a.short = m.sent, 0, false
		if !a.issued { // what it had is over, or not enough: it begins now
			a.began, a.granted, a.token, a.slot = m.sent, now, answer.Token, answer.Slot
		}
		m.validUntil(a, m.sent+answer.Lease-m.cfg.Margin)
		if a.issued {
			m.plan(now, a)
		} else {
			m.issue(now, a)
		}
	case a.issued && answer.Status == engine.Revoked:
		m.lose(a, Revoked)
	case a.issued:
		m.lose(a, Gone)
	case answer.Status == engine.Revoked:
		m.deny(now, a, Event{Reason: Revoked}, !a.resumed)
	case a.resumed:
		m.deny(now, a, Event{Reason: Gone}, false)
	default:
		// The hand-off lapsed before its caller had it. The wait goes on, in
		// its old place.
		m.end(a)
		m.giveBack(a.id)
		m.ask(a)
		i, _ := slices.BinarySearchFunc(m.fresh, a, func(x, y *Acquisition) int { return cmp.Compare(x.came, y.came) })
		m.fresh = slices.Insert(m.fresh, i, a)
	}
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
	var fresh []*Acquisition
	for i, it := range m.items {
		switch {
		case it.order != nil:
			if m.orderFailed(now, it.order, failure) {
				orders = append(orders, it.order)
			}
		case it.a.state == Asking && it.a.id == m.requests[i].ID:
			m.back(it.a)
			if m.askFailed(now, it.a, failure) {
				fresh = append(fresh, it.a)
			}
		default:
			m.back(it.a)
			m.dueFailed(now, it.a, failure)
		}
	}
	clear(m.items)
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
	m.fresh = slices.DeleteFunc(m.fresh, func(a *Acquisition) bool {
		if a.state != Asking || now-max(a.came, m.failing) < patience {
			return false
		}
		m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, a.touched())
		return true
	})
	for _, a := range m.due {
		switch since := max(a.came, m.failing); {
		case a.state == Ended || a.issued:
		case a.resumed && now-since >= patience:
			m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, false)
		case !a.resumed && now-a.sent > m.cfg.Lease:
			m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, true)
		}
	}
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
func (m *Machine) askFailed(now time.Duration, a *Acquisition, failure *engine.Error) (again bool) {
	if a.since == 0 {
		a.since = m.sent
	}
	if failure.Temporary && now-a.since < patience {
		return true
	}
	// What failed before may have been carried out.
	m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, m.fence)
	return false
}

// dueFailed keeps on renewing and asking again, within what is promised.
func (m *Machine) dueFailed(now time.Duration, a *Acquisition, failure *engine.Error) {
	if a.state == Ended {
		return
	}
	if a.since == 0 {
		a.since = m.sent
	}
	switch {
	case a.resumed && !a.issued && (!failure.Temporary || now-a.since >= patience):
		m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, false)
		return
	case a.state == Held && !a.issued && !failure.Temporary, !a.issued && now-a.sent > m.cfg.Lease && !a.resumed: // or out of reach for a whole lease
		m.deny(now, a, Event{Reason: EngineFailed, Err: failure}, true)
		return
	}
	m.push(a)
	m.tell(Event{Kind: AskFailed, A: a, Err: failure})
}
