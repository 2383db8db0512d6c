package client

import (
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// Names are the permits of callers that name them, as one server has them: which
// requests wait for each, and whether its caller has been told of it. The server's
// JSON API has one for each semaphore.
type Names struct {
	machine *Machine
	all     map[uint64]*Named // by the number in the id
}

// Named is one such permit, from the wish to its end. Its Wish is set by the server;
// what is below it only by Names.
type Named struct {
	Acquisition
	Wish Wish

	Users int  // requests that wait for it, or live as long as it does
	Told  bool // its caller was answered that it is granted, and may rely on it
	Over  bool

	next *Named // the ask that took its place
}

// Latest is the ask that took p's place, or p if none has. Requests that waited for p wait
// for it.
func (p *Named) Latest() *Named {
	for p.next != nil {
		p = p.next
	}
	return p
}

// NewNames makes the names of a machine.
func NewNames(m *Machine) *Names { return &Names{m, map[uint64]*Named{}} }

// Find is the permit of a number; nil: there is none here.
func (n *Names) Find(number uint64) *Named { return n.all[number] }

// Len is how many there are.
func (n *Names) Len() int { return len(n.all) }

// Ask begins to ask for p, or joins a request that asks for the same already, and
// returns what is asked for. If the permit is held here, or is being taken up, the engine is
// asked anew whether it still exists: its caller may have given it back at another server.
func (n *Names) Ask(now time.Duration, p *Named) *Named {
	old := n.all[p.Wish.ID.Number]
	if old != nil && !old.Resuming() && old.State() != Held {
		old.Users++
		n.machine.claims.recheckName(old.claim)
		return old
	}
	p.Users = 1
	if old != nil {
		p.Told, p.Users, old.next = old.Told, old.Users+1, p
		n.machine.Forget(&old.Acquisition)
		n.End(old)
	}
	n.all[p.Wish.ID.Number] = p
	n.machine.AcquireAs(now, &p.Acquisition, &p.Wish)
	return p
}

// Resume takes up a permit that another server gave its caller, or an earlier life
// of this one.
func (n *Names) Resume(now time.Duration, p *Named) {
	p.Told = true
	n.all[p.Wish.ID.Number] = p
	n.machine.ResumeAs(now, &p.Acquisition, &p.Wish)
}

// End notes that the machine has ended a permit, or the wait for it.
func (n *Names) End(p *Named) {
	p.Over = true
	if number := p.Wish.ID.Number; n.all[number] == p {
		delete(n.all, number)
	}
}

// Leave ends the interest of a request; told says that the request told its caller of the
// permit. The permit is given back if no request waits, and none has told its caller. A caller may ask
// again after its first connection broke, and the server may notice the break last.
func (n *Names) Leave(now time.Duration, p *Named, told bool) {
	p = p.Latest()
	p.Users--
	p.Told = p.Told || told
	n.DropUnwanted(now, p)
}

// Part ends the interest of all requests in a permit: they have been told to ask another
// server. The ticket stays at the engine for as long as that of a server that died.
func (n *Names) Part(p *Named) {
	p = p.Latest()
	n.machine.Part(&p.Acquisition)
	n.End(p)
}

// DropUnwanted drops what nobody wants. It is to be called when a permit is queued: a
// caller that had it, asked again and went away does not wait for another.
func (n *Names) DropUnwanted(now time.Duration, p *Named) {
	if p.Users == 0 && !p.Over && (!p.Told || p.State() == Waiting) {
		n.machine.Drop(now, &p.Acquisition)
		n.End(p)
	}
}

// Forget leaves all permits to their callers.
func (n *Names) Forget() {
	for _, p := range n.all {
		n.machine.Forget(&p.Acquisition)
	}
	clear(n.all)
}

// Wish is what a caller wants that names its permit.
type Wish struct {
	Terms
	protocol.Target
	ID   engine.ID     // the same each time the caller asks; see protocol.Request.Who
	Who  engine.Client // for the eyes of operators
	Wait bool          // queue if need be
}

// AcquireAs is Acquire for a caller that names its permit. The claim stays the
// caller's: it is not in line here, and its ticket and permit pass to nobody. The
// machine must have nothing under the id (see Knows). A release that it still owes the engine
// under that id is dropped. w stays the caller's. It must not change until the acquisition has ended, but for
// its Lease: the next renewal takes that.
func (m *Machine) AcquireAs(now time.Duration, a *Acquisition, w *Wish) {
	m.begin(now, a, w.ID.Weight, w.Wait)
	if m.closed {
		m.lines.deny(a, Event{Reason: Closed})
		return
	}
	c := &claim{id: w.ID, target: w.Target, stage: wished, wish: w, noWait: !w.Wait, due: never, slot: -1}
	m.claims.pair(a, c)
	m.claims.add(c)
	m.claims.fresh = append(m.claims.fresh, c)
}

// ResumeAs is Resume for a caller that names its permit; see AcquireAs.
func (m *Machine) ResumeAs(now time.Duration, a *Acquisition, w *Wish) {
	m.resume(now, a, &claim{id: w.ID, wish: w})
}

// Drop ends an acquisition of AcquireAs, held or not: its caller has not heard of
// a permit and never will. What the engine has of it is given back, unless another
// session has asked for it since.
func (m *Machine) Drop(now time.Duration, a *Acquisition) {
	if c := a.claim; a.state == Held && c != nil {
		a.state = Ended
		m.sender.drop(c)
		return
	}
	m.Cancel(now, a)
}

// Part ends an acquisition of AcquireAs: its caller asks another server now. What the
// engine has of it stays there, also a ticket that the call in flight brings.
func (m *Machine) Part(a *Acquisition) {
	if a.claim != nil {
		a.claim.parted = true
	}
	m.Forget(a)
}

// recheckName asks for a claim again, or renews it, before its caller gets the
// permit: another server may have had its ticket since, and its permit.
func (cs *claims) recheckName(c *claim) {
	if c != nil {
		c.again = c.again || c.pending
		cs.askAgain(c)
	}
}

// named reports whether its caller named a claim.
func (c *claim) named() bool { return c.wish != nil }
