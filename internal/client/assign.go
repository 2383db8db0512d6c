package client

import "time"

// This file decides which caller gets a permit that was granted, and who gets a
// ticket when its caller has gone.

// deliver gives a granted permit to the oldest caller in line that wants its weight. The caller that has asked for the permit
// gets the oldest caller's ticket in exchange.
func (m *Machine) deliver(now time.Duration, c *claim) {
	m.claims.unlist(c)
	l := m.lines.of(c.target)
	mine, first := c.holder, l.oldest(c.id.Weight)
	if first != nil && first != mine && (mine == nil && !l.mixed || mine != nil && mine.waiting) {
		ticket := first.claim
		m.claims.pair(first, c)
		switch {
		case mine != nil && ticket != nil:
			m.claims.move(mine, ticket)
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
		m.sender.drop(c)
	}
}

// issue gives a caller its permit.
func (m *Machine) issue(now time.Duration, a *Acquisition, c *claim) {
	m.claims.pair(a, c)
	m.lines.served(now, a)
	m.lines.leaveLine(a)
	a.state, a.had, a.granted, a.token, a.slot = Held, true, now, c.last, int(c.slot)
	m.tell(Event{Kind: Granted, A: a})
}

// free finds a use for a ticket that lost its caller: the next caller gets it, or
// it is put aside for a moment, or given back. In a line of different weights it is
// always given back: it would overtake others.
func (m *Machine) free(now time.Duration, c *claim) {
	c.holder = nil
	l, keeps := m.lines.of(c.target), m.keeping.may && now < m.keeping.until
	switch a := l.next; {
	case c.stage == unproven && keeps: // it is being renewed, and goes to the oldest caller then
	case a != nil && a.Label == c.label && !l.mixed && c.lined() && keeps:
		m.claims.move(a, c)
	case a == nil && !l.mixed && keeps && c.lined() && c.touched() && m.claims.spares(c.target) < m.limit():
		m.claims.putAside(c, min(now+min(m.askEvery(c)/looksPerAsk, maxSpare), m.keeping.until))
	default:
		m.sender.drop(c)
	}
}
