package client

import (
	"time"

	"sema/engine"
)

// claim is what the client has at the engine under one id, or wants to have: a
// wish, then a ticket, then a permit. Claims belong to the client. Which of its
// callers a claim is for may change, until the caller has the permit; and a
// permit may pass from caller to caller.
type claim struct {
	id      engine.ID
	state   State
	holder  *Acquisition  // whom it is for, or who has the permit; nil: nobody
	once    bool          // the wish of a caller that does not wait
	resumed bool          // another client made the permit
	began   time.Duration // when the request left that was granted: MaxHold counts from here
	sent    time.Duration // when the request left that the last good answer belongs to
	valid   time.Duration // held: until when it may be trusted
	due     time.Duration // when to ask again, or renew
	since   time.Duration // of the first failed attempt at what was never answered; 0: none
	ticket  int64         // the life of the ticket in the last answer
	slot    int

	granted  int64         // the token that the engine granted
	received time.Duration // when that was known here
	token    int64         // the last token given out: that one, or after a pass a later one
	passes   int           // how often it was passed on although others wait

	kept      bool          // in Machine.kept
	spare     bool          // in Machine.spares
	keepUntil time.Duration // of these two

	index   int  // in Machine.all
	pending bool // in Machine.due, or in the call in flight
	again   bool // ask, or renew, once more when the call in flight is back
	short   bool // a hand-off gave the rest of a ticket's life instead of a lease
	moved   bool // the ticket is for another caller than the engine knows of
}

// issued reports whether a caller has the permit.
func (c *claim) issued() bool { return c.state == Held && c.holder != nil && c.holder.state == Held }

// queues reports whether it is, or will be, a ticket in the queue.
func (c *claim) queues() bool { return !c.once && (c.state == Asking || c.state == Waiting) }

// passed is the last token given out, if the engine does not know it.
func (c *claim) passed() int64 {
	if c.token > c.granted {
		return c.token
	}
	return 0
}

// touched reports whether the engine may have something of it.
func (c *claim) touched() bool {
	return c.state == Waiting || c.state == Held || c.pending || c.since != 0
}

// claim makes a claim for a caller.
func (m *Machine) claim(a *Acquisition) *claim {
	m.number++
	c := &claim{
		id:    engine.ID{Client: m.cfg.Client, Number: m.number, Weight: a.weight, Slot: m.cfg.Slots},
		state: Asking, once: !a.wait, due: never, slot: -1,
	}
	m.pair(a, c)
	m.add(c)
	return c
}

// pair has a claim be for a caller.
func (m *Machine) pair(a *Acquisition, c *claim) { a.claim, a.id, c.holder = c, c.id, a }

func (m *Machine) add(c *claim) {
	c.index = len(m.all)
	m.all = append(m.all, c)
	m.byID[c.id] = c
	if c.queues() {
		m.tickets += c.id.Weight
	}
}

// become changes how far a claim is.
func (m *Machine) become(c *claim, s State) {
	was := c.queues()
	c.state = s
	if was && !c.queues() {
		m.tickets -= c.id.Weight
	}
}

// end takes a claim out of the machine.
func (m *Machine) end(c *claim) {
	if c.state == Ended {
		return
	}
	if a := c.holder; a != nil && a.claim == c {
		a.claim, a.valid = nil, c.valid
	}
	c.holder = nil
	m.unlist(c)
	m.become(c, Ended)
	delete(m.byID, c.id)
	last := m.all[len(m.all)-1]
	m.all[c.index], last.index = last, c.index
	m.all[len(m.all)-1] = nil
	m.all = m.all[:len(m.all)-1]
}

// drop ends a claim, and gives back what the engine may have of it.
func (m *Machine) drop(c *claim) {
	if c.state == Ended {
		return
	}
	touched := c.touched()
	m.end(c)
	if touched {
		m.giveBack(c)
	}
}

// push has a claim renewed, or asked for again, with the next call.
func (m *Machine) push(c *claim) {
	if !c.pending {
		c.pending = true
		m.due = append(m.due, c)
	}
}

// join has a caller wait in line.
func (m *Machine) join(a *Acquisition) {
	if m.line.last != nil && m.line.last.weight != a.weight {
		m.mixed = true
		m.returnSpares()
	}
	m.line.add(a)
	if m.next == nil {
		if c := m.takeSpare(a.weight); c != nil {
			m.move(a, c)
			return
		}
		m.returnSpares() // of another weight: they would be before it in the queue
		m.next = a
	}
	if a.earlier != nil && a.earlier.state == Waiting && !m.short() {
		m.queued(a, m.ahead+1)
	} else if m.untold == nil {
		m.untold = a
	}
}

// leaveLine takes a caller out of the line.
func (m *Machine) leaveLine(a *Acquisition) {
	if !a.waiting {
		return
	}
	if m.untold == a {
		m.untold = a.later
	}
	if m.next == a {
		m.next = a.later
		m.findNext()
	}
	m.line.remove(a)
	m.mixed = m.mixed && m.line.length > 0
}

// findNext moves next on to a caller without a claim.
func (m *Machine) findNext() {
	for m.next != nil && m.next.claim != nil {
		m.next = m.next.later
	}
}

// move has a ticket be for another caller of the line.
func (m *Machine) move(a *Acquisition, c *claim) {
	m.pair(a, c)
	m.findNext()
	if a.state == Asking && c.state == Waiting {
		m.queued(a, m.ahead)
	}
	c.moved, m.moved = true, true
}

// free finds a caller for a ticket whose own has gone; or spares it, or gives
// it back. In a line of different weights it would pass callers of another one,
// and callers of other clients if these wait.
func (m *Machine) free(now time.Duration, c *claim) {
	c.holder = nil
	switch a := m.next; {
	case c.state == Held && m.leave == engine.Keep: // it is being renewed, and goes to the oldest caller then
	case a != nil && !m.mixed && c.queues() && (m.leave == engine.Keep || m.cfg.Passes > 0):
		m.move(a, c)
	case a == nil && !m.mixed && m.leave == engine.Keep && c.queues() && c.touched() && len(m.spares) < m.limit():
		c.spare, c.keepUntil = true, now+m.askEvery()/20
		m.spares = append(m.spares, c)
		m.schedule(c.keepUntil)
	default:
		m.drop(c)
	}
}

// queued tells a caller that it waits, and behind how many tickets.
func (m *Machine) queued(a *Acquisition, ahead int) {
	if a.state == Asking {
		a.state = Waiting
	}
	if a.ahead != ahead {
		a.ahead = ahead
		m.tell(Event{Kind: Queued, A: a, Ahead: ahead})
	}
}

// deliver gives a permit to a caller. It goes to the oldest one that waits,
// whose own ticket is then another's.
func (m *Machine) deliver(now time.Duration, c *claim) {
	m.unlist(c)
	mine, first := c.holder, m.oldest(c.id.Weight)
	if first != nil && first != mine && (mine == nil && !m.mixed || mine != nil && mine.waiting) {
		ticket := first.claim
		m.pair(first, c)
		switch {
		case mine != nil && ticket != nil:
			m.move(mine, ticket)
		case mine != nil:
			mine.claim = nil
			if m.next == nil || mine.came < m.next.came {
				m.next = mine
			}
		case ticket != nil:
			m.free(now, ticket)
		}
	}
	if c.holder == nil {
		m.settle(now, c)
		return
	}
	m.issue(now, c.holder, c)
}

// oldest is the caller of this weight that has waited longest.
func (m *Machine) oldest(weight int) *Acquisition {
	for a := m.line.first; a != nil; a = a.later {
		if a.weight == weight {
			return a
		}
		if a == m.next { // those behind it came later than any that has a ticket
			break
		}
	}
	return nil
}

// issue gives a caller its permit.
func (m *Machine) issue(now time.Duration, a *Acquisition, c *claim) {
	m.pair(a, c)
	m.leaveLine(a)
	a.state, a.had, a.granted, a.token, a.slot = Held, true, now, c.token, c.slot
	m.tell(Event{Kind: Granted, A: a})
}
