package ledger

import (
	"sema/engine"
	"sema/internal/protocol"
)

// asking is an ask between its steps. The entry becomes its permit or its ticket.
type asking struct {
	entry
	r     *protocol.Request
	now   int64
	place int64 // when its caller came, by the engine's clock
	early bool  // its caller came before the ticket's
}

// ask grants, queues or refuses.
//
// First it refuses an ask that contradicts itself or its permit: a bad first ask makes no semaphore. Then it looks for the
// permit: a repeated ask gets its permit again, whatever the limit is now. Only then may limits refuse the ask.
//
// Then it serves the tickets ahead of the ask, because an earlier request of the same call may have freed what they wait
// for. It leaves the tickets behind the ask to the end of the step, because a later request of the call may be ahead of
// them. So grant runs twice in a step: here up to the place of the ask, at the end for everybody.
//
// An ask that finds nobody ahead is granted at once. Its class keeps its place among the classes, because it has passed nobody. A
// ticket's class goes behind the others when the ticket is served, see served.
func (l *Ledger) ask(now int64, who *engine.Client, r *protocol.Request) protocol.Answer {
	if no := l.contradiction(r); no.Status != 0 {
		return no
	}
	a := &asking{entry: entry{id: r.ID, detached: r.Detached}, r: r, now: now, place: now - r.Waited.Microseconds()}
	l.open(now, r)
	a.owner, a.early = l.claim(now, who, r)
	if h := l.holder(now, r.ID); h != nil && l.handed[r.ID] == "" {
		if h.revoked {
			return protocol.Answer{Status: protocol.Revoked}
		}
		return h.answer(now)
	}
	if t := l.tickets[r.ID]; t != nil && t.revoked {
		return protocol.Answer{Status: protocol.Revoked}
	}
	if r.Strict && l.observed == nil && (r.Limit != l.limit || r.Caps != l.keys.caps || r.Pools != l.keys.amounts) {
		l.drop(r.ID)
		return protocol.Answer{Status: protocol.LimitDiffers}
	}
	a.demand = l.demandOf(r)
	if no := l.impossible(&a.demand); no.Status != 0 {
		return l.refuse(a, no)
	}
	backfills := l.serveAhead(a)
	if h := l.holder(now, r.ID); h != nil {
		return l.collect(a, h)
	}
	a.demand = l.demandOf(r) // its key may have been forgotten, with its last ticket
	switch {
	case l.fits(&a.demand) && (r.Unfair || backfills || l.noneAhead(a)):
		return l.admit(a)
	case !r.Wait:
		return l.refuse(a, protocol.Answer{Status: protocol.Refused, Used: l.used})
	case l.tickets[r.ID] == nil && l.keys.tooMany(a.set):
		return l.refuse(a, protocol.Answer{Status: protocol.TooMany})
	}
	return l.wait(a)
}

// contradiction is the answer to an ask that is too heavy for the limits that it brings, or that names another key than
// its permit has; its status is 0 if there is none.
func (l *Ledger) contradiction(r *protocol.Request) (a protocol.Answer) {
	e := l.entry(r.ID)
	switch {
	case e != nil && r.Who != nil && e.target() != r.Target:
		return protocol.Answer{Status: protocol.InUse}
	case e != nil || r.Observe || !l.setsLimits(r):
		return a
	case r.ID.Weight > r.Limit:
		return protocol.Answer{Status: protocol.TooHeavy, Bound: r.Limit}
	}
	if at, amount := tooSmall(r.Takes, r.Pools.Of); at > 0 {
		return protocol.Answer{Status: protocol.TooHeavy, Bound: amount, Pool: at}
	}
	return a
}

// setsLimits reports whether an ask says what limit, caps and pools there are from now on.
func (l *Ledger) setsLimits(r *protocol.Request) bool { return l.limit == 0 || r.Newest && !l.pinned }

// open makes sure the semaphore exists, with the limit that the first user gives, or the newest.
func (l *Ledger) open(now int64, r *protocol.Request) {
	if l.setsLimits(r) {
		differs := l.limit != r.Limit || l.keys.caps != r.Caps || l.keys.amounts != r.Pools
		l.limited = l.limited || l.limit != r.Limit
		l.limit = r.Limit
		l.observe(r.Observe, differs)
		l.setCaps(r.Caps)
		l.setPools(r.Pools)
	}
	if l.holders == nil {
		l.holders, l.tickets, l.slots = map[engine.ID]*holder{}, map[engine.ID]*ticket{}, map[int]*holder{}
	}
	l.remember(now, r.Lease)
	if r.Target != (protocol.Target{}) {
		l.nameKeys()
	}
}

// serveAhead serves the tickets ahead of an ask: up to its place, all if it does not wait. It reports whether the
// ask then fits beside their reservations.
func (l *Ledger) serveAhead(a *asking) (backfills bool) {
	l.dropSilent(a.now, a.set)
	upTo := int64(last)
	if a.r.Wait {
		upTo = a.place
	}
	l.grant(a.now, upTo)
	backfills = l.backfills(&a.demand)
	l.endRound()
	return backfills
}

// collect answers with the permit that the ask's own ticket has become in this step.
func (l *Ledger) collect(a *asking, h *holder) protocol.Answer {
	l.forgetUnused(a.key) // the request may name another key than its ticket had
	l.untell(a.r.ID)
	l.extend(h, a.now+a.r.Lease.Microseconds())
	l.giveTo(a, &h.owner, true)
	return h.answer(a.now)
}

// admit grants an ask at once. Its class is not charged for it, and keeps its order.
func (l *Ledger) admit(a *asking) protocol.Answer {
	if t := l.tickets[a.r.ID]; t != nil {
		l.pop(t)
	}
	l.giveTo(a, &a.owner, false)
	a.end = a.now + a.r.Lease.Microseconds()
	h := l.take(a.now, a.entry)
	l.reschedule(a.key.leaf())
	return h.answer(a.now)
}

// giveTo has a named permit belong to the session that asks, unless its ask is older than the ticket.
func (l *Ledger) giveTo(a *asking, o *owner, permit bool) {
	if a.r.Who != nil && !a.early {
		l.give(o, l.caller, permit)
	}
}

// refuse ends the ticket of an ask.
func (l *Ledger) refuse(a *asking, no protocol.Answer) protocol.Answer {
	l.drop(a.r.ID)
	l.forgetUnused(a.key)
	return no
}

// wait queues an ask, or notes in its ticket that it was repeated.
func (l *Ledger) wait(a *asking) protocol.Answer {
	r, t := a.r, l.tickets[a.r.ID]
	if t == nil {
		t = &ticket{entry: a.entry, place: a.place, insist: r.Again}
		l.enqueue(t)
	} else if a.place < t.place || r.Anew { // a call that took less time knows better
		l.pop(t)
		t.place = a.place
		l.enqueue(t)
	}
	// A client that asks again is alive: its ticket is granted in turn even if it
	// cannot be notified, and it finds out when it asks next.
	t.insist = t.insist || r.Again && !l.hears(l.caller)
	t.behind = r.Behind
	t.end, t.lease = a.now+r.Ticket.Microseconds(), 0
	if r.Ticket == 0 {
		t.lease = r.Lease.Microseconds()
	}
	l.reschedule(t.key.leaf()) // it may be the head of all now: then the step's end serves it
	return protocol.Answer{Status: protocol.Queued, Ahead: position(t.class().queue, t), Ticket: t.end}
}
