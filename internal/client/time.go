package client

import (
	"slices"
	"time"

	"sema/internal/protocol"
)

// This file has the clock's part. Tick asks again for waiters, renews permits, and looks when a lease ends (recheck). Notify takes in
// a message that comes between two calls. planTicket of answer.go sets the next time of each ticket.

// Intervals derived from the lease. Waiters ask six times a lease; the others are
// fractions of that.
const (
	// asksPerLease is how often a waiter asks again in a lease.
	asksPerLease = 6

	// contactsPerLease is how often a client that passes permits on speaks to the
	// engine at the least: that bounds what a recall costs that never arrives.
	contactsPerLease = 6

	// looksPerAsk is how often a client that notifications may not reach looks in the time between two asks. A spare ticket is kept
	// for one such look, and for maxSpare at the most, because operators see it as a caller that waits.
	looksPerAsk = 20
	maxSpare    = 250 * time.Millisecond

	// together is which part of the time between two asks is no reason for a call of
	// its own: what is due so soon goes along.
	together = 4

	// namedTicket bounds the life of a ticket that its caller named: so long may a
	// server that died keep a hand-off.
	namedTicket = 15 * time.Second

	// shortWait is the lease that a wait goes by if MaxHold shortens the permit's lease.
	// Engines remember a ticket for longer than that beyond the permits' leases.
	shortWait = 30 * time.Second
)

// recheck is the time to ask for one of the tickets again, because a lease ends then.
type recheck struct {
	at   time.Duration
	asOf time.Duration // when that information was sent
}

// Tick ends overdue permits, and queues the asks and renewals that are due.
func (m *Machine) Tick(now time.Duration) {
	m.wake = never
	look := now >= m.sender.recheck.at
	waiting := false
	if look {
		m.sender.recheck.at = never
	}
	m.keeping.expireIdle(now)
	m.sender.overdue(now)
	calls := slices.ContainsFunc(m.claims.all, func(c *claim) bool { return !c.pending && c.due <= now })
	for i := len(m.claims.all) - 1; i >= 0; i-- { // backwards, because lose takes the last one's place
		c := m.claims.all[i]
		switch {
		case c.stage == held && now >= c.valid:
			m.sender.lose(c, m.overdueReason(c))
			continue
		case c.stage == held:
			m.schedule(c.valid)
		case c.stage <= queued && c.holder == nil: // spare
			waiting = waiting || c.stage == queued // a caller that comes may get it
			continue
		}
		if look && c.stage == queued {
			waiting = true
			if !c.pending { // any ticket serves
				look = false
				m.claims.push(c)
			}
		}
		// Claims that are nearly due go along with those that are: fewer calls.
		soon := now + m.terms(c).Lease/(together*asksPerLease)
		if !c.pending && (c.due <= now || calls && c.due <= soon && !c.noWait) {
			m.claims.push(c)
		}
		if !c.pending {
			m.schedule(c.due)
		}
	}
	if look && waiting { // all tickets are on their way, and their answers may be older; or put aside
		m.sender.recheck.at = now + m.cfg.Lease/(asksPerLease*looksPerAsk)
	}
	m.schedule(m.sender.recheck.at)
	if now < m.sender.outage.paused {
		m.schedule(m.sender.outage.paused)
	}
}

// Notify takes in what a step of another client's did to this one's tickets.
func (m *Machine) Notify(now time.Duration, n protocol.Notification) {
	if n.Recall { // before the grants: none of them is kept
		m.keeping.recall()
	}
	for _, g := range n.Grants {
		m.notifyGrant(now, g)
	}
	if n.Closed {
		m.engineClosed()
		return
	}
	if n.Ask {
		m.sender.askAll()
	}
	if n.Renew {
		m.keeping.doubt()
	}
	switch {
	case n.Recheck == protocol.AtOnce:
		m.sender.goOn()
	case n.Recheck > 0:
		m.sender.recheckAt(now+n.Recheck, now)
	}
}

// notifyGrant takes in that a ticket became a permit.
func (m *Machine) notifyGrant(now time.Duration, g protocol.Grant) {
	c := m.claims.find(g.ID)
	if c == nil && g.ID.Client == m.cfg.Client {
		m.sender.giveBack(&claim{id: g.ID}) // granted at the moment its wait was given up
	}
	if c == nil || c.stage > queued || g.Ticket < c.ticket {
		return
	}
	// The engine handed the permit over after the last answered ask was sent. The permit has the life of that ask's
	// ticket. A grant of an older ticket has ended by then. A later ask without an answer may have made the ticket, too.
	sent := c.sent
	lease := m.ticketLife(c)
	brief := m.brief(c, lease-(now-sent))
	if m.cfg.Lasting && !g.Until.IsZero() { // then it lives for a whole lease
		lease, brief = m.lease(c), false
		sent = min(now, g.Until.Sub(m.cfg.Base)-lease)
	}
	if g.Unsure { // what it has counts when it has been renewed
		lease = 0
	}
	c.ticket, c.began = g.Ticket, now
	m.grant(now, c, g.Token, g.Slot, sent, lease, brief)
	if m.cfg.MaxHold > 0 && c.issued() && now+m.cfg.MaxHold+m.terms(c).Margin < sent+lease {
		m.claims.push(c) // the engine has it for as long as the ticket was good for
	}
}
