package client

import (
	"slices"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// This file decides what becomes of a released permit without asking the engine. The
// idea is lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting", 2012): a lock
// of two levels, passed on within a process while no other process waits. The
// engine says with each reply whether any waits, and takes that back by a recall,
// as NFSv4 recalls delegations.

// keeping is what the callers of this client may do among themselves.
type keeping struct {
	*shared
	lines  *lines
	claims *claims
	sender *sender

	may       bool          // released permits may stay here without a call
	until     time.Duration // so long
	overruled bool          // a recall came while the call in flight was on its way
	room      bool          // callers of other keys wait for weight of their own key
	used      bool          // permits were passed on since the last call
	soonUntil time.Duration // a caller that comes until then has come soon after a release
}

// passing reports whether this client's permits may pass from caller to caller.
// They may not if the permit's end is bound to its first caller.
func (c *Config) passing() bool { return !c.Detached && c.Renew > 0 && c.MaxHold == 0 }

// mayLeave reports whether a released permit may stay with this client. One that
// another client made may not: what the engine has to say of it goes there.
func (k *keeping) mayLeave(now time.Duration, c *claim) bool {
	return k.may && now < k.until && !k.closed && !c.resumed && !c.oldCaps && (c.target.Takes == "" || !k.rated(c.target.Takes)) && k.asNew(c) && c.valid-now >= k.cfg.Lease/3
}

// rated reports whether a rate is taken: the engine has to count each permit.
func (k *keeping) rated(takes engine.Pools) bool {
	for pool := range takes.All() {
		if k.pools.Amount(pool).Per > 0 {
			return true
		}
	}
	return false
}

// asNew reports whether the current limit and caps still allow this slot, and this caller. They do not allow a permit that would have
// waited.
func (k *keeping) asNew(c *claim) bool {
	return int(c.slot) < k.limit() && c.slot != protocol.WouldWait && (!k.cfg.Strict || k.limit() == k.cfg.Limit && k.caps == k.cfg.Caps && k.pools == k.cfg.Pools)
}

// Keeps reports whether released permits may stay here for now, for callers that come.
func (m *Machine) Keeps() bool { return m.keeping.may }

// allow takes in whether released permits may stay here from now on.
func (k *keeping) allow(may bool, until time.Duration) {
	if k.may && !may { // others wait now: the engine needs to know the caller of each ticket
		k.claims.correctMoved()
	}
	k.may, k.until = may, until
	if !may {
		k.sender.returnIdle(isPermit)
		k.sender.returnIdle(isTicket)
	}
}

// recall takes in that what the engine allowed is over. The reply to a call that
// is in flight may be older.
func (k *keeping) recall() {
	k.overruled = true
	k.allow(false, k.until)
}

// doubt renews all permits, as one of them may be over. Until the engine has said which, none is passed on.
func (k *keeping) doubt() {
	k.recall()
	k.claims.renewAll()
}

// expireIdle gives back what was put aside for long enough, and has a client that
// passes permits on speak to the engine in time.
func (k *keeping) expireIdle(now time.Duration) {
	k.sender.returnIdle(func(c *claim) bool {
		if now < c.keepUntil {
			k.schedule(c.keepUntil)
		}
		return now >= c.keepUntil
	})
	if !k.used || !k.may {
		return
	}
	if soon := k.until - k.contact()/2; now < soon {
		k.schedule(soon)
		return
	}
	k.used = false
	k.claims.renewAny()
}

// wantsToKeep is for how long permits would be passed on, or kept. Asking costs
// the engine a write. A lone caller gains nothing from it, and neither do callers that take a rate.
func (k *keeping) wantsToKeep() time.Duration {
	if !k.closed && k.cfg.passing() && k.claims.any() && (k.cfg.Keep > 0 || slices.ContainsFunc(k.lines.busy(), k.gains)) {
		return k.contact()
	}
	return 0
}

// gains reports whether permits could be passed on to callers of a line that waits.
func (k *keeping) gains(l *line) bool {
	return (l.length > 1 || l.first.state == Waiting) && !k.rated(l.target.Takes)
}

// handOn passes a released permit to the oldest caller of its target that waits, or
// keeps it for the next one. While callers of other targets wait here, it keeps no permit. It
// passes one on then only if each of those callers is blocked by the cap of a key that this permit does not count for. A caller of
// its own key may wait for just this release. It keeps a permit only if the permit's caller came
// within Config.Keep of a release. A program that acquires once, and ends without Close, therefore keeps none.
func (m *Machine) handOn(now time.Duration, c *claim) bool {
	if !m.keeping.mayLeave(now, c) {
		return false
	}
	first, others := m.lines.of(c.target).first, len(m.lines.busy())
	if first != nil {
		others--
	}
	if others > 0 && (first == nil || !m.keeping.room || m.lines.waitBeside(c.target)) {
		return false
	}
	switch {
	case first != nil && first.weight == c.id.Weight && first.Label == c.label:
		m.passOn(now, c, first)
	case first == nil && c.holder != nil && c.holder.soon:
		m.claims.putAside(c, min(now+m.cfg.Keep, m.keeping.until))
	default:
		return false
	}
	return true
}

// passOn gives a permit to another caller, with a new token: later than the one
// before, and never later than the engine's clock is by then.
func (m *Machine) passOn(now time.Duration, c *claim, a *Acquisition) {
	c.last = max(c.last+1, c.token+(now-c.received).Microseconds())
	ticket := a.claim
	m.issue(now, a, c)
	if ticket != nil {
		m.free(now, ticket)
	}
	if !m.keeping.used {
		m.keeping.used = true
		m.schedule(m.keeping.until - m.contact()/2)
	}
}

// takeKept passes a kept permit on, to a caller that has just come.
func (m *Machine) takeKept(now time.Duration, a *Acquisition) bool {
	for _, c := range slices.Backward(m.claims.forNobody()) {
		if isPermit(c) && c.target == a.Target && c.label == a.Label && c.id.Weight == a.weight && m.keeping.mayLeave(now, c) {
			m.claims.unlist(c)
			m.passOn(now, c, a)
			return true
		}
	}
	return false
}
