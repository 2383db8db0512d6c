package client

import (
	"slices"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// maxOwed bounds what is owed to an engine that is out of reach.
const maxOwed = 100_000

// Order is a request whose answer somebody wants: a release, a renewal now, an
// operator's word.
type Order struct {
	Owner any

	giveBack // what to release, unless it is something else
	other    *protocol.Request
	claim    *claim        // of a renewal
	came     time.Duration // when it was given
	owed     bool          // it is repeated until it is answered
	unsure   bool          // an attempt failed with unknown outcome
	told     bool          // its owner has the answer, or does not want it
}

// giveBack is what a release says. Most orders are releases, and a request has room for much
// more.
type giveBack struct {
	id    engine.ID
	token int64
	mine  bool
}

// releases reports whether an order is one to release something, and what.
func (o *Order) releases() (b giveBack, ok bool) {
	if r := o.other; r != nil {
		return giveBack{r.ID, r.Token, r.Mine}, r.Kind == protocol.Release
	}
	return o.giveBack, true
}

// request is what is sent.
func (o *Order) request() protocol.Request {
	if o.other != nil {
		return *o.other
	}
	return protocol.Request{Kind: protocol.Release, ID: o.id, Token: o.token, Mine: o.mine}
}

// Unsure reports whether an attempt had no answer, and may have been carried out.
func (o *Order) Unsure() bool { return o.unsure }

// Do carries out a request that is not about an acquisition of this machine.
func (m *Machine) Do(now time.Duration, o *Order, r protocol.Request) {
	o.other, o.came = &r, now
	m.sender.expect(now)
	m.sender.orders = append(m.sender.orders, o)
	if r.Kind == protocol.Release && m.Knows(r.ID) {
		m.keeping.doubt() // the engine notifies other clients of a release, and this one not of its own
	}
}

// Cool asks for a cooldown: the engine grants nobody a permit for d from now on. Until it has that, no permit that is released
// here is passed on or kept either. who says so.
func (m *Machine) Cool(now, d time.Duration, who *engine.Client) {
	m.keeping.recall()
	s := &m.sender
	if i := slices.IndexFunc(s.orders, (*Order).cools); i >= 0 { // many may hear of it at once
		o := s.orders[i]
		o.other.Lease = max(o.other.Lease, now+d-o.came)
		return
	}
	s.orders = append(s.orders, &Order{other: &protocol.Request{Kind: protocol.Cooldown, Who: who, Lease: d}, came: now, owed: true, told: true})
}

// cools reports whether an order asks for a cooldown, which counts from when it was given.
func (o *Order) cools() bool { return o.other != nil && o.other.Kind == protocol.Cooldown }

// Uses says how much of rates was used by the work that a release ends. The order may be nil.
func (o *Order) Uses(used engine.Pools) {
	if o != nil && used != "" {
		r := o.request()
		r.Pools, o.other = used, &r
	}
}

// Abandon says that nobody waits for an order's answer any more. The release of an
// acquisition is repeated all the same, until it is answered. Any other order is dropped if it
// still waits to be sent. The order may be nil.
func (o *Order) Abandon() {
	if o != nil {
		o.told = true
	}
}

// giveBack releases at the engine what it may have of a claim. The release is repeated
// until it is answered, however long that takes: a late copy of the ask may
// arrive until then. Of very many the eldest are left to their leases.
func (s *sender) giveBack(c *claim) {
	if len(s.orders) >= maxOwed {
		s.orders = slices.Delete(s.orders, 0, maxOwed/10)
	}
	b := giveBack{id: c.id, token: c.releaseToken(), mine: c.id.Client != s.cfg.Client && !c.resumed}
	s.orders = append(s.orders, &Order{giveBack: b, owed: true, told: true})
}

// matters reports whether somebody waits for an order's answer, or for what it may give back.
func (o *Order) matters() bool { return !o.told || o.owed }

// obsolete reports whether a cooldown has ended, or a release that nobody waits for would take away what a
// caller has asked for again since, under the same id.
func (s *sender) obsolete(now time.Duration, o *Order) bool {
	b, releases := o.releases()
	return o.cools() && now >= o.came+o.other.Lease || o.told && releases && s.claims.find(b.id) != nil
}

// orderAnswered takes in the answer to an order.
func (m *Machine) orderAnswered(now time.Duration, o *Order, answer protocol.Answer) {
	if o.claim != nil {
		m.renewed(now, o.claim, answer)
	}
	// A release, a removal or a revocation that was sent twice and found nothing the second time
	// did its work the first time. Of a permit that its caller named there may be
	// another grant, which the owner has to look for.
	if o.unsure && answer.Status == protocol.Gone {
		b, releases := o.releases()
		if releases && (b.id.Client == m.cfg.Client || b.token == 0) || o.other != nil && (o.other.Kind == protocol.Remove || o.other.Kind == protocol.Revoke) {
			answer.Status = protocol.Done
		}
	}
	m.sender.answer(o, Event{Answer: answer})
}

// answer tells the owner of an order what came of it, once.
func (s *sender) answer(o *Order, e Event) {
	if !o.told {
		o.told = true
		e.Kind, e.Order = Answered, o
		s.tell(e)
	}
}
