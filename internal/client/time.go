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
func (m *Machine) plan(now time.Duration, a *Acquisition) {
	m.schedule(a.valid)
	a.due = never
	if m.cfg.Renew == 0 || m.cfg.MaxHold > 0 && a.valid >= a.began+m.cfg.MaxHold {
		return
	}
	a.due = now + min(m.cfg.Renew, (a.valid-now)/3)
	m.schedule(a.due)
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
	// What is nearly due goes along: fewer calls.
	soon := now + m.cfg.Lease/(4*asksPerLease)
	for i := len(m.all) - 1; i >= 0; i-- { // backwards, because lose takes the last one's place
		a := m.all[i]
		if a.state == Held && a.issued && now >= a.valid {
			m.lose(a, m.overdueReason(a))
			continue
		}
		if recheck && a.state == Waiting {
			waiting = true
			if !a.pending { // any ticket serves
				recheck = false
				m.push(a)
			}
		}
		if !a.pending && a.due <= soon {
			m.push(a)
		}
		if a.state == Held && a.issued {
			m.schedule(a.valid)
		}
		if !a.pending {
			m.schedule(a.due)
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
	for _, g := range n.Grants {
		a := m.byID[g.ID]
		switch {
		case a == nil && g.ID.Client == m.cfg.Client:
			m.giveBack(g.ID) // granted at the moment its wait was given up
		case a != nil && (a.state == Asking || a.state == Waiting) && g.Ticket >= a.ticket:
			// The permit was handed over after the last answered ask was sent,
			// and lives as long as the ticket that ask gave. An older ticket's
			// grant has ended before this one's began.
			sent := a.sent
			switch {
			case a.since != 0 && a.state == Asking:
				sent = a.since // any of its asks may have been the one
			case a.state == Asking:
				sent = m.sent // its first ask is in flight
			}
			lease := m.askFor(now, a).Ticket
			if m.cfg.Lasting && !g.Until.IsZero() { // or for a whole lease
				lease = m.askFor(now, a).Lease
				sent = min(now, g.Until.Sub(m.cfg.Base)-lease)
			}
			a.ticket = g.Ticket
			m.grant(now, a, g.Token, g.Slot, sent, lease)
		}
	}
	if n.Closed {
		m.engineClosed(now)
		return
	}
	if n.Ask {
		for _, a := range m.all {
			if a.state != Waiting {
				continue
			}
			if a.pending {
				a.again = true
			}
			m.push(a)
		}
	}
	if n.Recheck > 0 {
		m.recheckAt(now+n.Recheck, now)
	}
}

// engineClosed ends everything: nothing can be renewed or granted any more.
func (m *Machine) engineClosed(now time.Duration) {
	m.closed = true
	for len(m.all) > 0 {
		if a := m.all[len(m.all)-1]; a.issued {
			m.lose(a, Closed)
		} else {
			m.deny(now, a, Event{Reason: Closed}, false)
		}
	}
}
