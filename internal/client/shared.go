package client

import (
	"time"

	"sema/engine"
)

// never is later than everything.
const never = time.Duration(1<<63 - 1)

// shared is what all parts of a machine know.
type shared struct {
	cfg     Config
	stored  int           // the engine's limit as last seen; 0: not seen yet
	watched bool          // the limit is only watched, as the engine last said
	caps    engine.Caps   // the engine's caps of keys, seen with it
	pools   engine.Pools  // the engine's pools, seen with it
	closed  bool          // by Close, or by the engine
	wake    time.Duration // when Tick is to be called
	events  []Event       // since the last call of Events
}

// terms are what a claim is asked for with.
func (h *shared) terms(c *claim) *Terms {
	if c.named() {
		return &c.wish.Terms
	}
	return &h.cfg.Terms
}

// lease is what is asked for.
func (h *shared) lease(c *claim) time.Duration {
	if h.cfg.MaxHold > 0 {
		return min(h.terms(c).Lease, h.cfg.MaxHold+h.terms(c).Margin)
	}
	return h.terms(c).Lease
}

// brief reports whether a lease is shorter than the one asked for: the rest of an older
// lease. Engines count microseconds.
func (h *shared) brief(c *claim, lease time.Duration) bool {
	return lease < h.lease(c).Truncate(time.Microsecond)
}

// validUntil sets until when a permit may be trusted.
func (h *shared) validUntil(c *claim, t time.Duration) {
	if h.cfg.MaxHold > 0 {
		t = min(t, c.began+h.cfg.MaxHold)
	}
	c.valid = t
}

// waits is the lease that a wait goes by.
func (h *shared) waits(c *claim) time.Duration {
	return min(h.terms(c).Lease, max(h.lease(c), shortWait))
}

// ticketLife is how long a waiter that fell silent keeps its place, and the
// first lease of a permit that is handed over. It is two thirds of a lease: a
// grant that nobody received does not lie for a whole one, and a holder that
// got one has time for two renewals that fail.
func (h *shared) ticketLife(c *claim) time.Duration {
	life := h.waits(c) * 2 / 3
	if c.named() {
		return min(life, namedTicket)
	}
	return life
}

// askEvery is how often a waiter asks again: so that two asks of a ticket's life may
// fail.
func (h *shared) askEvery(c *claim) time.Duration {
	every := h.waits(c) / asksPerLease
	if c.named() {
		return min(every, namedTicket/3)
	}
	return every
}

// contact is for how long after a call permits are passed on.
func (h *shared) contact() time.Duration { return h.cfg.Lease / contactsPerLease }

// Wake is when Tick is to be called. Nothing is wrong with calling it earlier
// or later, but for what is then late.
func (h *shared) Wake() (at time.Duration, ok bool) {
	return h.wake, h.wake != never
}

func (h *shared) schedule(t time.Duration) { h.wake = min(h.wake, t) }

// Events returns what happened since the last call of it. The slice is valid
// until the machine is used again.
func (h *shared) Events() []Event {
	events := h.events
	h.events = h.events[:0]
	return events
}

func (h *shared) tell(e Event) { h.events = append(h.events, e) }

func (h *shared) overdueReason(c *claim) Reason {
	if h.lastsItsHold(c) {
		return HeldTooLong
	}
	return NotRenewed
}

// lastsItsHold reports whether a permit is valid for as long as it may be held. Engines
// count microseconds, so what a renewal gives may be less by a part of one.
func (h *shared) lastsItsHold(c *claim) bool {
	return h.cfg.MaxHold > 0 && c.valid > c.began+h.cfg.MaxHold-time.Microsecond
}

// Stored is the engine's limit as last seen, or 0.
func (h *shared) Stored() int { return h.stored }

// Watched reports whether the limit is only watched, as the engine last said.
func (h *shared) Watched() bool { return h.stored > 0 && h.watched }

// Pools are the engine's pools, seen with it.
func (h *shared) Pools() engine.Pools { return h.pools }

// limit is the engine's limit, as far as it is known.
func (h *shared) limit() int {
	if h.stored > 0 {
		return h.stored
	}
	return h.cfg.Limit
}
