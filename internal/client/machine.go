// Package client is what one process knows and owes about one semaphore, as a
// pure state machine: no clock, no lock, no goroutine, no I/O. It is the twin
// of internal/ledger, which is the other side.
//
// Time, answers, notifications and what callers want come in. Calls for the
// engine, events for callers, and the next time to look come out. Whoever owns
// a Machine carries its calls (package sema does, and the simulator):
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
package client

import (
	"slices"
	"time"

	"sema/engine"
)

// Config is what does not change in a machine's life.
type Config struct {
	Client   string // of the session: the first part of the permits' ids
	Limit    int    // stored if the engine has none
	Lease    time.Duration
	Renew    time.Duration // how often a permit is renewed; 0: never
	Margin   time.Duration
	MaxHold  time.Duration // a permit is held no longer; 0: as long as wanted
	Slots    bool
	Strict   bool
	Declare  bool // store Limit, once, before the first wish
	Unfair   bool
	Detached bool

	Keep   time.Duration // how long a released permit is kept for the next caller
	Passes int           // how often in a row a permit is passed on although other clients wait

	// Base is when the machine's time began, by the monotonic clock. It is
	// needed with Lasting only.
	Base time.Time

	// Lasting says that the engine keeps a ticket as long as its process lives,
	// so that it need not be asked for again and again.
	Lasting bool
}

const (
	// never is later than everything.
	never = time.Duration(1<<63 - 1)

	// asksPerLease is how often a waiter asks again in a lease.
	asksPerLease = 6

	// minDeaf is how often at the most one asks again whom no notification reaches.
	minDeaf = 20 * time.Millisecond

	// patience is how long a request that never succeeded is repeated.
	patience = 3 * time.Second

	// The pause after a failed call, which doubles with each further one.
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond

	// maxRetries is how often a wish that does not wait asks again because
	// others keep what it wants, each time after twice as long.
	maxRetries = 4
	minRetry   = 100 * time.Microsecond

	// maxOwed bounds what is owed to an engine that is out of reach.
	maxOwed = 100_000

	// maxRequests bounds a call, and so how long it keeps the engine from
	// others.
	maxRequests = 500
)

// Machine is one process's side of one semaphore.
type Machine struct {
	cfg    Config
	number uint64               // of the last claim
	all    []*claim             // that have not ended
	byID   map[engine.ID]*claim // the same
	stored int                  // the engine's limit as last seen; 0: not seen yet
	closed bool                 // by Close, or by the engine
	wake   time.Duration        // when Tick is to be called
	events []Event              // since the last call of Events

	// Who waits. Those before next have claims, of which the tickets weigh so
	// much.
	line    line
	next    *Acquisition
	tickets int
	untold  *Acquisition  // the first of those who have not been told that they wait
	ahead   int           // tickets ahead in the last answer
	came    time.Duration // when the last caller came
	mixed   bool          // callers of different weight are in line
	moved   bool          // some tickets are for other callers than the engine knows of

	deaf bool // no notification arrives here, as the engine last said

	// What released permits may do without the engine's being asked.
	leave      engine.Leave
	leaveUntil time.Duration
	overruled  engine.Recall // what came while the call in flight was on its way
	used       bool          // permits were passed on since the last call
	kept       []*claim      // permits for the next callers
	spares     []*claim      // tickets for the next callers

	// What waits to be sent.
	orders []*Order
	due    []*claim // to be renewed, or asked for again
	fresh  []*claim // that have had no answer, in the order their callers came

	// The call in flight.
	calls     uint64 // the number of the last call
	flying    bool
	sent      time.Duration
	requests  []engine.Request
	items     []item // what each request is about
	wouldKeep bool   // it asked what may be kept
	fence     bool   // the outcome of an earlier call is not known

	declaring Order // stores the limit
	declared  bool  // it has been

	failures int           // calls in a row that had no answer
	failing  time.Duration // when the first of them left
	paused   time.Duration // nothing is sent before
	lastErr  error         // of the last call, if it failed

	recheck     time.Duration // when to ask again because a lease ends
	recheckAsOf time.Duration // how old that word is
}

// item is what a request of a call is about: an order, or a claim.
type item struct {
	order *Order
	claim *claim
}

// New makes a machine that knows nothing yet.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, byID: map[engine.ID]*claim{}, wake: never, recheck: never}
}

// Events returns what happened since the last call of it. The slice is valid
// until the machine is used again.
func (m *Machine) Events() []Event {
	events := m.events
	m.events = m.events[:0]
	return events
}

func (m *Machine) tell(e Event) { m.events = append(m.events, e) }

// Acquire takes in a caller's wish for a permit of some weight; wait says that
// it queues if there is none now.
func (m *Machine) Acquire(now time.Duration, a *Acquisition, weight int, wait bool) {
	a.weight, a.wait, a.ahead, a.slot, a.state = weight, wait, -1, -1, Asking
	m.came = max(now, m.came+1) // distinct
	a.came = m.came
	if m.closed {
		m.deny(a, Event{Reason: Closed})
		return
	}
	if (m.line.first == nil || m.cfg.Unfair) && m.takeKept(now, a) {
		return
	}
	m.returnKept() // somebody needs the weight, and not in these portions
	switch first := m.line.first; {
	case wait:
		m.join(a)
	case first != nil && first.state == Waiting && !m.cfg.Unfair:
		m.deny(a, Event{Reason: Refused}) // somebody waits
	default:
		m.returnSpares() // or they would be what is in its way
		m.fresh = append(m.fresh, m.claim(a))
	}
}

// Resume takes up a permit that exists.
func (m *Machine) Resume(now time.Duration, a *Acquisition, id engine.ID) {
	*a = Acquisition{Owner: a.Owner, id: id, state: Asking, weight: id.Weight, resumed: true, came: now, granted: now, slot: -1, ahead: -1}
	if m.closed {
		m.deny(a, Event{Reason: Closed})
		return
	}
	c := &claim{id: id, state: Held, once: true, resumed: true, began: now, due: never, slot: -1}
	m.pair(a, c)
	m.add(c)
	m.push(c)
}

// Knows reports whether the machine has something under an id.
func (m *Machine) Knows(id engine.ID) bool { return m.byID[id] != nil }

// Cancel ends an acquisition whose caller does not want it any more, before it
// has the permit.
func (m *Machine) Cancel(now time.Duration, a *Acquisition) {
	if a.state == Ended || a.state == Held {
		return
	}
	c := a.claim
	queues := c != nil && a.waiting
	m.leaveLine(a)
	a.state, a.claim = Ended, nil
	switch {
	case c == nil:
	case queues:
		m.free(now, c)
	default:
		m.drop(c)
	}
}

// Release gives back the permit of an acquisition that was granted; also one
// that is lost. The order is in the event that answers it. It is nil if the
// permit stays here, for another caller: then it has been released already.
func (m *Machine) Release(now time.Duration, a *Acquisition) *Order {
	c := a.claim
	if c != nil && a.state == Held {
		if now >= c.valid {
			m.lose(c, NotRenewed)
		} else if m.handOn(now, c) {
			a.state, a.claim, a.valid = Ended, nil, c.valid
			return nil
		}
	}
	o := &Order{request: engine.Request{Kind: engine.Release, ID: a.id}, owed: true}
	if c != nil {
		o.request.Token = c.passed()
	}
	m.forget(a)
	m.orders = append(m.orders, o)
	return o
}

// Forget ends an acquisition without giving its permit back.
func (m *Machine) Forget(a *Acquisition) { m.forget(a) }

func (m *Machine) forget(a *Acquisition) {
	if a.claim != nil {
		m.end(a.claim)
	}
	a.state = Ended
}

// EachPermit calls f for every acquisition whose caller has a permit. f does not
// use the machine.
func (m *Machine) EachPermit(f func(*Acquisition)) {
	for _, c := range m.all {
		if c.issued() {
			f(c.holder)
		}
	}
}

// Renew renews a held permit now.
func (m *Machine) Renew(now time.Duration, o *Order, a *Acquisition) {
	o.claim = a.claim
	o.request = m.renewal(now, a.claim)
	m.orders = append(m.orders, o)
}

// Return gives back what is kept for callers that have not come yet. It reports
// whether that was anything; the order is then in the event that answers it.
func (m *Machine) Return(o *Order) bool {
	m.returnSpares()
	if len(m.kept) == 0 {
		return false
	}
	m.returnKept()
	last := &m.orders[len(m.orders)-1]
	o.request, o.owed = (*last).request, true
	*last = o
	return true
}

// Do carries out a request that is not about an acquisition of this machine.
func (m *Machine) Do(o *Order, r engine.Request) {
	o.request = r
	if m.closed {
		m.tell(Event{Kind: Answered, Order: o, Err: engine.ErrClosed})
		return
	}
	m.orders = append(m.orders, o)
	if r.Kind == engine.Release && m.Knows(r.ID) {
		m.doubt() // the engine tells nobody: the release is this client's own
	}
}

// Leave says that nobody waits for an order's answer any more. The release of an
// acquisition is repeated all the same, until it is answered; what else has not
// been sent is not sent any more. There may be no order.
func (m *Machine) Leave(o *Order) {
	if o != nil {
		o.told = true
	}
}

// giveBack has the engine forget what it may have of a claim. It is repeated
// until it is answered, however long that takes: a late copy of the ask may
// arrive until then. Of very many the eldest are left to their leases.
func (m *Machine) giveBack(c *claim) {
	if len(m.orders) >= maxOwed {
		m.orders = slices.Delete(m.orders, 0, maxOwed/10)
	}
	m.orders = append(m.orders, &Order{request: engine.Request{Kind: engine.Release, ID: c.id, Token: c.passed()}, owed: true, told: true})
}

// Overdue ends a held permit whose time is up, if that has not been done.
func (m *Machine) Overdue(now time.Duration, a *Acquisition) {
	if c := a.claim; c != nil && c.issued() && now >= c.valid {
		m.lose(c, m.overdueReason(c))
	}
}

func (m *Machine) overdueReason(c *claim) Reason {
	if m.cfg.MaxHold > 0 && c.valid >= c.began+m.cfg.MaxHold {
		return HeldTooLong
	}
	return NotRenewed
}

// Close ends all acquisitions that have no permit yet, gives back what is kept,
// and takes no further wishes. The permits are the owner's to release or forget.
func (m *Machine) Close() {
	m.closed = true
	for i := len(m.all) - 1; i >= 0; i-- { // backwards, because end moves the last one
		if c := m.all[i]; !c.issued() {
			if a := c.holder; a != nil {
				m.deny(a, Event{Reason: Closed})
			}
			m.drop(c)
		}
	}
	for m.line.first != nil {
		m.deny(m.line.first, Event{Reason: Closed})
	}
}

// Idle reports whether nothing is in flight or wants to be sent.
func (m *Machine) Idle() bool {
	return !m.flying && len(m.orders) == 0 && len(m.due) == 0 && len(m.fresh) == 0 && !m.short()
}

// Behind is how many callers wait without a ticket.
func (m *Machine) Behind() int {
	if m.next == nil {
		return 0
	}
	return m.line.length - m.paired()
}

// LastError is the error of the last call, if it failed.
func (m *Machine) LastError() error { return m.lastErr }

// Stored is the engine's limit as last seen, or 0.
func (m *Machine) Stored() int { return m.stored }

// limit is the engine's limit, as far as it is known.
func (m *Machine) limit() int {
	if m.stored > 0 {
		return m.stored
	}
	return m.cfg.Limit
}

// deny ends an acquisition without a permit. Its claim is the caller's to deal
// with.
func (m *Machine) deny(a *Acquisition, e Event) {
	m.leaveLine(a)
	if a.claim != nil {
		a.claim.holder, a.claim = nil, nil
	}
	a.state = Ended
	e.Kind, e.A = Denied, a
	m.tell(e)
}

// lose ends a permit that is not held any more.
func (m *Machine) lose(c *claim, why Reason) {
	a := c.holder
	if a == nil || a.state != Held { // it was kept
		m.drop(c)
		return
	}
	m.end(c)
	a.state = Ended
	m.tell(Event{Kind: Lost, A: a, Reason: why})
}
