// Package client is what one process knows and owes about one semaphore, as a
// pure state machine: no clock, no lock, no goroutine, no I/O. It is the twin
// of internal/ledger, which is the other side.
//
// Time, answers, notifications and what callers want come in. Calls for the
// engine, events for callers, and the next time to look come out. Whoever owns
// a Machine carries its calls (internal/loop does, and the simulator):
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
// There is a file for each thing: the callers' acquisitions (acquisition.go), what the
// engine has for them (claim.go), the callers in line (line.go), early refusals (pace.go),
// the assignment of permits (assign.go), permits that stay in the process (keep.go).
// Calls have requests that are about nobody here (order.go), the call in flight (call.go,
// answer.go), calls that fail (outage.go). Then there are time (time.go) and what tests look
// at (audit.go).
package client

import (
	"slices"
	"time"

	"sema/engine"
)

// Terms are what permits are asked for with.
type Terms struct {
	Limit  int // stored if the engine has none
	PerKey int // the most weight that a key may hold, stored with Limit; 0: no such cap
	Lease  time.Duration
	Renew  time.Duration // how often a permit is renewed; 0: never
	Margin time.Duration
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

	MaxWaiting int // so many callers of a key wait; 0: as many as come

	Keep   time.Duration // how long a released permit is kept for the next caller
	Passes int           // how often in a row a permit is passed on although other clients wait

	// Base is when the machine's time began, by the monotonic clock. It is
	// needed with Lasting only.
	Base time.Time

	// Lasting says that the engine keeps a ticket as long as its process lives,
	// so that it need not be asked for again and again.
	Lasting bool
}

// never is later than everything.
const never = time.Duration(1<<63 - 1)

// Machine is one process's side of one semaphore.
type Machine struct {
	cfg    Config
	number uint64               // of the last claim
	all    []*claim             // that have not ended
	byID   map[engine.ID]*claim // those of them that a caller named, or resumed

	// byNumber are the others, by the part of their ids that tells them apart.
	byNumber map[uint64]*claim

	stored      int           // the engine's limit as last seen; 0: not seen yet
	perKey      int           // the engine's cap of keys, seen with it
	unreachable bool          // the engine cannot notify this client, as it last said
	closed      bool          // by Close, or by the engine
	came        time.Duration // when the last caller came
	events      []Event       // since the last call of Events

	lines  lines
	cohort cohort

	// What waits to be sent.
	orders []*Order
	due    []*claim // to be renewed, or asked for again
	fresh  []*claim // that have had no answer, in the order their callers came
	said   bool     // the engine has had the limit, see Config.Newest

	flight  flight
	outage  outage
	recheck recheck
	wake    time.Duration // when Tick is to be called
}

// New makes a machine that knows nothing yet.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, byID: map[engine.ID]*claim{}, byNumber: map[uint64]*claim{}, wake: never, recheck: recheck{at: never}}
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
	m.begin(now, a, weight, wait)
	switch first := m.lines.of(a.Key).first; {
	case m.closed:
		m.deny(a, Event{Reason: Closed})
	case (first == nil || m.cfg.Unfair) && m.takeKept(now, a):
	case wait && !m.cfg.Unfair && first != nil && first.state == Waiting && m.refuseNext(now, a):
	case wait:
		m.returnIdle(isPermit) // somebody needs the weight, and not in these portions
		m.join(a)
	case first != nil && first.state == Waiting && !m.cfg.Unfair:
		m.returnIdle(isPermit)
		m.deny(a, Event{Reason: Refused}) // somebody waits
	default:
		m.returnIdle(isPermit)
		m.returnIdle(isTicket) // or they would be what is in its way
		m.fresh = append(m.fresh, m.claim(a))
	}
}

// AcquireAs is Acquire for a caller that names its permit. The claim stays the
// caller's: it is not in line here, and its ticket and permit pass to nobody. The
// machine has nothing under the id (see Knows); what it still owed the engine under
// it is not owed any more. w is the caller's, and stays as it is until the
// acquisition has ended; only its Lease may change, for the next renewal.
func (m *Machine) AcquireAs(now time.Duration, a *Acquisition, w *Wish) {
	m.begin(now, a, w.ID.Weight, w.Wait)
	if m.closed {
		m.deny(a, Event{Reason: Closed})
		return
	}
	c := &claim{id: w.ID, key: w.Key, stage: wished, terms: &w.Terms, who: &w.Who, once: !w.Wait, due: never, slot: -1}
	m.pair(a, c)
	m.add(c)
	m.fresh = append(m.fresh, c)
}

// begin makes an acquisition one whose caller has just come.
func (m *Machine) begin(now time.Duration, a *Acquisition, weight int, wait bool) {
	a.weight, a.wait, a.ahead, a.slot, a.state = weight, wait, -1, -1, Asking
	m.came = max(now, m.came+1) // distinct
	a.came = m.came
	m.expect(now)
}

// Resume takes up a permit that exists.
func (m *Machine) Resume(now time.Duration, a *Acquisition, id engine.ID) {
	m.resume(now, a, &claim{id: id, terms: &m.cfg.Terms})
}

// ResumeAs is Resume for a caller that names its permit; see AcquireAs.
func (m *Machine) ResumeAs(now time.Duration, a *Acquisition, w *Wish) {
	m.resume(now, a, &claim{id: w.ID, terms: &w.Terms, who: &w.Who})
}

func (m *Machine) resume(now time.Duration, a *Acquisition, c *claim) {
	*a = Acquisition{Owner: a.Owner, id: c.id, state: Asking, weight: c.id.Weight, resumed: true, came: now, granted: now, slot: -1, ahead: -1}
	if m.closed {
		m.deny(a, Event{Reason: Closed})
		return
	}
	c.stage, c.once, c.resumed, c.began, c.due, c.slot = unproven, true, true, now, never, -1
	m.pair(a, c)
	m.add(c)
	m.push(c)
}

// Knows reports whether the machine has something under an id.
func (m *Machine) Knows(id engine.ID) bool { return m.find(id) != nil }

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

// Drop ends an acquisition of AcquireAs, held or not, whose caller has not heard of
// a permit and never will. What the engine has of it is given back, unless another
// session has asked for it since.
func (m *Machine) Drop(now time.Duration, a *Acquisition) {
	if c := a.claim; a.state == Held && c != nil {
		a.state = Ended
		m.drop(c)
		return
	}
	m.Cancel(now, a)
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
	o := &Order{giveBack: giveBack{id: a.id}, came: now, owed: true, known: true}
	if c != nil {
		o.token = c.released()
	}
	m.Forget(a)
	m.orders = append(m.orders, o)
	return o
}

// Forget ends an acquisition without giving its permit back.
func (m *Machine) Forget(a *Acquisition) {
	if a.claim != nil {
		m.end(a.claim)
	}
	a.state = Ended
}

// Part ends an acquisition of AcquireAs whose caller asks another server for it. What the
// engine has of it stays there: also a ticket that the call in flight brings.
func (m *Machine) Part(a *Acquisition) {
	if a.claim != nil {
		a.claim.parted = true
	}
	m.Forget(a)
}

// Unused reports whether no caller waits, or has a permit.
func (m *Machine) Unused() bool {
	return len(m.lines.lists[busy]) == 0 && !slices.ContainsFunc(m.all, func(c *claim) bool { return c.holder != nil })
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
	o.claim, o.came = a.claim, now
	r := m.renewal(now, a.claim)
	o.other = &r
	m.orders = append(m.orders, o)
}

// Overdue ends a held permit whose time is up, if that has not been done.
func (m *Machine) Overdue(now time.Duration, a *Acquisition) {
	if c := a.claim; c != nil && c.issued() && now >= c.valid {
		m.lose(c, m.overdueReason(c))
	}
}

func (m *Machine) overdueReason(c *claim) Reason {
	if m.lastsItsHold(c) {
		return HeldTooLong
	}
	return NotRenewed
}

// lastsItsHold reports whether a permit is valid for as long as it may be held. Engines
// count microseconds, so what a renewal gives may be less by a part of one.
func (m *Machine) lastsItsHold(c *claim) bool {
	return m.cfg.MaxHold > 0 && c.valid > c.began+m.cfg.MaxHold-time.Microsecond
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
	m.denyLines(Event{Reason: Closed})
}

// engineClosed ends everything: nothing can be renewed or granted any more.
func (m *Machine) engineClosed() {
	m.closed = true
	for len(m.all) > 0 {
		c := m.all[len(m.all)-1]
		switch a := c.holder; {
		case c.issued():
			m.lose(c, Closed)
			continue
		case a != nil:
			m.deny(a, Event{Reason: Closed})
		}
		m.end(c)
	}
	m.denyLines(Event{Reason: Closed})
}

// Idle reports whether nothing is in flight or wants to be sent.
func (m *Machine) Idle() bool {
	return !m.flight.flying && len(m.orders) == 0 && len(m.due) == 0 && len(m.fresh) == 0 && !m.fewTickets()
}

// Drained reports whether the owner of a closed machine need not wait any longer: all has
// been sent, or the engine is away and nothing is left that it is known to have.
func (m *Machine) Drained(now time.Duration) bool {
	return m.Idle() || m.away(now) && !slices.ContainsFunc(m.orders, (*Order).matters) &&
		!slices.ContainsFunc(m.flight.items, func(it item) bool { return it.order != nil && it.order.matters() })
}

// GiveUp leaves to the leases what a closed machine still owes. Owners of orders that have no
// answer are told so.
func (m *Machine) GiveUp() {
	end := func(o *Order) {
		if o != nil {
			o.owed = false
			m.answer(o, Event{Err: m.failure()})
		}
	}
	for _, it := range m.flight.items {
		end(it.order)
	}
	for _, o := range m.orders {
		end(o)
	}
	m.orders = nil
}

// LastError is the error of the last call, if it failed.
func (m *Machine) LastError() error { return m.outage.err }

// Stored is the engine's limit as last seen, or 0.
func (m *Machine) Stored() int { return m.stored }

// limit is the engine's limit, as far as it is known.
func (m *Machine) limit() int {
	if m.stored > 0 {
		return m.stored
	}
	return m.cfg.Limit
}

// deny ends an acquisition without a permit. Its claim is for the function that
// calls deny to deal with.
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
	if a == nil { // it was kept
		m.drop(c)
		return
	}
	m.end(c)
	a.state = Ended
	m.tell(Event{Kind: Lost, A: a, Reason: why})
}
