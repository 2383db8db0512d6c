package simulate

import (
	"sema/engine"
	"sema/internal/client"
)

// This file judges what callers are told: of grants, of losses, and for how long they may trust a permit.

// tokens looks at the token of a permit that a caller gets, perhaps from another
// caller.
func (k *checker) tokens(c *caller) {
	w, id := k.w, c.Acquisition.ID()
	if w.back > 0 {
		return // what was given out and not reported may be ahead of the server's clock
	}
	if w.server.ledger.Limit != 1 || w.limits > 0 || w.limit != 1 {
		k.used = 1 << 62
	}
	if k.used != 1<<62 {
		if c.token <= k.used && w.now >= k.doubt {
			w.fail("token: %v has %d after %d", id, c.token, k.used)
		}
		k.used = max(k.used, c.token)
	}
	if slot := c.Slot(); slot >= 0 {
		if c.token <= k.bySlot[slot] && w.now >= k.doubt {
			w.fail("token: slot %d has %d after %d", slot, c.token, k.bySlot[slot])
		}
		k.bySlot[slot] = max(k.bySlot[slot], c.token)
	}
	if ahead := c.token - w.server.now(); ahead > 1000 && w.now > k.doubt && !w.hurried {
		w.fail("token: %v has one that is %v ahead of the server's clock", id, micros(ahead))
	}
}

// looked looks at a permit whose process has just compared it with its clock.
func (k *checker) looked(c *caller) {
	if c.Valid() <= c.n.clock() {
		k.w.fail("loss: %v is held, and its time is up", c.Acquisition.ID())
	}
}

// granted looks at a permit that a caller gets.
func (k *checker) granted(c *caller) {
	k.trust(c)
	k.held()
	if t := k.w.server.ledger.TargetOf(c.Acquisition.ID()); t != c.Target && k.w.now >= k.doubt && k.w.classes() {
		k.w.fail("share: %v is one of %v, and goes to a caller of %v", c.Acquisition.ID(), t, c.Target)
	}
	k.tokens(c)
	k.within(c)
	if k.given[c.Acquisition.ID()] != c.token {
		k.passed(c)
	}
	k.overtaken(c)
	delete(c.n.coming, c.Acquisition.ID())
	if c.over {
		k.w.fail("once: %v was granted after its end", c.Acquisition.ID())
	}
}

// trust checks that a client trusts its permit no longer than the server's
// lease lasts.
func (k *checker) trust(c *caller) {
	w := k.w
	if w.now < k.doubt {
		return
	}
	valid := c.n.truly(c.Valid())
	if c.Valid() <= c.n.clock() {
		w.fail("loss: %v is given to its caller after its time", c.Acquisition.ID())
	}
	end, ok := w.server.ledger.LeaseEnd(c.Acquisition.ID())
	if truly := end - w.server.now() + w.now; !ok || truly < valid {
		w.fail("loss: %v is trusted until %v, and its lease ends at %v (%v)", c.Acquisition.ID(), micros(valid), micros(truly), ok)
	}
}

// held adds up the weight that clients trust, by their own clocks.
func (k *checker) held() {
	w, sum := k.w, 0
	taken := map[string]int{}
	count := func(weight int, takes engine.Pools) {
		sum += weight
		for pool, n := range takes.All() {
			if w.pools.Amount(pool).Per == 0 {
				taken[pool] += n
			}
		}
	}
	if w.now < k.doubt {
		return
	}
	slots := map[int]bool{}
	for _, n := range w.nodes {
		for _, c := range n.callers {
			if !c.held || n.truly(c.Valid()) <= w.now {
				continue
			}
			count(c.weight, c.Takes)
			if s := c.Slot(); s >= 0 {
				if slots[s] {
					w.fail("slot: %d is held twice", s)
				}
				slots[s] = true
			}
		}
	}
	for _, u := range w.users {
		if u.holds && !u.gives && u.until > w.now {
			count(u.weight, u.target.Takes)
		}
	}
	if sum > k.allowed {
		w.fail("limit: %d is held, allowed %d", sum, k.allowed)
	}
	for pool, n := range taken {
		if n > k.byPool[pool] && k.allowed < 1<<30 {
			w.fail("pool: %d of %q is held, allowed %d", n, pool, k.byPool[pool])
		}
	}
}

// userGranted looks at a permit that a user is told of, for which it asked at a time.
func (k *checker) userGranted(u *user, came int64) {
	k.userTrusts(u)
	w := k.w
	w.longest = max(w.longest, w.now-came)
	if u.broke > 0 && w.now < u.broke+2*w.longestLease() {
		return
	}
	for _, other := range w.users {
		if _, granted := w.server.ledger.LeaseEnd(other.id()); granted {
			continue // and is about to hear of it
		}
		if other.target == u.target && other.came > 0 && other.came+k.messages()+w.userTime() < came && other.sure < other.came+1 &&
			other.weight <= w.server.ledger.Limit && k.calm() < other.came && other.undisturbed() {
			w.fail("order: user %d came %v before user %d and still waits", other.number, micros(came-other.came), u.number)
		}
	}
}

// userTrusts checks that a user trusts its permit no longer than the server's
// lease lasts.
func (k *checker) userTrusts(u *user) {
	w := k.w
	k.held()
	if w.now < k.doubt || u.until <= w.now {
		return
	}
	end, ok := w.server.ledger.LeaseEnd(u.id())
	if truly := end - w.server.now() + w.now; !ok || truly < u.until {
		w.fail("loss: user %d trusts %v until %v, and its lease ends at %v (%v)", u.number, u.id(), micros(u.until), micros(truly), ok)
	}
}

// userLost looks at a permit that was gone when its user gave it back.
func (k *checker) userLost(u *user) {
	w := k.w
	if u.until <= w.now || w.revokes > 0 || k.calm() >= w.now-2*w.longestLease() || w.forgets > 0 || w.failovers > 0 || w.unsets > 0 {
		return
	}
	w.fail("loss: %v of user %d is gone, and nobody took it", u.id(), u.number)
}

// userDenied looks at a user whose request ended without a permit.
func (k *checker) userDenied(u *user) {
	w := k.w
	if k.faultless {
		w.fail("wait: user %d was refused", u.number)
	}
}

// denied looks at an acquisition that ends without a permit.
func (k *checker) denied(c *caller, e client.Event) {
	w := k.w
	switch e.Reason {
	case client.Refused:
		if !c.try {
			w.fail("wait: %v was refused, though it waits", c.Acquisition.ID())
		}
	case client.Busy:
		if c.try || !c.n.refuses() {
			w.fail("wait: %v was refused as one of too many, and may wait", c.Acquisition.ID())
		}
	case client.TooHeavy, client.LimitIsAnother:
		if w.limits == 0 && w.rules == 0 && w.amounts == 0 && w.restarts == 0 && w.forgets == 0 && !k.declares() {
			w.fail("wait: %v ended with %v, and nobody changed the limit", c.Acquisition.ID(), e.Reason)
		}
	case client.Revoked:
		if w.revokes == 0 {
			w.fail("wait: %v was revoked by nobody", c.Acquisition.ID())
		}
	case client.EngineFailed:
		if c.n.faulty < c.came && k.doubt < c.came {
			w.fail("wait: %v failed without a fault: %v", c.Acquisition.ID(), e.Err)
		}
	default:
		w.fail("wait: %v ended with %v", c.Acquisition.ID(), e.Reason)
	}
}

// lost looks at a permit that its client gives up.
func (k *checker) lost(c *caller, e client.Event) {
	w, n := k.w, c.n
	excused := n.faulty >= n.truly(c.GrantedAt())-n.plan.lease || w.now < k.calm() || n.plan.noRenewal
	if held := n.clock() - c.GrantedAt() + c.answered; e.Reason == client.HeldTooLong && held < micros(n.plan.maxHold) {
		w.fail("loss: %v was lost as held for too long, after %v of %v", c.Acquisition.ID(), held, micros(n.plan.maxHold))
	}
	switch {
	case e.Reason == client.Revoked && w.revokes > 0, e.Reason == client.HeldTooLong && n.plan.maxHold > 0, excused:
	default:
		w.fail("loss: %v was lost (%v) without a fault", c.Acquisition.ID(), e.Reason)
	}
}
