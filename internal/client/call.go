package client

import (
	"cmp"
	"slices"
	"time"

	"sema/engine"
)

// maxRequests bounds a call, and so how long it keeps the engine from others. An ask takes the
// engine longer than a renewal or a release.
const (
	maxRequests = 500
	maxAsks     = 200
)

// flight is the call that is on its way, and what the next ones need to know of
// those before.
type flight struct {
	number   uint64 // of the last call
	flying   bool
	sent     time.Duration
	requests []engine.Request
	items    []item // what each request is about
	asks     int    // how many of them ask
	keeps    bool   // it asked what may be kept
	fence    bool   // the outcome of an earlier call is not known
}

// item is what a request of a call is about: an order, or a claim.
type item struct {
	order *Order
	claim *claim
}

// awaited reports whether a caller waits for the answer, and for nothing else.
func (it item) awaited() bool {
	if it.order != nil {
		return !it.order.told
	}
	return it.claim.holder != nil && it.claim.holder.state == Asking
}

// Next returns the next call to be sent, if nothing is in flight and there is
// anything to send. The call is the engine's until Answer or Failed.
//
// What the engine does not know of the queue goes first, so that the right ones
// are granted what is released; then orders, so that the asks behind them find
// what they release; then what is renewed and asked for again, the eldest first;
// then new wishes.
func (m *Machine) Next(now time.Duration) (engine.Call, bool) {
	f := &m.flight
	if f.flying || m.Idle() {
		return engine.Call{}, false
	}
	if now < m.outage.paused {
		m.schedule(m.outage.paused)
		return engine.Call{}, false
	}
	f.requests, f.items, f.asks = f.requests[:0], f.items[:0], 0
	if m.lines.moved && m.cohort.leave != leaveKeep {
		m.takeMoved(now)
	}
	m.takeOrders()
	m.takeDue(now)
	m.takeFresh(now)
	if len(f.requests) == 0 { // dropping claims that nobody wants has queued their releases
		m.takeOrders()
	}
	if len(f.requests) == 0 {
		return engine.Call{}, false
	}
	m.tellBehind(now)
	f.number++
	f.flying, f.sent, m.cohort.overruled = true, now, 0
	keep := m.wantsToKeep()
	f.keeps = keep > 0
	if slices.ContainsFunc(f.items, item.awaited) {
		m.schedule(max(m.silentSince()+patience, now+maxPause)) // see overdue
	}
	return engine.Call{Number: f.number, Fence: f.fence, Keep: keep, Requests: f.requests}, true
}

// tellBehind says how many callers of each line wait without a ticket. One ticket of
// the line has that number as long as it is one, and the others none: so whoever reads
// them adds them up, whatever their order. Where tickets are not asked for again and again, that ticket goes
// along with any call.
func (m *Machine) tellBehind(now time.Duration) {
	if m.cfg.Lasting {
		for _, l := range m.lines.lists[busy] {
			if c := l.teller; l.tells() && c.stage == queued && c.holder != nil && !c.pending && l.told != l.behind() && !m.full() {
				c.pending = true
				m.request(item{claim: c}, m.askFor(now, c))
			}
		}
	}
	for i, it := range slices.Backward(m.flight.items) {
		if it.claim == nil || !it.claim.lined() {
			continue
		}
		l := m.lines.of(it.claim.key)
		if !l.tells() {
			l.teller = it.claim
		}
		if l.teller == it.claim {
			l.told = l.behind()
			m.flight.requests[i].Behind = l.told
		}
	}
}

// wantsToKeep is for how long permits would be passed on, or kept. Asking costs
// the engine a write. A lone caller gains nothing from it.
func (m *Machine) wantsToKeep() time.Duration {
	wants := m.cfg.Keep > 0
	for _, l := range m.lines.lists[busy] {
		wants = wants || l.length > 1 || l.first.state == Waiting
		if wants {
			break
		}
	}
	if wants && m.cfg.passing() && !m.closed && len(m.all) > 0 {
		return m.contact()
	}
	return 0
}

func (m *Machine) request(it item, r engine.Request) {
	m.flight.items = append(m.flight.items, it)
	m.flight.requests = append(m.flight.requests, r)
	if r.Kind == engine.Ask {
		m.flight.asks++
	}
}

// full reports whether the call has no room for more.
func (m *Machine) full() bool {
	return len(m.flight.items) >= maxRequests || m.flight.asks >= maxAsks
}

// takeMoved asks again for the tickets that are for other callers than the engine
// knows of: others wait, and their order counts.
func (m *Machine) takeMoved(now time.Duration) {
	m.lines.moved = false
	for _, c := range m.all {
		switch {
		case !c.moved || c.stage > queued || c.holder == nil:
		case c.stage == wished || m.flight.asks >= maxAsks/2:
			m.lines.moved = true // another time
		default:
			if c.pending {
				m.due = slices.DeleteFunc(m.due, func(d *claim) bool { return d == c })
			}
			c.pending = true
			m.request(item{claim: c}, m.askFor(now, c))
		}
	}
}

func (m *Machine) takeOrders() {
	n := 0
	for ; n < len(m.orders) && !m.full(); n++ {
		if o := m.orders[n]; (!o.told || o.owed) && !m.obsolete(o) {
			m.request(item{order: o}, o.request())
		}
	}
	m.orders = slices.Delete(m.orders, 0, n)
}

func (m *Machine) takeDue(now time.Duration) {
	// Should the engine have forgotten the tickets, they join again in order.
	slices.SortFunc(m.due, func(a, b *claim) int { return cmp.Compare(a.since(), b.since()) })
	n := 0
	for ; n < len(m.due) && !m.full(); n++ {
		switch c := m.due[n]; {
		case c.stage == unproven || c.stage == held:
			m.request(item{claim: c}, m.renewal(now, c))
		case c.stage <= queued && c.holder != nil:
			m.request(item{claim: c}, m.askFor(now, c))
			c.due = never
		default:
			c.pending = false // it has ended, or is spare
		}
	}
	m.due = slices.Delete(m.due, 0, n)
}

func (m *Machine) takeFresh(now time.Duration) {
	more := len(m.flight.requests) > 0 || len(m.fresh) > 0 || m.fewTickets()
	n := 0
	for !m.full() {
		var c *claim
		var next *Acquisition
		if more {
			next = m.nextWithout()
		}
		switch {
		case n < len(m.fresh) && (next == nil || m.fresh[n].since() <= next.since()):
			c = m.fresh[n]
			n++
		case next != nil:
			c = m.claim(next)
			m.lines.findNext(m.lines.of(next.Key))
		}
		if c == nil {
			break
		}
		if c.stage != wished {
			continue
		}
		if c.holder == nil {
			m.drop(c)
			continue
		}
		c.pending = true
		m.request(item{claim: c}, m.askFor(now, c))
	}
	m.fresh = slices.Delete(m.fresh, 0, n)
}

// askFor is the next ask for a claim.
func (m *Machine) askFor(now time.Duration, c *claim) engine.Request {
	lease, a := m.lease(c), c.holder
	r := engine.Request{
		Kind: engine.Ask, ID: c.id, Key: c.key, Limit: c.terms.Limit, PerKey: c.terms.PerKey, Lease: lease, Ticket: m.ticketLife(c), Waited: max(0, now-a.since()),
		Wait: a.wait, Unfair: m.cfg.Unfair, Newest: m.cfg.Newest && !m.said, Strict: m.cfg.Strict, Detached: m.cfg.Detached, Anew: c.moved, Again: c.stage == queued || m.unreachable,
	}
	if c.who != nil {
		// An ask that is not the first leaves the ticket to a session that was asked later.
		r.Who, r.Again = c.who, c.stage == queued || c.unsure
	}
	if c.who == nil && (c.label != "" || c.labelled) {
		who := m.cfg.Self
		who.Label = cmp.Or(c.label, who.Label)
		r.Who, c.labelled = &who, true
	}
	if !c.unsure {
		c.asked = now
	}
	c.moved = false
	return r
}

// renewal is the next renewal of a claim.
func (m *Machine) renewal(now time.Duration, c *claim) engine.Request {
	lease := m.lease(c)
	if m.cfg.MaxHold > 0 && c.issued() {
		lease = max(time.Millisecond, min(c.terms.Lease, c.began+m.cfg.MaxHold+c.terms.Margin-now))
	}
	return engine.Request{Kind: engine.Renew, ID: c.id, Lease: lease, Token: c.passed(), Mine: c.found && c.stage == unproven}
}

// lease is what is asked for.
func (m *Machine) lease(c *claim) time.Duration {
	if m.cfg.MaxHold > 0 {
		return min(c.terms.Lease, m.cfg.MaxHold+c.terms.Margin)
	}
	return c.terms.Lease
}
