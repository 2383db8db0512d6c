package client

import (
	"time"

	"sema/engine"
)

// This file has what a client does with permits without asking the engine. The
// idea is lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting", 2012): a lock
// of two levels, passed on within a process while no other process waits. That
// none waits the engine says with each reply, and takes back by a recall, as
// NFSv4 recalls delegations.

// passing reports whether this client's permits may pass from caller to caller.
// They may not if the permit's end is bound to its first caller.
func (c *Config) passing() bool { return !c.Detached && c.Renew > 0 && c.MaxHold == 0 }

// contact is for how long after a call permits are passed on: that bounds what
// a recall costs that never arrives.
func (m *Machine) contact() time.Duration { return m.cfg.Lease / 6 }

// mayLeave reports whether a released permit may stay with this client. One that
// another client made may not: what the engine has to say of it goes there.
func (m *Machine) mayLeave(now time.Duration, c *claim) bool {
	return m.leave != engine.GiveBack && now < m.leaveUntil && !m.closed && !c.resumed && m.asNew(c) &&
		(m.leave == engine.Keep || c.passes < m.cfg.Passes) && c.valid-now >= m.cfg.Lease/3
}

// asNew reports whether the engine would grant such a permit today: the limit may
// have changed since, to one below its slot, or to one that its caller refuses.
func (m *Machine) asNew(c *claim) bool {
	return c.slot < m.limit() && (!m.cfg.Strict || m.limit() == m.cfg.Limit)
}

// handOn passes a released permit to the oldest caller that waits, or keeps it
// for the next one.
func (m *Machine) handOn(now time.Duration, c *claim) bool {
	if !m.mayLeave(now, c) {
		return false
	}
	first := m.line.first
	switch {
	case first != nil && first.weight == c.id.Weight:
		if m.leave == engine.Keep {
			c.passes = 0
		} else {
			c.passes++
		}
		m.passOn(now, c, first)
	case first == nil && m.leave == engine.Keep && m.cfg.Keep > 0:
		c.holder, c.kept, c.keepUntil = nil, true, min(now+m.cfg.Keep, m.leaveUntil)
		m.kept = append(m.kept, c)
		m.schedule(c.keepUntil)
	default:
		return false
	}
	return true
}

// passOn gives a permit to another caller, with a new token: later than the one
// before, and never later than the engine's clock is by then.
func (m *Machine) passOn(now time.Duration, c *claim, a *Acquisition) {
	c.token = max(c.token+1, c.granted+(now-c.received).Microseconds())
	ticket := a.claim
	m.issue(now, a, c)
	if ticket != nil {
		m.free(now, ticket)
	}
	if !m.used {
		m.used = true
		m.schedule(m.leaveUntil - m.contact()/2)
	}
}

// takeKept passes a kept permit on, to a caller that has just come.
func (m *Machine) takeKept(now time.Duration, a *Acquisition) bool {
	for i := len(m.kept) - 1; i >= 0; i-- {
		c := m.kept[i]
		if c.id.Weight == a.weight && m.mayLeave(now, c) {
			m.unlist(c)
			m.passOn(now, c, a)
			return true
		}
	}
	return false
}

// settle finds out what becomes of a permit that no caller waits for.
func (m *Machine) settle(now time.Duration, c *claim) {
	if !m.handOn(now, c) {
		m.drop(c)
	}
}

// unlist takes a claim off the lists of what is kept and spared.
func (m *Machine) unlist(c *claim) {
	switch {
	case c.kept:
		m.kept, c.kept = without(m.kept, c), false
	case c.spare:
		m.spares, c.spare = without(m.spares, c), false
	}
}

func without(list []*claim, c *claim) []*claim {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == c {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}

// takeSpare is a ticket of this weight that is for nobody.
func (m *Machine) takeSpare(weight int) *claim {
	if m.mixed {
		return nil // it would pass those of another weight
	}
	for _, c := range m.spares {
		if c.id.Weight == weight {
			m.unlist(c)
			return c
		}
	}
	return nil
}

// allow takes in what may be done with released permits from now on.
func (m *Machine) allow(l engine.Leave, until time.Duration) {
	m.leave, m.leaveUntil = l, until
	if l != engine.Keep {
		m.returnKept()
		m.returnSpares()
	}
}

// returnKept gives back all permits that are kept for nobody.
func (m *Machine) returnKept() {
	for len(m.kept) > 0 {
		m.drop(m.kept[len(m.kept)-1])
	}
}

// returnSpares gives back all tickets that are for nobody.
func (m *Machine) returnSpares() {
	for len(m.spares) > 0 {
		m.drop(m.spares[len(m.spares)-1])
	}
}

// recall takes in that what the engine allowed is over. The reply to a call that
// is in flight may be older.
func (m *Machine) recall(r engine.Recall) {
	m.overruled = max(m.overruled, r)
	m.allow(overrule(m.leave, r), m.leaveUntil)
}

// doubt has all permits renewed, as one of them may be over. Until the engine has
// said which, none is passed on.
func (m *Machine) doubt() {
	m.recall(engine.RecallAll)
	for _, c := range m.all {
		if c.pending {
			c.again = true // the answer on its way may be older
		}
		if c.issued() {
			m.push(c)
		}
	}
}

func overrule(l engine.Leave, r engine.Recall) engine.Leave {
	switch r {
	case engine.RecallAll:
		return engine.GiveBack
	case engine.RecallKept:
		return min(l, engine.Pass)
	}
	return l
}

// expireKept gives back what was kept for long enough, and has the engine spoken
// to in time by who passes permits on.
func (m *Machine) expireKept(now time.Duration) {
	for i := len(m.kept) - 1; i >= 0; i-- {
		if c := m.kept[i]; now >= c.keepUntil {
			m.drop(c)
		} else {
			m.schedule(c.keepUntil)
		}
	}
	for i := len(m.spares) - 1; i >= 0; i-- {
		if c := m.spares[i]; now >= c.keepUntil {
			m.drop(c)
		} else {
			m.schedule(c.keepUntil)
		}
	}
	if !m.used || m.leave == engine.GiveBack {
		return
	}
	if soon := m.leaveUntil - m.contact()/2; now < soon {
		m.schedule(soon)
		return
	}
	m.used = false
	for _, c := range m.all {
		if c.issued() || c.kept {
			m.push(c) // renewing any permit will do
			return
		}
	}
}
