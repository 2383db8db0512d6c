package client

import (
	"slices"
	"time"
)

// sender is what is sent to the engine, what is in flight, and what failed.
type sender struct {
	*shared
	lines  *lines
	claims *claims

	orders      []*Order
	said        bool // the engine has had the limit, see Config.Newest
	unreachable bool // the engine cannot notify this client, as it last said

	flight  flight
	outage  outage
	life    life
	recheck recheck
}

// returnIdle gives back the idle claims that which picks.
func (s *sender) returnIdle(which func(*claim) bool) {
	for _, c := range slices.Backward(s.claims.forNobody()) {
		if which(c) {
			s.drop(c)
		}
	}
}

// drop ends a claim, and gives back what the engine may have of it.
func (s *sender) drop(c *claim) {
	if c.stage == ended {
		return
	}
	touched := c.touched()
	s.claims.end(c)
	if touched {
		s.giveBack(c)
	}
}

// refuse ends a claim, and its caller if it has one. has says that the engine may
// have something of it.
func (s *sender) refuse(c *claim, e Event, has bool) {
	if a := c.holder; a != nil {
		s.lines.deny(a, e)
	}
	if has {
		s.giveBack(c)
	}
	s.claims.end(c)
}

// askAll asks for all tickets again: news of one may be lost.
func (s *sender) askAll() {
	s.returnIdle(isTicket) // the next caller asks anew
	s.claims.askAllAgain()
}

// askAnew has the caller of a claim that came to nothing ask again: under another
// id, or under the one that it named.
func (s *sender) askAnew(c *claim) {
	a := c.holder
	if a != nil && c.named() {
		s.claims.becomes(c, queued)
		c.due = never
		s.claims.push(c)
		return
	}
	if s.drop(c); a != nil {
		s.claims.anew(a)
	}
}

// recheckAt asks for one of the tickets again at t. Older news
// cannot put off what newer ones said.
func (s *sender) recheckAt(t, asOf time.Duration) {
	if s.recheck.at != never && asOf < s.recheck.asOf && t >= s.recheck.at {
		return
	}
	s.recheck = recheck{t, asOf}
	s.schedule(t)
}

// goOn makes a call, and with it the engine's next step, which goes on where the last one ended.
func (s *sender) goOn() {
	if !s.claims.askAny() {
		s.returnIdle(isTicket) // that is a call as well
	}
}

// Idle reports whether nothing is in flight or wants to be sent.
func (m *Machine) Idle() bool { return m.sender.idle() }

func (s *sender) idle() bool {
	return !s.flight.flying && len(s.orders) == 0 && !s.claims.toSend() && !s.lines.fewTickets()
}

// Drained reports whether the owner of a closed machine need not wait any longer: all has
// been sent, or the engine is away and has nothing of this client.
func (m *Machine) Drained(now time.Duration) bool {
	s := &m.sender
	return s.idle() || s.away(now) && !slices.ContainsFunc(s.orders, (*Order).matters) &&
		!slices.ContainsFunc(s.flight.items, func(it item) bool { return it.order != nil && it.order.matters() })
}

// GiveUp leaves to the leases what a closed machine still owes. Owners of orders that have no
// answer are told so.
func (m *Machine) GiveUp() {
	s := &m.sender
	end := func(o *Order) {
		if o != nil {
			o.owed = false
			s.answer(o, Event{Err: s.failure()})
		}
	}
	for _, it := range s.flight.items {
		end(it.order)
	}
	for _, o := range s.orders {
		end(o)
	}
	s.orders = nil
}

// LastError is the error of the last call, if it failed.
func (m *Machine) LastError() error { return m.sender.outage.err }

// lose ends a permit that is not held any more.
func (s *sender) lose(c *claim, why Reason) {
	a := c.holder
	if a == nil { // it was kept
		s.drop(c)
		return
	}
	s.claims.end(c)
	a.state = Ended
	s.tell(Event{Kind: Lost, A: a, Reason: why})
}

// join puts a caller into its line.
func (s *sender) join(a *Acquisition) {
	l := s.lines.of(a.Target)
	if l.last != nil && l.last.weight != a.weight {
		l.mixed = true
		s.returnIdle(ticketOf(l.target))
	}
	l.add(a)
	if a.later != nil {
		s.claims.overtake(l, a)
	} else if l.next == nil {
		if c := s.claims.takeSpare(l, a.weight, a.Label); c != nil {
			s.lines.note(l)
			s.claims.move(a, c)
			return
		}
		s.returnIdle(ticketOf(l.target)) // of another weight: they would be before it in the queue
		l.next = a
	}
	s.lines.note(l)
	if a.earlier != nil && a.earlier.state == Waiting && !s.lines.few(l) {
		s.lines.queued(a, l.ahead+1)
	} else {
		l.tellLater(a)
	}
}
