// Package client is what one process knows and owes about one semaphore, as a
// pure state machine: no clock, no lock, no goroutine, no I/O. It is the twin
// of internal/ledger, which is the other side.
//
// Time, answers, notifications and what callers want come in. Calls for the
// engine, events for callers, and the next time to look come out. The owner
// of a Machine carries its calls (internal/loop is one, the simulator another):
//
//	m.Acquire(now, a, 1, true)     // a caller wants a permit
//	call, ok := m.Next(now)        // what to send, if anything, and nothing is in flight
//	m.Answer(now, reply)           // or m.Failed(now, err)
//	for _, e := range m.Events()   // a was granted
//	m.Tick(now)                    // at m.Wake(), or later
//
// Times are durations since a moment of the owner's choice, on the local
// monotonic clock. The machine never compares them with the engine's clock: a
// request sent at t is carried out at t or later, so a lease it gives cannot
// end before t + lease. A permit is valid until one margin before that.
//
// A Machine joins parts that lie one above the other. Each knows those below it, and none above:
//
//	shared    the configuration, the limit, the clock's next alarm, the events (shared.go)
//	lines     who waits here, in which order, and who is refused at once (line.go, toomany.go)
//	claims    what the engine has for this client: wishes, tickets, permits (claim.go)
//	sender    what is to be sent, the call in flight, what failed (sender.go, call.go, order.go, failure.go)
//	keeping   what a released permit may do without a call (keep.go)
//
// The way of one value through them, in the order of time: a caller comes (machine.go), its wish
// is sent (call.go), the answer comes (answer.go) or a notification (time.go), and a caller gets what was
// granted (assign.go) or released by another (keep.go). What is held is renewed (renew.go). What a caller gives up or
// gives back (Cancel, Release in machine.go) is released at the engine by sender.go and order.go. Permits that their callers named
// have names.go.
package client

import (
	"cmp"
	"time"

	"sema/engine"
)

// Terms are what permits are asked for with.
type Terms struct {
	Limit   int          // stored if the engine has none
	Observe bool         // the limit, and what is stored with it, is only watched
	Caps    engine.Caps  // the most weight that a key may hold, stored with Limit
	Pools   engine.Pools // how much there is of each, stored with Limit
	Lease   time.Duration
	Renew   time.Duration // how often a permit is renewed; 0: never
	Margin  time.Duration
}

// Config is what does not change in a machine's life.
type Config struct {
	Terms
	Client   string        // of the session: the first part of the permits' ids
	Self     engine.Client // this process, as operators see it
	MaxHold  time.Duration // a permit is held no longer; 0: as long as wanted
	Slots    bool
	Strict   bool
	Newest   bool // store Limit, once, in place of another that is not pinned
	Unfair   bool
	Detached bool
	Patient  bool // a wait lasts through an outage of any length

	// Probes says that the owner can ask the engine for a sign of life, see Machine.Probe.
	Probes bool

	MaxWaiting int // so many callers of a key wait; 0: as many as come

	Keep time.Duration // how long a released permit is kept for the next caller

	// Base is when the machine's time began, by the monotonic clock. It is
	// needed with Lasting only.
	Base time.Time

	// Lasting says that the engine keeps a ticket as long as its process lives,
	// so that it is asked for again only once a lease. Nothing else tells its client of a limit or a pool that has
	// become too small.
	Lasting bool
}

// Machine is one process's side of one semaphore. It joins parts, each of which knows those
// before it and none behind it.
type Machine struct {
	*shared
	lines   lines   // the callers that wait here
	claims  claims  // what the engine has for them
	sender  sender  // what is sent, and what failed
	keeping keeping // what a released permit may do

	came time.Duration // when the last caller came
}

// New makes a machine that knows nothing yet.
func New(cfg Config) *Machine {
	h := &shared{cfg: cfg, wake: never, watched: cfg.Observe}
	m := &Machine{shared: h, lines: lines{shared: h}}
	m.claims = claims{shared: h, lines: &m.lines, byID: map[engine.ID]*claim{}, byNumber: map[uint64]*claim{}}
	m.sender = sender{shared: h, lines: &m.lines, claims: &m.claims, recheck: recheck{at: never}}
	m.keeping = keeping{shared: h, lines: &m.lines, claims: &m.claims, sender: &m.sender}
	return m
}

// Acquire takes in a caller's wish for a permit of some weight; wait says that
// it queues if there is none now.
func (m *Machine) Acquire(now time.Duration, a *Acquisition, weight int, wait bool) {
	m.begin(now, a, weight, wait)
	switch first := m.lines.of(a.Target).first; {
	case m.closed:
		m.lines.deny(a, Event{Reason: Closed})
	case (first == nil || m.cfg.Unfair) && m.takeKept(now, a):
	case wait && !m.cfg.Unfair && first != nil && first.state == Waiting && m.lines.refuseNext(now, a):
	case wait:
		m.sender.returnIdle(isPermit) // somebody needs the weight, and not in these portions
		m.sender.join(a)
	case first != nil && first.state == Waiting && !m.cfg.Unfair:
		m.sender.returnIdle(isPermit)
		m.lines.deny(a, Event{Reason: Refused}) // somebody waits
	default:
		m.sender.returnIdle(isPermit)
		m.sender.returnIdle(isTicket) // or they would be what is in its way
		m.claims.fresh = append(m.claims.fresh, m.claims.claim(a))
	}
}

// begin makes an acquisition one whose caller has just come.
func (m *Machine) begin(now time.Duration, a *Acquisition, weight int, wait bool) {
	a.weight, a.wait, a.ahead, a.slot, a.state = weight, wait, -1, -1, Asking
	m.came = max(now, m.came+1) // distinct
	a.came, a.soon = m.came, now < m.keeping.soonUntil
	m.sender.expect(now)
}

// Resume takes up a permit that exists.
func (m *Machine) Resume(now time.Duration, a *Acquisition, id engine.ID) {
	m.resume(now, a, &claim{id: id})
}

func (m *Machine) resume(now time.Duration, a *Acquisition, c *claim) {
	*a = Acquisition{Owner: a.Owner, id: c.id, state: Asking, weight: c.id.Weight, resumed: true, came: now, granted: now, slot: -1, ahead: -1}
	if m.closed {
		m.lines.deny(a, Event{Reason: Closed})
		return
	}
	c.stage, c.noWait, c.resumed, c.began, c.due, c.slot = unproven, true, true, now, never, -1
	m.claims.pair(a, c)
	m.claims.add(c)
	m.claims.push(c)
}

// Cancel ends an acquisition whose caller does not want it any more, before it
// has the permit.
func (m *Machine) Cancel(now time.Duration, a *Acquisition) {
	if a.state == Ended || a.state == Held {
		return
	}
	c := a.claim
	queues := c != nil && a.waiting
	m.lines.leaveLine(a)
	a.state, a.claim = Ended, nil
	switch {
	case c == nil:
	case queues:
		m.free(now, c)
	default:
		m.sender.drop(c)
	}
}

// Self is who a caller of this process is to operators.
func (m *Machine) Self(a *Acquisition) *engine.Client {
	who := m.cfg.Self
	who.Label = cmp.Or(a.Label, who.Label)
	return &who
}

// Release gives back the permit of an acquisition that was granted; also one
// that is lost. The order is in the event that answers it. It is nil if the
// permit stays here, for another caller: then it has been released already.
func (m *Machine) Release(now time.Duration, a *Acquisition) *Order {
	c := a.claim
	defer func() { m.keeping.soonUntil = now + m.cfg.Keep }()
	if c != nil && a.state == Held {
		if now >= c.valid {
			m.sender.lose(c, NotRenewed)
		} else if m.handOn(now, c) {
			a.state, a.claim, a.valid = Ended, nil, c.valid
			return nil
		}
	}
	o := &Order{giveBack: giveBack{id: a.id}, came: now, owed: true}
	if c != nil {
		o.token = c.releaseToken()
	}
	m.Forget(a)
	m.sender.orders = append(m.sender.orders, o)
	return o
}

// Forget ends an acquisition without giving its permit back.
func (m *Machine) Forget(a *Acquisition) {
	if a.claim != nil {
		m.claims.end(a.claim)
	}
	a.state = Ended
}

// Close ends all acquisitions that have no permit yet, gives back what is kept,
// and takes no further wishes. The permits are the owner's to release or forget.
func (m *Machine) Close() {
	m.closed = true
	for i := len(m.claims.all) - 1; i >= 0; i-- { // backwards, because end moves the last one
		if c := m.claims.all[i]; !c.issued() {
			if a := c.holder; a != nil {
				m.lines.deny(a, Event{Reason: Closed})
			}
			m.sender.drop(c)
		}
	}
	m.lines.denyLines(Event{Reason: Closed})
}

// engineClosed ends everything: nothing can be renewed or granted any more.
func (m *Machine) engineClosed() {
	m.closed = true
	for len(m.claims.all) > 0 {
		c := m.claims.all[len(m.claims.all)-1]
		switch a := c.holder; {
		case c.issued():
			m.sender.lose(c, Closed)
			continue
		case a != nil:
			m.lines.deny(a, Event{Reason: Closed})
		}
		m.claims.end(c)
	}
	m.lines.denyLines(Event{Reason: Closed})
}
