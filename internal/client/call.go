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
// What the engine does not know of the queue goes first, so that the right ones
// are granted what is released; then orders, so that the asks behind them find
// what they release; then what is renewed and asked for again, the eldest first;
// then new wishes.
func (m *Machine) Next(now time.Duration) (engine.Call, bool) {
	if m.flying || m.Idle() {
		return engine.Call{}, false
	}
	if now < m.paused {
		m.schedule(m.paused)
		return engine.Call{}, false
	}
	m.requests, m.items = m.requests[:0], m.items[:0]
	if m.moved && m.leave != engine.Keep {
		m.takeMoved(now)
	}
	m.takeOrders()
	m.takeDue(now)
	m.takeFresh(now)
	if len(m.requests) == 0 { // what nobody wants any more is to be released
		m.takeOrders()
	}
	if len(m.requests) == 0 {
		return engine.Call{}, false
	}
	m.tellBehind()
	m.calls++
	m.flying, m.sent, m.overruled = true, now, 0
	keep := m.wantsToKeep()
	m.wouldKeep = keep > 0
	return engine.Call{Number: m.calls, Fence: m.fence, Keep: keep, Requests: m.requests}, true
}

// tellBehind says with the last ticket of the line how many callers are behind it.
func (m *Machine) tellBehind() {
	for i, it := range m.items {
		if it.claim != nil && m.next != nil && it.claim.holder != nil && it.claim.holder.waiting && it.claim.holder.later == m.next {
			m.requests[i].Behind = m.Behind()
		}
	}
}

// wantsToKeep is for how long permits would be passed on, or kept. It costs the
// engine something, which a caller that is alone has nothing of.
func (m *Machine) wantsToKeep() time.Duration {
	wants := m.cfg.Keep > 0 || m.line.length > 1 || m.line.length == 1 && m.line.first.state == Waiting
	if wants && m.cfg.passing() && !m.closed && len(m.all) > 0 {
		return m.contact()
	}
	return 0
}

func (m *Machine) request(it item, r engine.Request) {
	m.items = append(m.items, it)
	m.requests = append(m.requests, r)
}

// takeMoved asks again for the tickets that are for other callers than the engine
// knows of: others wait, and their order counts.
func (m *Machine) takeMoved(now time.Duration) {
	m.moved = false
	for _, c := range m.all {
		switch {
		case !c.moved || c.state == Held || c.holder == nil:
		case c.pending || c.state == Asking || len(m.items) >= maxRequests/2:
			m.moved = true // another time
		default:
			c.pending = true
			m.request(item{claim: c}, m.askFor(now, c))
		}
	}
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
	slices.SortFunc(m.due, func(a, b *claim) int { return cmp.Compare(a.cameAt(), b.cameAt()) })
	n := 0
	for ; n < len(m.due) && len(m.items) < maxRequests; n++ {
		switch c := m.due[n]; {
		case c.state == Held:
			m.request(item{claim: c}, m.renewal(now, c))
		case c.state == Waiting && c.holder != nil, c.state == Asking && c.holder != nil:
			m.request(item{claim: c}, m.askFor(now, c))
			c.due = never
		default:
			c.pending = false // it has ended, or is spare
		}
	}
	m.due = slices.Delete(m.due, 0, n)
}

// cameAt is when the caller of a claim came.
func (c *claim) cameAt() time.Duration {
	if c.holder == nil {
		return c.began
	}
	return c.holder.came
}

// short reports whether callers in line should have tickets by now. A client
// has as many as could be granted before its next call, twice the limit; it
// asks for more when half of them are gone, or when it calls anyway.
func (m *Machine) short() bool { return m.next != nil && m.tickets <= m.limit() }

func (m *Machine) takeFresh(now time.Duration) {
	more := m.next != nil && (len(m.requests) > 0 || len(m.fresh) > 0 || m.short())
	n := 0
	for len(m.items) < maxRequests {
		var c *claim
		switch {
		case n < len(m.fresh) && (!more || m.next == nil || m.fresh[n].cameAt() <= m.next.came):
			c = m.fresh[n]
			n++
		case more && m.next != nil && m.tickets < 2*m.limit():
			c = m.claim(m.next)
			m.findNext()
		case more:
			more = false
			continue
		}
		if c == nil {
			break
		}
		if c.state != Asking {
			continue
		}
		if c.holder == nil {
			m.drop(c)
			continue
		}
		if m.cfg.Declare && !m.declared && !m.declares() {
			m.request(item{order: &m.declaring}, engine.Request{Kind: engine.SetLimit, Limit: m.cfg.Limit})
		}
		c.pending = true
		m.request(item{claim: c}, m.askFor(now, c))
	}
	m.fresh = slices.Delete(m.fresh, 0, n)
}

// declares reports whether the call at hand stores the limit already.
func (m *Machine) declares() bool {
	return slices.ContainsFunc(m.items, func(it item) bool { return it.order == &m.declaring })
}

func (m *Machine) askFor(now time.Duration, c *claim) engine.Request {
	lease, a := m.lease(), c.holder
	r := engine.Request{
		Kind: engine.Ask, ID: c.id, Limit: m.cfg.Limit, Lease: lease, Ticket: min(m.ticketLife(), lease), Waited: max(0, now-a.came),
		Wait: a.wait, Unfair: m.cfg.Unfair, Strict: m.cfg.Strict, Detached: m.cfg.Detached, Anew: c.moved, Again: c.state == Waiting || m.deaf,
	}
	c.moved = false
	return r
}

// lease is what is asked for.
func (m *Machine) lease() time.Duration {
	if m.cfg.MaxHold > 0 {
		return min(m.cfg.Lease, m.cfg.MaxHold+m.cfg.Margin)
	}
	return m.cfg.Lease
}

// paired is how many callers in line have claims.
func (m *Machine) paired() (n int) {
	for a := m.line.first; a != m.next; a = a.later {
		n++
	}
	return n
}

func (m *Machine) renewal(now time.Duration, c *claim) engine.Request {
	lease := m.lease()
	if m.cfg.MaxHold > 0 && c.issued() {
		lease = max(time.Millisecond, min(m.cfg.Lease, c.began+m.cfg.MaxHold+m.cfg.Margin-now))
	}
	return engine.Request{Kind: engine.Renew, ID: c.id, Lease: lease, Token: c.passed()}
}

// ticketLife is how long a waiter that fell silent keeps its place, and the
// first lease of a permit that is handed over. It is two thirds of a lease: a
// grant that nobody received does not lie for a whole one, and a holder that
// got one has time for two renewals that fail.
func (m *Machine) ticketLife() time.Duration { return m.cfg.Lease * 2 / 3 }

// askEvery is how often a waiter asks again.
func (m *Machine) askEvery() time.Duration { return m.cfg.Lease / asksPerLease }
