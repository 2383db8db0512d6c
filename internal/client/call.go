package client

import (
	"cmp"
	"slices"
	"time"

	"sema/internal/protocol"
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
	requests []protocol.Request
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
func (m *Machine) Next(now time.Duration) (protocol.Call, bool) {
	f := &m.sender.flight
	if f.flying || m.sender.idle() {
		return protocol.Call{}, false
	}
	if now < m.sender.outage.paused {
		m.schedule(m.sender.outage.paused)
		return protocol.Call{}, false
	}
	f.requests, f.items, f.asks = f.requests[:0], f.items[:0], 0
	if m.claims.moved && !m.keeping.may {
		m.sender.takeMoved(now)
	}
	m.sender.takeOrders(now)
	m.sender.takeDue(now)
	m.sender.takeFresh(now)
	if len(f.requests) == 0 { // dropping claims that nobody wants has queued their releases
		m.sender.takeOrders(now)
	}
	if len(f.requests) == 0 {
		return protocol.Call{}, false
	}
	f.inOrder()
	m.sender.tellBehind(now)
	f.number++
	f.flying, f.sent, m.keeping.overruled = true, now, false
	keep := m.keeping.wantsToKeep()
	f.keeps = keep > 0
	if slices.ContainsFunc(f.items, item.awaited) {
		m.schedule(max(m.sender.silentSince()+quiet, now+maxPause)) // see overdue
	}
	return protocol.Call{Number: f.number, Fence: f.fence, Keep: keep, Requests: f.requests}, true
}

// inOrder puts the asks of a call behind its other requests, in the order in which their callers came. The
// engine carries out one request after the other, and each ask lets it grant to all who came before that one.
func (f *flight) inOrder() {
	came := func(i int) time.Duration {
		if r := &f.requests[i]; r.Kind == protocol.Ask {
			return r.Waited
		}
		return never
	}
	for i := 1; i < len(f.requests) && f.asks > 1; i++ {
		for j := i; j > 0 && came(j) > came(j-1); j-- {
			f.requests[j], f.requests[j-1] = f.requests[j-1], f.requests[j]
			f.items[j], f.items[j-1] = f.items[j-1], f.items[j]
		}
	}
}

// tellBehind says how many callers of each line wait without a ticket. One ticket of
// the line carries the number, and the others carry 0: their sum is right in any order. Where
// tickets last, that ticket is asked for once a lease only: so it goes along with any call.
func (s *sender) tellBehind(now time.Duration) {
	if s.cfg.Lasting {
		for _, l := range s.lines.busy() {
			if c := l.teller; l.tells() && c.stage == queued && c.holder != nil && !c.pending && l.told != l.behind() && !s.full() {
				c.pending = true
				s.request(item{claim: c}, s.askFor(now, c))
			}
		}
	}
	for i, it := range slices.Backward(s.flight.items) {
		if it.claim == nil || !it.claim.lined() {
			continue
		}
		l := s.lines.of(it.claim.target)
		if !l.tells() {
			l.teller = it.claim
		}
		if l.teller == it.claim {
			l.told = l.behind()
			s.flight.requests[i].Behind = l.told
		}
	}
}

func (s *sender) request(it item, r protocol.Request) {
	s.flight.items = append(s.flight.items, it)
	s.flight.requests = append(s.flight.requests, r)
	if r.Kind == protocol.Ask {
		s.flight.asks++
	}
}

// full reports whether the call has no room for more.
func (s *sender) full() bool {
	return len(s.flight.items) >= maxRequests || s.flight.asks >= maxAsks
}

// takeMoved asks again for the tickets that are for other callers than the engine
// knows of: others wait, and their order counts.
func (s *sender) takeMoved(now time.Duration) {
	for c := range s.claims.takeMoved(maxAsks/2 - s.flight.asks) {
		s.request(item{claim: c}, s.askFor(now, c))
	}
}

func (s *sender) takeOrders(now time.Duration) {
	n := 0
	for ; n < len(s.orders) && !s.full(); n++ {
		if o := s.orders[n]; (!o.told || o.owed) && !s.obsolete(now, o) {
			r := o.request()
			if o.cools() {
				r.Lease -= now - o.came
			}
			s.request(item{order: o}, r)
		}
	}
	s.orders = slices.Delete(s.orders, 0, n)
}

func (s *sender) takeDue(now time.Duration) {
	if s.full() {
		return
	}
	for c := range s.claims.takeDue() {
		switch {
		case c.stage == unproven || c.stage == held:
			s.request(item{claim: c}, s.renewal(now, c))
		case c.stage <= queued && c.holder != nil:
			s.request(item{claim: c}, s.askFor(now, c))
			c.due = never
		default:
			c.pending = false // it has ended, or is spare
		}
		if s.full() {
			return
		}
	}
}

func (s *sender) takeFresh(now time.Duration) {
	if s.full() {
		return
	}
	for c := range s.claims.takeFresh(len(s.flight.requests) > 0) {
		switch {
		case c.stage != wished:
		case c.holder == nil:
			s.drop(c)
		default:
			c.pending = true
			s.request(item{claim: c}, s.askFor(now, c))
		}
		if s.full() {
			return
		}
	}
}

// askFor is the next ask for a claim.
func (s *sender) askFor(now time.Duration, c *claim) protocol.Request {
	lease, a := s.lease(c), c.holder
	r := protocol.Request{
		Kind: protocol.Ask, ID: c.id, Target: c.target, Limit: s.terms(c).Limit, Caps: s.terms(c).Caps, Pools: s.terms(c).Pools, Lease: lease, Ticket: s.ticketLife(c), Waited: max(0, now-a.since()),
		Wait: a.wait, Unfair: s.cfg.Unfair, Newest: s.cfg.Newest && !s.said, Strict: s.cfg.Strict, Observe: s.terms(c).Observe, Detached: s.cfg.Detached, Anew: c.moved, Again: c.stage == queued || s.unreachable,
	}
	if c.named() {
		// An ask that is not the first leaves the ticket to a session that was asked later.
		r.Who, r.Again = &c.wish.Who, c.stage == queued || c.unsure
	}
	if !c.named() && (c.label != "" || c.labelled) {
		who := s.cfg.Self
		who.Label = cmp.Or(c.label, who.Label)
		r.Who, c.labelled = &who, true
	}
	if c.stage == wished && !c.unsure {
		c.sent = now
	}
	c.moved = false
	return r
}
