package client

import (
	"cmp"
	"slices"
	"time"

	"sema/engine"
)

// Next returns the next call to be sent, if nothing is in flight and there is
// anything to send. The call is the engine's until Answer or Failed.
//
// Orders go first, so that the asks behind them find what they release; then
// what is renewed and asked for again, the eldest first; then new wishes.
func (m *Machine) Next(now time.Duration) (engine.Call, bool) {
	if m.flying || now < m.paused {
		if !m.flying && !m.Idle() {
			m.schedule(m.paused)
		}
		return engine.Call{}, false
	}
	m.requests, m.items = m.requests[:0], m.items[:0]
	m.takeOrders()
	m.takeDue(now)
	m.takeFresh(now)
	if len(m.requests) == 0 {
		return engine.Call{}, false
	}
	m.calls++
	m.flying, m.sent = true, now
	return engine.Call{Number: m.calls, Fence: m.fence, Requests: m.requests}, true
}

func (m *Machine) request(it item, r engine.Request) {
	m.items = append(m.items, it)
	m.requests = append(m.requests, r)
}

func (m *Machine) takeOrders() {
	n := 0
	for ; n < len(m.orders) && len(m.items) < maxRequests; n++ {
		if o := m.orders[n]; !o.told || o.owed {
			m.request(item{order: o}, o.request)
		}
	}
	m.orders = slices.Delete(m.orders, 0, n)
}

func (m *Machine) takeDue(now time.Duration) {
	// Should the engine have forgotten the tickets, they join again in order.
	slices.SortFunc(m.due, func(a, b *Acquisition) int { return cmp.Compare(a.came, b.came) })
	n := 0
	for ; n < len(m.due) && len(m.items) < maxRequests; n++ {
		switch a := m.due[n]; a.state {
		case Held:
			m.request(item{a: a}, m.renewal(now, a))
		case Waiting:
			m.request(item{a: a}, m.askFor(now, a))
		default:
			a.pending = false // it has ended
		}
	}
	m.due = slices.Delete(m.due, 0, n)
}

func (m *Machine) takeFresh(now time.Duration) {
	if m.cfg.Declare && !m.declared && len(m.fresh) > 0 {
		m.request(item{order: &m.declaring}, engine.Request{Kind: engine.SetLimit, Limit: m.cfg.Limit})
	}
	n := 0
	for ; n < len(m.fresh) && len(m.items) < maxRequests; n++ {
		if a := m.fresh[n]; a.state == Asking {
			a.pending = true
			if a.place == 0 {
				m.place = max(a.came, m.place+time.Microsecond)
				a.place = m.place
			}
			m.request(item{a: a}, m.askFor(now, a))
		}
	}
	m.fresh = slices.Delete(m.fresh, 0, n)
}

func (m *Machine) askFor(now time.Duration, a *Acquisition) engine.Request {
	lease := m.cfg.Lease
	if m.cfg.MaxHold > 0 {
		lease = min(lease, m.cfg.MaxHold+m.cfg.Margin)
	}
	return engine.Request{
		Kind: engine.Ask, ID: a.id, Limit: m.cfg.Limit, Lease: lease, Ticket: min(m.ticketLife(), lease), Waited: now - a.place,
		Wait: a.wait, Unfair: m.cfg.Unfair, Strict: m.cfg.Strict, Detached: m.cfg.Detached,
	}
}

func (m *Machine) renewal(now time.Duration, a *Acquisition) engine.Request {
	lease := m.cfg.Lease
	switch {
	case m.cfg.MaxHold > 0 && a.issued:
		lease = max(time.Millisecond, min(lease, a.began+m.cfg.MaxHold+m.cfg.Margin-now))
	case m.cfg.MaxHold > 0:
		lease = min(lease, m.cfg.MaxHold+m.cfg.Margin)
	}
	return engine.Request{Kind: engine.Renew, ID: a.id, Lease: lease}
}

// ticketLife is how long a waiter that fell silent keeps its place, and the
// first lease of a permit that is handed over. It is two thirds of a lease: a
// grant that nobody received does not lie for a whole one, and a holder that
// got one has time for two renewals that fail.
func (m *Machine) ticketLife() time.Duration { return m.cfg.Lease * 2 / 3 }

// askEvery is how often a waiter asks again.
func (m *Machine) askEvery() time.Duration { return m.cfg.Lease / asksPerLease }
