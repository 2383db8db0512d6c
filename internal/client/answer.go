package client

import (
	"cmp"
	"errors"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

const (
	// A wish that does not wait asks again while others keep what it wants. Each pause is
	// twice the one before, for maxRetries pauses. The wish is refused when recallTime is
	// over: a client that keeps permits for so long after it was told does not answer.
	maxRetries = 4
	minRetry   = 100 * time.Microsecond
	recallTime = time.Second

	// minUnreachable bounds how often a client asks again that no notification reaches.
	minUnreachable = 20 * time.Millisecond
)

// Answer takes in the reply to the call in flight.
func (m *Machine) Answer(now time.Duration, reply protocol.Reply) {
	f := &m.sender.flight
	if len(reply.Answers) != len(f.items) {
		m.Failed(now, &engine.Error{Op: "step", Temporary: true, Err: errors.New("the engine's answer does not fit the call")})
		return
	}
	f.flying, f.fence, m.sender.outage = false, false, outage{}
	m.keeping.used = false
	if reply.Limit != 0 {
		m.watched = reply.Watched
	}
	if reply.Halted {
		m.lines.halted = now + 1
	}
	if reply.Limit != 0 && (reply.Limit != m.stored || reply.Caps != m.caps || reply.Pools != m.pools) {
		if reply.Limit > m.stored {
			m.lines.forgetPaces()
		}
		for _, c := range m.claims.all {
			c.oldCaps = c.oldCaps || reply.Caps != m.caps
		}
		m.stored, m.caps, m.pools = reply.Limit, reply.Caps, reply.Pools
		if reply.Limit != m.cfg.Limit || reply.Caps != m.cfg.Caps || reply.Pools != m.cfg.Pools {
			m.tell(Event{Kind: LimitDiffers, Limit: reply.Limit, Caps: reply.Caps, Pools: reply.Pools})
		}
	}
	m.keeping.room = reply.Room
	m.keeping.allow(reply.Keep && !m.keeping.overruled, f.sent+m.contact())
	for i, answer := range reply.Answers {
		it, r := f.items[i], &f.requests[i]
		if it.order != nil {
			m.orderAnswered(now, it.order, answer)
			continue
		}
		m.claims.back(it.claim)
		if r.Kind == protocol.Renew {
			m.renewed(now, it.claim, answer)
		} else {
			m.sender.said = m.sender.said || r.Newest
			if answer.Status == protocol.Queued && (r.Again || f.keeps) {
				m.sender.unreachable = reply.Unreachable
			}
			m.asked(now, it.claim, answer, reply)
		}
		if c := it.claim; c.again && (c.stage == unproven || c.stage == held) { // the answer may be older than a notification about it
			c.again = false
			m.claims.push(c)
		}
	}
	m.lines.tellQueued(now)
	if reply.Recheck > 0 {
		m.sender.recheckAt(now+reply.Recheck, f.sent)
	}
	clear(f.items)
	m.Notify(now, reply.Notification)
}

// asked takes in the answer to an ask. By then the claim may have ended, or a notification may have told of its grant:
// the engine sends both, and either may overtake the other.
func (m *Machine) asked(now time.Duration, c *claim, answer protocol.Answer, reply protocol.Reply) {
	if c.stage == ended {
		m.sender.askedInVain(c, answer)
		return
	}
	c.unsure = false
	if c.stage == held && answer.Status == protocol.Revoked {
		m.sender.lose(c, Revoked)
		return
	}
	if c.stage == held && answer.Status != protocol.Granted && answer.Status != protocol.Queued { // the permit of the hand-off is over
		m.sender.lose(c, Gone)
		return
	}
	switch answer.Status {
	case protocol.Granted:
		m.askGranted(now, c, answer)
	case protocol.Queued:
		lost := c.holder == nil && c.stage == unproven // a hand-off for nobody, which lapsed before its renewal was sent
		if m.sender.askQueued(now, c, answer, reply.Unreachable); lost && c.stage == queued {
			m.free(now, c)
		}
	case protocol.Refused:
		m.sender.askRefused(now, c, answer, reply)
	case protocol.TooHeavy:
		m.sender.askTooHeavy(c, answer, reply.Limit)
	case protocol.TooMany:
		m.sender.refuse(c, Event{Reason: TooManySets}, false)
	case protocol.InUse:
		m.sender.refuse(c, Event{Reason: NamedForAnother}, false)
	case protocol.LimitDiffers:
		differs := Event{Reason: LimitIsAnother, Limit: reply.Limit, Caps: reply.Caps, Pools: reply.Pools}
		m.sender.refuse(c, differs, false)
		m.lines.refuseLines(differs, func(*Acquisition) bool { return true })
	case protocol.Revoked:
		m.sender.refuse(c, Event{Reason: Revoked}, !c.named()) // its caller may be at work with it
	default:
		m.sender.refuse(c, Event{Reason: EngineFailed, Err: &engine.Error{Op: "acquire", Err: errors.New("the engine's answer makes no sense")}}, true)
	}
}

// askedInVain takes in the answer to an ask whose caller gave up while it travelled: the release follows it. The permit of a
// name is given back only if it is this ask that made it.
func (s *sender) askedInVain(c *claim, answer protocol.Answer) {
	own := answer.Status == protocol.Queued || answer.Status == protocol.Granted && !s.brief(c, answer.Lease)
	if c.named() && own && !c.parted && s.claims.find(c.id) == nil {
		s.giveBack(c)
	}
}

// askGranted takes in that an ask is granted.
func (m *Machine) askGranted(now time.Duration, c *claim, answer protocol.Answer) {
	// The engine's clock may have stepped back since the grant. Then more than the lease is left, until a renewal ends that.
	sent, lease := m.sender.flight.sent, min(answer.Lease, m.lease(c))
	switch {
	case c.stage != held:
		c.found = c.stage == wished && m.brief(c, answer.Lease)
		c.began = sent // a notification's grant may have been another one, if that one's time was up
		m.grant(now, c, answer.Token, answer.Slot, sent, lease, m.brief(c, answer.Lease))
	case now >= c.valid:
		m.sender.lose(c, m.overdueReason(c))
	case c.token != answer.Token:
		m.sender.lose(c, NotRenewed) // the engine has made another grant under this id
	default: // the hand-off's notification came first
		c.sent = sent
		m.validUntil(c, max(c.valid, sent+lease-m.terms(c).Margin))
		m.plan(now, c)
	}
}

// askQueued takes in that an ask has a ticket. Its caller learns how many are ahead, or is refused because they are too many;
// and the ticket is planned to be asked for again.
func (s *sender) askQueued(now time.Duration, c *claim, answer protocol.Answer, unreachable bool) {
	a, sent := c.holder, s.flight.sent
	if c.stage == held || c.stage == unproven && answer.Ticket <= c.ticket { // the hand-off overtook this answer
		if c.stage == unproven { // and its renewal waited for this call
			s.claims.push(c)
		}
		return
	}
	if c.named() && a != nil && c.stage == wished {
		// A later ask may reach the engine faster. It must not change places with
		// that of somebody who came a moment before.
		a.came += now - sent
	}
	if a != nil && a.waiting {
		l := s.lines.of(c.target)
		l.place(c, answer.Ahead)
		if e, refused := s.lines.refusal(now, l, a, answer.Ahead); a.state == Asking && refused {
			s.refuse(c, e, true)
			return
		}
	}
	s.claims.becomes(c, queued)
	c.sent, c.ticket = sent, answer.Ticket
	s.claims.planTicket(c, unreachable)
	if !c.named() {
		s.lines.of(c.target).ahead = answer.Ahead
	}
	if a != nil { // it is not spare
		s.lines.queued(a, answer.Ahead)
	}
}

// planTicket sets when a ticket is asked for again.
func (cs *claims) planTicket(c *claim, unreachable bool) {
	every := cs.askEvery(c)
	c.due = c.sent + every
	if unreachable {
		c.due = c.sent + min(every, max(every/20, minUnreachable))
	}
	if cs.cfg.Lasting {
		c.due = c.sent + cs.lease(c)
	}
	if c.again {
		c.again = false
		cs.push(c)
	}
	cs.schedule(c.due)
}

// askRefused takes in that a wish which does not wait is not granted. It asks again while what other clients keep is on its
// way back.
func (s *sender) askRefused(now time.Duration, c *claim, answer protocol.Answer, reply protocol.Reply) {
	if a := c.holder; a != nil && reply.Recalled && (a.retries < maxRetries || now-a.came < recallTime) {
		c.due = now + max(now-s.flight.sent, minRetry)<<min(a.retries, maxRetries-1)
		a.retries++
		a.heard = true
		s.schedule(c.due)
		return
	}
	s.refuse(c, Event{Reason: Refused, Used: answer.Used, Limit: reply.Limit}, false)
}

// askTooHeavy takes in that an ask wants more than there is. So do those in line that want as much.
func (s *sender) askTooHeavy(c *claim, answer protocol.Answer, limit int) {
	most, pool := answer.Bound, answer.Pool
	if pool == 0 {
		most = cmp.Or(most, limit, s.terms(c).Limit)
	}
	heavy := Event{Reason: TooHeavy, Limit: most, Depth: answer.Depth, Pool: pool}
	s.refuse(c, heavy, false)
	s.lines.refuseLines(heavy, func(a *Acquisition) bool { return a.Target == c.target && (pool > 0 || a.weight > most) })
}

// grant makes a permit of a ticket or a wish. The lease counts from sent on, and
// MaxHold from c.began on; brief says that it is less than was asked for.
func (m *Machine) grant(now time.Duration, c *claim, token int64, slot int, sent, lease time.Duration, brief bool) {
	c.sent, c.due = sent, never
	c.token, c.last, c.received, c.slot = token, token, now, int32(slot)
	m.validUntil(c, sent+lease-m.terms(c).Margin)
	m.receive(now, c, brief)
}

// receive gives a permit to a caller, or renews it first: if its time is up, if its caller has asked again meanwhile, or if
// it is short. A short permit has the rest of its ticket's life, and that is too little for two renewals, or nobody will renew
// it. An engine that is slow to tell of a grant may be slow to renew it.
func (m *Machine) receive(now time.Duration, c *claim, brief bool) {
	if now >= c.valid || brief && (m.terms(c).Renew == 0 || c.valid-now < m.lease(c)/3) || c.again && c.named() {
		c.again = false
		m.claims.becomes(c, unproven)
		m.claims.push(c)
		return
	}
	m.claims.becomes(c, held)
	m.plan(now, c)
	m.deliver(now, c)
}
