package simulate

import (
	"slices"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// This file judges the order among callers: which of two is granted a permit first. keyorder.go judges the order among keys.

// passedOver is a caller that came earlier than c, by more than messages take,
// and waits undisturbed.
func (k *checker) passedOver(c *caller) *caller {
	for _, n := range k.w.nodes {
		for _, other := range n.callers {
			if k.earlier(other, c) {
				return other
			}
		}
	}
	return nil
}

func (k *checker) earlier(other, c *caller) bool {
	n := other.n
	if k.w.classes() && !k.w.server.ledger.Waits(other.Acquisition.ID()) {
		return false // a process with callers of several keys has few tickets for each
	}
	return other.Target == c.Target && other.since()+k.messages() < c.since() && max(other.came, n.overtaken)+k.messages() < k.w.now && !n.served(other) && !other.try && !k.w.server.ledger.TooHeavy(other.Target, other.weight) && !n.plan.unfair &&
		n.alive && !n.paused && n.faulty < other.came && !k.mayBePassed(n, other) && k.calm() < other.came
}

// overtaken bounds how many callers are served before one that came earlier: as
// many as all permits may be passed on in a row. Each caller with priority that came since adds as many.
// Its ticket may go to another caller and be granted before the engine knows that.
func (k *checker) overtaken(c *caller) {
	for _, n := range k.w.nodes {
		for _, other := range n.callers {
			if n == c.n || c.n.plan.unfair || c.n.faulty > c.came || c.try || !k.earlier(other, c) || k.uninformed(c.n, other) {
				continue
			}
			if other.behind++; other.behind > 3*k.allowed+k.w.starts-other.starts {
				k.w.fail("order: %d were served before %v that came later", other.behind, other.Came())
			}
		}
	}
}

// mayBePassed reports whether a process that cannot be notified may be passed over: as
// long as it has not asked again for its ticket since.
func (k *checker) mayBePassed(n *node, c *caller) bool {
	return n.unreachable && k.w.now < max(n.unreachableSince, c.came, c.ticket)+n.plan.lease/4+k.messages()
}

// uninformed reports whether a process that cannot be notified may not know yet that another's caller
// waits: it passes permits on for a sixth of its lease after its last call.
func (k *checker) uninformed(n *node, other *caller) bool {
	return n.unreachable && k.w.now < other.came+n.plan.lease/6+k.messages()
}

// passed looks at a permit that went from caller to caller.
func (k *checker) passed(c *caller) {
	w, n, id := k.w, c.n, c.Acquisition.ID()
	contact := n.plan.lease/6 + k.messages()
	if since := k.halted(); since > 0 && w.now-since > contact {
		w.fail("pause: %v is passed on %v after it", id, micros(w.now-since))
	}
	if c.Slot() == protocol.WouldWait && w.now >= k.doubt { // else a step of the clock may have ended it, and it is granted again
		w.fail("observe: %v is passed on, and would have waited", id)
	}
	for _, name := range path(c.Key) {
		if since, over := k.over[name]; over && w.now-since > contact && k.calm() <= since {
			w.fail("cap: %v is passed on, and %q has held more than its cap for %v", id, name, micros(w.now-since))
		}
	}
	for pool := range c.Takes.All() {
		if since, rated := k.rateSince[pool]; rated && w.now-since > contact && k.calm() <= since {
			w.fail("rate: %v is passed on, and %s has been a rate for %v", id, pool, micros(w.now-since))
		}
	}
	if n.plan.unfair || n.faulty > c.came {
		return
	}
	for _, o := range n.callers {
		if o.Target != c.Target && o.Key.First(1) == c.Key.First(1) && o.State() == client.Waiting {
			w.fail("order: %v is passed on, and %v waits beside it for the same key", id, o.Target)
		}
	}
	k.beside(c)
	if other := k.passedOver(c); other != nil {
		if k.uninformed(n, other) {
			return
		}
		w.fail("order: %v came %v before the one to whom %v is passed on", other.Came(), micros(c.since()-other.since()), id)
	}
}

// beside looks whether a permit is passed on while another key of the process waits
// runnable, by more than messages take.
func (k *checker) beside(c *caller) {
	w := k.w
	if w.server.down || k.calm() > w.now-k.messages() || c.n.faulty > w.now {
		return
	}
	w.server.ledger.EachRunnable(func(leaf *class, first engine.ID) {
		target := leaf.target()
		waits := slices.ContainsFunc(c.n.callers, func(o *caller) bool { return o.Target == target && o.State() == client.Waiting })
		since := max(k.turns[leaf.name()], k.lately)
		if waits && target != c.Target && first.Client == c.n.client && w.now-since > 2*k.messages() {
			w.fail("share: %v is passed on, and %v of its process has been runnable for %v", c.Acquisition.ID(), target, micros(w.now-since))
		}
	})
}

// within looks whether a process serves its callers in the order they came.
func (k *checker) within(c *caller) {
	for _, other := range c.n.callers {
		if c.Target == other.Target && !c.try && !other.try && !other.held && other.weight == c.weight && other.order() < c.order() && !c.n.plan.unfair {
			k.w.fail("order: %v of %s is served before %v", c.Came(), c.n.client, other.Came())
		}
	}
}
