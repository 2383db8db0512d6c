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

	// patience is how long a request that never succeeded is repeated.
	patience = 3 * time.Second

	// The pause after a failed call, which doubles with each further one.
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond

	// maxOwed bounds what is owed to an engine that is out of reach.
	maxOwed = 100_000

	// maxRequests bounds a call, and so how long it keeps the engine from
	// others.
	maxRequests = 500
)

// Machine is one process's side of one semaphore.
type Machine struct {
	cfg    Config
	number uint64                     // of the last permit
	all    []*Acquisition             // that have not ended
	byID   map[engine.ID]*Acquisition // the same
	came   time.Duration              // when the last caller came
	place  time.Duration              // the last place in the queue that may have been given away
	stored int                        // the engine's limit as last seen; 0: not seen yet
	closed bool                       // by Close, or by the engine
	wake   time.Duration              // when Tick is to be called
	events []Event                    // since the last call of Events

	// What waits to be sent.
	orders []*Order
	due    []*Acquisition // to be renewed, or asked for again
	fresh  []*Acquisition // never asked for, in the order they came

	// The call in flight.
	calls    uint64 // the number of the last call
	flying   bool
	sent     time.Duration
	requests []engine.Request
	items    []item // what each request is about
	fence    bool   // the outcome of an earlier call is not known

	declaring Order // stores the limit
	declared  bool  // it has been

	failures int           // in a row
	failing  time.Duration // when the first of them left
	paused   time.Duration // nothing is sent before
	lastErr  error         // of the last call, if it failed

	recheck     time.Duration // when to ask again because a lease ends
	recheckAsOf time.Duration // how old that word is
}

// item is what a request of a call is about: an order, or an acquisition.
type item struct {
	order *Order
	a     *Acquisition
}

// New makes a machine that knows nothing yet.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, byID: map[engine.ID]*Acquisition{}, wake: never, recheck: never}
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
	if m.closed {
		m.tell(Event{Kind: Denied, A: a, Reason: Closed})
		a.state = Ended
		return
	}
	m.came = max(now, m.came+time.Microsecond) // distinct, for the engine's order
	a.came, a.wait, a.ahead, a.slot = m.came, wait, -1, -1
	a.id.Weight = weight
	m.ask(a)
	m.fresh = append(m.fresh, a)
}

// ask gives an acquisition a new id to ask for.
func (m *Machine) ask(a *Acquisition) {
	m.number++
	a.id = engine.ID{Client: m.cfg.Client, Number: m.number, Weight: a.id.Weight, Slot: m.cfg.Slots}
	a.state, a.due, a.ticket, a.since, a.short = Asking, never, 0, 0, false
	m.add(a)
}

// Resume takes up a permit that exists.
func (m *Machine) Resume(now time.Duration, a *Acquisition, id engine.ID) {
	if m.closed {
		m.tell(Event{Kind: Denied, A: a, Reason: Closed})
		a.state = Ended
		return
	}
	*a = Acquisition{Owner: a.Owner, id: id, state: Held, resumed: true, came: now, granted: now, began: now, due: never, slot: -1, ahead: -1}
	m.add(a)
	m.push(a)
}

// Find is the acquisition of an id, if it has not ended.
func (m *Machine) Find(id engine.ID) *Acquisition { return m.byID[id] }

// Cancel ends an acquisition whose caller does not want it any more, before it
// has the permit.
func (m *Machine) Cancel(now time.Duration, a *Acquisition) {
	if a.state == Ended || a.issued {
		return
	}
	touched := a.touched()
	m.end(a)
	if touched {
		m.giveBack(a.id)
	}
}

// touched reports whether the engine may have something of an acquisition.
func (a *Acquisition) touched() bool {
	return a.state == Waiting || a.state == Held || a.pending || a.since != 0
}

// Release gives back the permit of an acquisition that was granted; also one
// that is lost. The order is in the event that answers it.
func (m *Machine) Release(now time.Duration, a *Acquisition) *Order {
	if a.state == Held && now >= a.valid {
		m.lose(a, NotRenewed)
	}
	m.end(a)
	o := &a.release
	o.request, o.owed = engine.Request{Kind: engine.Release, ID: a.id}, true
	m.orders = append(m.orders, o)
	return o
}

// Forget ends an acquisition without giving its permit back.
func (m *Machine) Forget(a *Acquisition) { m.end(a) }

// EachPermit calls f for every acquisition whose caller has a permit. f does not
// use the machine.
func (m *Machine) EachPermit(f func(*Acquisition)) {
	for _, a := range m.all {
		if a.issued {
			f(a)
		}
	}
}

// Renew renews a held permit now.
func (m *Machine) Renew(now time.Duration, o *Order, a *Acquisition) {
	o.a = a
	o.request = m.renewal(now, a)
	m.orders = append(m.orders, o)
}

// Do carries out a request that is not about an acquisition of this machine.
func (m *Machine) Do(o *Order, r engine.Request) {
	o.request = r
	if m.closed {
		m.tell(Event{Kind: Answered, Order: o, Err: engine.ErrClosed})
		return
	}
	m.orders = append(m.orders, o)
}

// Leave says that nobody waits for an order's answer any more. The release of an
// acquisition is repeated all the same, until it is answered; what else has not
// been sent is not sent any more.
func (m *Machine) Leave(o *Order) { o.told = true }

// giveBack has the engine forget what it may have of an id. It is repeated until
// it is answered, however long that takes: a late copy of the ask may arrive
// until then. Of very many the eldest are left to their leases.
func (m *Machine) giveBack(id engine.ID) {
	if len(m.orders) >= maxOwed {
		m.orders = slices.Delete(m.orders, 0, maxOwed/10)
	}
	m.orders = append(m.orders, &Order{request: engine.Request{Kind: engine.Release, ID: id}, owed: true, told: true})
}

// Overdue ends a held permit whose time is up, if that has not been done.
func (m *Machine) Overdue(now time.Duration, a *Acquisition) {
	if a.state == Held && a.issued && now >= a.valid {
		m.lose(a, m.overdueReason(a))
	}
}

func (m *Machine) overdueReason(a *Acquisition) Reason {
	if m.cfg.MaxHold > 0 && a.valid >= a.began+m.cfg.MaxHold {
		return HeldTooLong
	}
	return NotRenewed
}

// Close ends all acquisitions that have no permit yet, and takes no further
// ones. The permits are the owner's to release or forget.
func (m *Machine) Close(now time.Duration) {
	m.closed = true
	for i := len(m.all) - 1; i >= 0; i-- { // backwards, because end moves the last one
		if a := m.all[i]; !a.issued {
			m.deny(now, a, Event{Reason: Closed}, a.touched())
		}
	}
}

// Idle reports whether nothing is in flight or wants to be sent.
func (m *Machine) Idle() bool {
	return !m.flying && len(m.orders) == 0 && len(m.due) == 0 && len(m.fresh) == 0
}

// LastError is the error of the last call, if it failed.
func (m *Machine) LastError() error { return m.lastErr }

// Stored is the engine's limit as last seen, or 0.
func (m *Machine) Stored() int { return m.stored }

func (m *Machine) add(a *Acquisition) {
	a.index = len(m.all)
	m.all = append(m.all, a)
	m.byID[a.id] = a
}

// end takes an acquisition out of the machine.
func (m *Machine) end(a *Acquisition) {
	if a.state == Ended {
		return
	}
	a.state = Ended
	delete(m.byID, a.id)
	last := m.all[len(m.all)-1]
	m.all[a.index], last.index = last, a.index
	m.all[len(m.all)-1] = nil
	m.all = m.all[:len(m.all)-1]
}

// deny ends an acquisition without a permit. held says that the engine may have
// something of it.
func (m *Machine) deny(now time.Duration, a *Acquisition, e Event, held bool) {
	m.end(a)
	if held {
		m.giveBack(a.id)
	}
	e.Kind, e.A = Denied, a
	m.tell(e)
}

// lose ends a permit that is not held any more.
func (m *Machine) lose(a *Acquisition, why Reason) {
	m.end(a)
	m.tell(Event{Kind: Lost, A: a, Reason: why})
}

// push has an acquisition renewed, or asked for again, with the next call.
func (m *Machine) push(a *Acquisition) {
	if !a.pending {
		a.pending = true
		m.due = append(m.due, a)
	}
}
