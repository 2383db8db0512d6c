package client

import (
	"time"

	"sema/engine"
)

// Wake is when Tick is to be called. Nothing is wrong with calling it earlier
// or later, but for what is then late.
func (m *Machine) Wake() (at time.Duration, ok bool) { return m.wake, m.wake != never }

func (m *Machine) schedule(t time.Duration) { m.wake = min(m.wake, t) }

// plan sets when a held permit is renewed next: in a third of the time it is
// valid at the latest, so that two renewals may fail.
func (m *Machine) plan(now time.Duration, c *claim) {
	m.schedule(c.valid)
	c.due = never
	if m.cfg.Renew == 0 || m.cfg.MaxHold > 0 && c.valid >= c.began+m.cfg.MaxHold {
		return
	}
	c.due = now + min(m.cfg.Renew, (c.valid-now)/3)
	m.schedule(c.due)
}

// recheckAt has this client ask again at t for one of its tickets, because a
// lease ends. The word is as of the given time; an older word cannot put off
// what a newer one said.
func (m *Machine) recheckAt(t, asOf time.Duration) {
	if m.recheck != never && asOf < m.recheckAsOf && t >= m.recheck {
		return
	}
	m.recheck, m.recheckAsOf = t, asOf
	m.schedule(t)
}

// Tick ends the permits whose time is up, and has asked for again, or renewed,
// what is due.
func (m *Machine) Tick(now time.Duration) {
	m.wake = never
	recheck := now >= m.recheck
	waiting := false
	if recheck {
		m.recheck = never
	}
	m.expireKept(now)
	// What is nearly due goes along: fewer calls.
	soon := now + m.cfg.Lease/(4*asksPerLease)
	for i := len(m.all) - 1; i >= 0; i-- { // backwards, because lose takes the last one's place
		c := m.all[i]
		if (c.issued() || c.kept) && now >= c.valid {
			m.lose(c, m.overdueReason(c))
			continue
		}
		if c.spare {
			continue
		}
		if recheck && c.state == Waiting {
			waiting = true
			if !c.pending { // any ticket serves
				recheck = false
				m.push(c)
			}
		}
		if !c.pending && (c.due <= now || c.due <= soon && !c.once) {
			m.push(c)
		}
		if c.issued() || c.kept {
			m.schedule(c.valid)
		}
		if !c.pending {
			m.schedule(c.due)
		}
	}
	if recheck && waiting { // all tickets are on their way: their answers may be older
		m.recheck = now + m.askEvery()/20
	}
	m.schedule(m.recheck)
	if now < m.paused {
		m.schedule(m.paused)
	}
}

// Notify takes in what a step of another client's did to this one's tickets.
func (m *Machine) Notify(now time.Duration, n engine.Notification) {
	if n.Recall != 0 { // before the grants: none of them is kept
		m.recall(n.Recall)
	}
	for _, g := range n.Grants {
		m.notifyGrant(now, g)
	}
	if n.Closed {
		m.engineClosed()
		return
	}
	if n.Ask {
		m.returnSpares() // the next caller asks anew
		for _, c := range m.all {
			switch {
			case c.state != Waiting && c.state != Asking:
			case c.pending: // the answer that travels may be older than what is told
				c.again = true
			case c.state == Waiting:
				m.push(c)
			}
		}
	}
	if n.Renew {
		m.doubt()
	}
	if n.Recheck > 0 {
		m.recheckAt(now+n.Recheck, now)
	}
}

// notifyGrant takes in that a ticket became a permit.
func (m *Machine) notifyGrant(now time.Duration, g engine.Grant) {
	c := m.byID[g.ID]
	if c == nil && g.ID.Client == m.cfg.Client {
		m.giveBack(&claim{id: g.ID}) // granted at the moment its wait was given up
	}
	if c == nil || c.state != Asking && c.state != Waiting || g.Ticket < c.ticket {
		return
	}
	// The permit was handed over after the last answered ask was sent, and lives
	// as long as the ticket that ask gave. An older ticket's grant has ended
	// before this one's began.
	sent := c.sent
	switch {
	case c.since != 0 && c.state == Asking:
		sent = c.since // any of its asks may have been the one
	case c.state == Asking:
		sent = m.sent // its first ask is in flight
	}
	lease := min(m.ticketLife(), m.lease())
	if m.cfg.Lasting && !g.Until.IsZero() { // or for a whole lease
		lease = m.lease()
		sent = min(now, g.Until.Sub(m.cfg.Base)-lease)
	}
	if g.Unsure { // what it has counts when it has been renewed
		lease = 0
	}
	c.ticket = g.Ticket
	m.grant(now, c, g.Token, g.Slot, sent, lease)
}

// engineClosed ends everything: nothing can be renewed or granted any more.
func (m *Machine) engineClosed() {
	m.closed = true
	for len(m.all) > 0 {
		c := m.all[len(m.all)-1]
		switch a := c.holder; {
		case c.issued():
			m.lose(c, Closed)
			continue
		case a != nil:
			m.deny(a, Event{Reason: Closed})
		}
		m.end(c)
	}
	for m.line.first != nil {
		m.deny(m.line.first, Event{Reason: Closed})
	}
}
