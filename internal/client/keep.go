package client

import (
	"time"

	"sema/engine"
)

// This file has what a client may do with permits without asking the engine. The
// idea is lock cohorting (Dice, Marathe, Shavit: "Lock Cohorting", 2012): a lock
// of two levels, passed on within a process while no other process waits. The
// engine says with each reply whether any waits, and takes that back by a recall,
// as NFSv4 recalls delegations.

// cohort is what the callers of this client may do among themselves.
type cohort struct {
	leave     engine.Leave  // what may be done with released permits without a call
	until     time.Duration // so long
	overruled engine.Recall // came while the call in flight was on its way
	room      bool          // callers of other keys wait for weight of their own key
	used      bool          // permits were passed on since the last call
	idle      []*claim      // permits and tickets for the next callers
}

// leaveKeep is engine.Keep, beside Config.Keep.
const leaveKeep = engine.Keep

// passing reports whether this client's permits may pass from caller to caller.
// They may not if the permit's end is bound to its first caller.
func (c *Config) passing() bool { return !c.Detached && c.Renew > 0 && c.MaxHold == 0 }

// mayLeave reports whether a released permit may stay with this client. One that
// another client made may not: what the engine has to say of it goes there.
func (m *Machine) mayLeave(now time.Duration, c *claim) bool {
	return m.cohort.leave != engine.GiveBack && now < m.cohort.until && !m.closed && !c.resumed && m.asNew(c) &&
		(m.cohort.leave == leaveKeep || c.passes < m.cfg.Passes) && c.valid-now >= m.cfg.Lease/3
}

// asNew reports whether the current limit still allows this slot, and this caller.
func (m *Machine) asNew(c *claim) bool {
	return c.slot < m.limit() && (!m.cfg.Strict || m.limit() == m.cfg.Limit)
}

// putAside keeps a claim for the next caller.
func (m *Machine) putAside(c *claim, until time.Duration) {
	c.holder, c.keepUntil = nil, until
	m.cohort.idle = append(m.cohort.idle, c)
	m.schedule(until)
}

// unlist takes a claim off the list of what is put aside.
func (m *Machine) unlist(c *claim) {
	if c.holder != nil {
		return
	}
	list := m.cohort.idle
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == c {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			m.cohort.idle = list[:len(list)-1]
			return
		}
	}
}

// spares is how many tickets of a key are put aside.
func (m *Machine) spares(key string) (n int) {
	for _, c := range m.cohort.idle {
		if c.key == key && isTicket(c) {
			n++
		}
	}
	return n
}

// returnIdle gives back what is put aside, of those that which picks.
func (m *Machine) returnIdle(which func(*claim) bool) {
	for i := len(m.cohort.idle) - 1; i >= 0; i-- {
		if c := m.cohort.idle[i]; which(c) {
			m.drop(c)
		}
	}
}

// allow takes in what may be done with released permits from now on.
func (m *Machine) allow(l engine.Leave, until time.Duration) {
	m.cohort.leave, m.cohort.until = l, until
	if l != leaveKeep {
		m.returnIdle(isPermit)
		m.returnIdle(isTicket)
	}
}

// recall takes in that what the engine allowed is over. The reply to a call that
// is in flight may be older.
func (m *Machine) recall(r engine.Recall) {
	m.cohort.overruled = max(m.cohort.overruled, r)
	m.allow(overrule(m.cohort.leave, r), m.cohort.until)
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

// doubt has all permits renewed, as one of them may be over. Until the engine has
// said which, none is passed on. A permit that its caller renews is left to the
// caller.
func (m *Machine) doubt() {
	m.recall(engine.RecallAll)
	for _, c := range m.all {
		if c.who != nil && c.terms.Renew == 0 {
			continue
		}
		if c.pending {
			c.again = true // the answer on its way may be older
		}
		if c.issued() {
			m.push(c)
		}
	}
}

// expireIdle gives back what was put aside for long enough, and has a client that
// passes permits on speak to the engine in time.
func (m *Machine) expireIdle(now time.Duration) {
	for i := len(m.cohort.idle) - 1; i >= 0; i-- {
		if c := m.cohort.idle[i]; now >= c.keepUntil {
			m.drop(c)
		} else {
			m.schedule(c.keepUntil)
		}
	}
	if !m.cohort.used || m.cohort.leave == engine.GiveBack {
		return
	}
	if soon := m.cohort.until - m.contact()/2; now < soon {
		m.schedule(soon)
		return
	}
	m.cohort.used = false
	for _, c := range m.all {
		if c.stage == held {
			m.push(c) // renewing any permit will do
			return
		}
	}
}
