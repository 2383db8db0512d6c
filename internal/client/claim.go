package client

import (
	"fmt"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/enum"
)

// claim is what the client has at the engine under one id, or wants to have: a
// wish, then a ticket, then a permit. Claims belong to the client. Which of its
// callers a claim is for may change, until the caller has the permit; and a
// permit may pass from caller to caller. A claim that its caller named is that
// caller's to the end.
type claim struct {
	id       engine.ID
	key      string
	label    string // the engine has been told, or will be
	labelled bool   // an ask had a label: later asks say so if there is none

	headStart time.Duration // of the caller that the ticket was last asked for

	stage  stage
	holder *Acquisition // the caller that it is for, or that has the permit; nil: the next one to come
	terms  *Terms

	who     *engine.Client // of a claim that its caller named
	once    bool           // its caller does not wait
	resumed bool           // another client made the permit

	began  time.Duration // when the request left that was granted, or the permit was handed over: MaxHold counts from here
	asked  time.Duration // when the first ask left that may have been carried out
	sent   time.Duration // when the request left that the last good answer belongs to
	valid  time.Duration // held: until when it may be trusted
	due    time.Duration // when to ask again, or renew
	ticket int64         // the life of the ticket in the last answer
	slot   int

	token    int64         // the one that the engine granted
	received time.Duration // when that was known here
	last     int64         // the last token given out: that one, or after a pass a later one
	passes   int           // how often it was passed on although others wait

	keepUntil time.Duration // for nobody
	index     int           // in Machine.all
	pending   bool          // in Machine.due, or in the call in flight
	again     bool          // ask, or renew, once more when the call in flight is back
	unsure    bool          // an ask failed with unknown outcome, and none has been answered since
	known     bool          // the engine has said that it has a ticket, or a permit
	moved     bool          // the ticket is for another caller than the engine knows of
	found     bool          // named: its permit was there before it was asked for here
	parted    bool          // named: its caller asks another server
}

// stage is how far a claim is.
type stage uint8

// The stages of a claim. With holder they say all: a claim that is held for nobody
// is kept for the next caller; one that is wished or queued for nobody is spare.
const (
	wished   stage = iota + 1 // no answer yet
	queued                    // there is a ticket
	unproven                  // there is a permit, to be renewed before a caller gets it
	held                      // there is a permit, and its caller has it
	ended
)

// String names the stage.
func (s stage) String() string {
	return enum.Name("stage", s, "", "wished", "queued", "unproven", "held", "ended")
}

// next is what each stage may become. A ticket that was granted, and whose permit
// lapsed before anybody had it, may be a ticket again.
var next = [...][]stage{
	wished:   {queued, unproven, held, ended},
	queued:   {queued, unproven, held, ended},
	unproven: {queued, unproven, held, ended},
	held:     {held, ended},
}

// becomes changes how far a claim is.
func (m *Machine) becomes(c *claim, s stage) {
	if c.stage == ended || !slices.Contains(next[c.stage], s) {
		panic(fmt.Sprintf("client: %v is %v, and cannot become %v", c.id, c.stage, s))
	}
	was := c.lined()
	if was && c.stage == queued {
		m.lines.of(c.key).tickets--
	}
	c.stage = s
	c.known = c.known || s != ended
	if s == queued && c.lined() {
		m.lines.of(c.key).tickets++
	}
	if s == queued { // whatever it had been granted is over
		c.token, c.last, c.found = 0, 0, false
	}
	if is := c.lined(); is != was {
		l := m.lines.of(c.key)
		if is {
			l.weight += c.id.Weight
		} else {
			l.weight -= c.id.Weight
		}
		m.lines.note(l)
	}
}

// issued reports whether a caller has the permit.
func (c *claim) issued() bool { return c.stage == held && c.holder != nil }

// lined reports whether it is, or will be, a ticket for the callers in line.
func (c *claim) lined() bool { return !c.once && c.who == nil && c.stage <= queued }

// passed is the last token given out, if the engine does not know it.
func (c *claim) passed() int64 {
	if c.last > c.token {
		return c.last
	}
	return 0
}

// released is the token for a release: the last one given out, or the one of a grant
// to a caller that named it, and may have another grant under that name by then.
func (c *claim) released() int64 {
	if c.who != nil {
		return c.token
	}
	return c.passed()
}

// touched reports whether the engine may have something of it that is to be given
// back when nobody wants it. Of what a caller named, another server may have told the
// caller: so that has to be known to be this client's own.
func (c *claim) touched() bool {
	if c.who != nil {
		return c.stage != wished && !c.found && !c.resumed
	}
	return c.stage != wished || c.pending || c.unsure
}

// cameAt is when the caller of a claim came.
func (c *claim) cameAt() time.Duration {
	if c.holder == nil {
		return c.began
	}
	return c.holder.came
}

// since is from when on the caller of a claim counts as waiting.
func (c *claim) since() time.Duration {
	if c.holder == nil {
		return c.began
	}
	return c.holder.since()
}

// isPermit and isTicket pick claims that are for nobody.
func isPermit(c *claim) bool { return c.stage == held }
func isTicket(c *claim) bool { return c.stage <= queued }

// ticketOf picks those of a key.
func ticketOf(key string) func(*claim) bool {
	return func(c *claim) bool { return c.key == key && isTicket(c) }
}

// claim makes a claim for a caller.
func (m *Machine) claim(a *Acquisition) *claim {
	m.number++
	c := &claim{
		id:  engine.ID{Client: m.cfg.Client, Number: m.number, Weight: a.weight, Slot: m.cfg.Slots},
		key: a.Key, label: a.Label, headStart: a.HeadStart, stage: wished, terms: &m.cfg.Terms, once: !a.wait, due: never, slot: -1,
	}
	m.pair(a, c)
	m.add(c)
	return c
}

// pair gives a claim to a caller. A ticket is asked for again if the engine has it with the label or the
// head start of another one.
func (m *Machine) pair(a *Acquisition, c *claim) {
	a.claim, a.id, c.holder = c, c.id, a
	if c.who == nil && c.stage <= queued && (c.label != a.Label || c.headStart != a.HeadStart) {
		if c.headStart != a.HeadStart {
			c.moved, m.lines.moved = true, true
		}
		c.label, c.headStart = a.Label, a.HeadStart
		m.askAgain(c)
	}
}

func (m *Machine) add(c *claim) {
	c.index = len(m.all)
	m.all = append(m.all, c)
	if c.numbered() {
		m.byNumber[c.id.Number] = c
	} else {
		m.byID[c.id] = c
	}
	if c.lined() {
		l := m.lines.of(c.key)
		l.weight += c.id.Weight
	}
}

// numbered reports whether this machine gave the claim its number.
func (c *claim) numbered() bool { return c.who == nil && !c.resumed }

// find is the claim of an id, nil if there is none.
func (m *Machine) find(id engine.ID) *claim {
	if c := m.byNumber[id.Number]; c != nil && c.id == id {
		return c
	}
	return m.byID[id]
}

// end takes a claim out of the machine.
func (m *Machine) end(c *claim) {
	if c.stage == ended {
		return
	}
	if a := c.holder; a != nil && a.claim == c {
		a.claim, a.valid = nil, c.valid
	}
	m.unlist(c)
	c.holder = nil
	m.becomes(c, ended)
	if c.numbered() {
		delete(m.byNumber, c.id.Number)
	} else {
		delete(m.byID, c.id)
	}
	last := m.all[len(m.all)-1]
	m.all[c.index], last.index = last, c.index
	m.all[len(m.all)-1] = nil
	m.all = m.all[:len(m.all)-1]
}

// drop ends a claim, and gives back what the engine may have of it.
func (m *Machine) drop(c *claim) {
	if c.stage == ended {
		return
	}
	touched := c.touched()
	m.end(c)
	if touched {
		m.giveBack(c)
	}
}

// refuse ends a claim, and its caller if it has one. has says that the engine may
// have something of it.
func (m *Machine) refuse(c *claim, e Event, has bool) {
	if a := c.holder; a != nil {
		m.deny(a, e)
	}
	if has {
		m.giveBack(c)
	}
	m.end(c)
}

// push has a claim renewed, or asked for again, with the next call.
func (m *Machine) push(c *claim) {
	if !c.pending {
		c.pending = true
		m.due = append(m.due, c)
	}
}

// askAll has all tickets asked for again: something that was told of one may be lost.
func (m *Machine) askAll() {
	m.returnIdle(isTicket) // the next caller asks anew
	for _, c := range m.all {
		m.askAgain(c)
	}
}

// askAgain has a ticket asked for with the next call. The answer to an ask that
// travels may be older than what is told.
func (m *Machine) askAgain(c *claim) {
	switch {
	case c.stage > queued:
	case c.pending:
		c.again = true
	case c.stage == queued:
		m.push(c)
	}
}

// recheckName has a claim asked for again, or renewed, before its caller gets what
// comes of it: another server may have had its ticket since, and its permit.
func (m *Machine) recheckName(c *claim) {
	if c != nil {
		c.again = c.again || c.pending
		m.askAgain(c)
	}
}
