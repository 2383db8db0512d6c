package client

import "time"

// This file decides which caller gets a permit that was granted or released, and a
// ticket whose caller has gone.

// deliver gives a permit that was granted to a caller. It goes to the oldest one
// in line, and the ticket of that one to the caller that the permit was asked for.
func (m *Machine) deliver(now time.Duration, c *claim) {
	m.unlist(c)
	l := m.lines.of(c.key)
	mine, first := c.holder, l.oldest(c.id.Weight)
	if first != nil && first != mine && (mine == nil && !l.mixed || mine != nil && mine.waiting) {
		ticket := first.claim
		m.pair(first, c)
		switch {
		case mine != nil && ticket != nil:
			m.move(mine, ticket)
		case mine != nil:
			l.withdraw(mine)
			m.lines.note(l)
		case ticket != nil:
			m.free(now, ticket)
		}
	}
	switch {
	case c.holder != nil:
		m.issue(now, c.holder, c)
	case !m.handOn(now, c):
		m.drop(c)
	}
}

// issue gives a caller its permit.
func (m *Machine) issue(now time.Duration, a *Acquisition, c *claim) {
	m.pair(a, c)
	m.served(now, a)
	m.leaveLine(a)
	a.state, a.had, a.granted, a.token, a.slot = Held, true, now, c.last, int(c.slot)
	m.tell(Event{Kind: Granted, A: a})
}

// handOn passes a released permit to the oldest caller of its key that waits, or
// keeps it for the next one. It does neither while callers of other keys wait here,
// unless they wait for weight of their own key.
func (m *Machine) handOn(now time.Duration, c *claim) bool {
	if !m.mayLeave(now, c) {
		return false
	}
	first, others := m.lines.of(c.key).first, len(m.lines.lists[busy])
	if first != nil {
		others--
	}
	if others > 0 && (first == nil || !m.keeping.room) {
		return false
	}
	switch {
	case first != nil && first.weight == c.id.Weight && first.Label == c.label:
		if m.keeping.leave == leaveKeep {
			c.passes = 0
		} else {
			c.passes++
		}
		m.passOn(now, c, first)
	case first == nil && m.keeping.leave == leaveKeep && m.cfg.Keep > 0:
		m.putAside(c, min(now+m.cfg.Keep, m.keeping.until))
	default:
		return false
	}
	return true
}

// passOn gives a permit to another caller, with a new token: later than the one
// before, and never later than the engine's clock is by then.
func (m *Machine) passOn(now time.Duration, c *claim, a *Acquisition) {
	c.last = max(c.last+1, c.token+(now-c.received).Microseconds())
	ticket := a.claim
	m.issue(now, a, c)
	if ticket != nil {
		m.free(now, ticket)
	}
	if !m.keeping.used {
		m.keeping.used = true
		m.schedule(m.keeping.until - m.contact()/2)
	}
}

// takeKept passes a kept permit on, to a caller that has just come.
func (m *Machine) takeKept(now time.Duration, a *Acquisition) bool {
	for i := len(m.idle) - 1; i >= 0; i-- {
		c := m.idle[i]
		if isPermit(c) && c.key == a.Key && c.label == a.Label && c.id.Weight == a.weight && m.mayLeave(now, c) {
			m.unlist(c)
			m.passOn(now, c, a)
			return true
		}
	}
	return false
}

// free finds a use for a ticket that lost its caller: the next caller gets it, or
// it is put aside for a moment, or given back. In a line of different weights it is
// always given back: it would overtake others.
func (m *Machine) free(now time.Duration, c *claim) {
	c.holder = nil
	l, keeps := m.lines.of(c.key), m.keeping.leave == leaveKeep
	switch a := l.next; {
	case c.stage == unproven && keeps: // it is being renewed, and goes to the oldest caller then
	case a != nil && a.Label == c.label && !l.mixed && c.lined() && (keeps || m.cfg.Passes > 0):
		m.move(a, c)
	case a == nil && !l.mixed && keeps && c.lined() && c.touched() && m.spares(c.key) < m.limit():
		m.putAside(c, now+m.askEvery(c)/20)
	default:
		m.drop(c)
	}
}
