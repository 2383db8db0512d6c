package client

import (
	"time"

	"sema/internal/protocol"
)

// This file renews held permits: it says when, makes the request, and takes in the answer.

// Renew renews a held permit now.
func (m *Machine) Renew(now time.Duration, o *Order, a *Acquisition) {
	o.claim, o.came = a.claim, now
	r := m.sender.renewal(now, a.claim)
	o.other = &r
	m.sender.orders = append(m.sender.orders, o)
}

// renewal is the next renewal of a claim.
func (s *sender) renewal(now time.Duration, c *claim) protocol.Request {
	lease := s.lease(c)
	if s.cfg.MaxHold > 0 && c.issued() {
		lease = max(time.Millisecond, min(s.terms(c).Lease, c.began+s.cfg.MaxHold+s.terms(c).Margin-now))
	}
	return protocol.Request{Kind: protocol.Renew, ID: c.id, Lease: lease, Token: c.passedToken(), Mine: c.stage == unproven && c.named()}
}

// renewed takes in the answer to a renewal.
func (m *Machine) renewed(now time.Duration, c *claim, answer protocol.Answer) {
	sent := m.sender.flight.sent
	switch {
	case c.stage != unproven && c.stage != held:
	case c.stage == held && now >= c.valid:
		m.sender.lose(c, m.overdueReason(c)) // too late: somebody may have been told
	case c.stage == held && answer.Status == protocol.Granted && answer.Token != c.token && !c.named():
		m.sender.lose(c, NotRenewed) // the engine has made another grant under this id
	case answer.Status == protocol.Granted:
		c.sent = sent
		if c.stage == held && answer.Token != c.token { // its caller got it anew at another server
			c.holder.token, c.holder.slot = answer.Token, answer.Slot
		}
		if c.stage == unproven || answer.Token != c.token { // what it had is over, or not enough: it begins now
			c.began, c.slot = sent, int32(answer.Slot)
			c.token, c.last, c.received = answer.Token, answer.Token, now
		}
		m.validUntil(c, sent+answer.Lease-m.terms(c).Margin)
		if c.stage == held {
			m.plan(now, c)
		} else {
			m.receive(now, c, false)
		}
	case c.stage == held && answer.Status == protocol.Revoked:
		m.sender.lose(c, Revoked)
	case c.stage == held:
		m.sender.lose(c, Gone)
	case answer.Status == protocol.Revoked:
		m.sender.refuse(c, Event{Reason: Revoked}, !c.resumed && !c.named())
	case c.resumed:
		m.sender.refuse(c, Event{Reason: Gone}, false)
	default:
		// The hand-off lapsed before its caller had it. The wait goes on, in
		// its old place.
		m.sender.askAnew(c)
	}
}

// plan sets when a held permit is renewed next: in a third of the time it is
// valid at the latest, so that two renewals may fail.
func (h *shared) plan(now time.Duration, c *claim) {
	h.schedule(c.valid)
	c.due = never
	if h.terms(c).Renew == 0 || h.lastsItsHold(c) {
		return
	}
	c.due = now + min(h.terms(c).Renew, (c.valid-now)/3)
	h.schedule(c.due)
}

// Overdue ends a held permit whose time is up, if that has not been done.
func (m *Machine) Overdue(now time.Duration, a *Acquisition) {
	if c := a.claim; c != nil && c.issued() && now >= c.valid {
		m.sender.lose(c, m.overdueReason(c))
	}
}
