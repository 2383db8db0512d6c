package simulate

import (
	"cmp"
	"slices"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// This file judges how long callers wait, and what is left when nobody wants anything.

// waits looks whether weight is free beside a waiter for too long. It is called
// every so often.
func (k *checker) waits() {
	w := k.w
	k.held()
	k.strays()
	k.queued()
	k.unheard()
	k.audited()
	k.counted()
	limit, used := w.server.ledger.Limit, w.server.ledger.used
	if w.server.down || w.server.refuse != nil || k.halted() > 0 {
		clear(k.idle)
		return
	}
	for _, n := range w.nodes {
		var waiting *caller
		for _, c := range n.callers {
			if w.hasRoom(c) && !c.try && !n.served(c) && (waiting == nil || c.weight < waiting.weight) {
				waiting = c
			}
		}
		if waiting == nil || !n.alive || n.paused || n.cut || limit == 0 || n.unreachable { // that one hears of what it was granted when it asks again
			delete(k.idle, n)
			continue
		}
		if k.idle[n] == 0 || k.rated() && k.idle[n] < k.lately { // a grant has spent the rates that were there
			k.idle[n] = w.now
		}
		if since := max(k.idle[n], k.lately, waiting.came); w.now-since > k.patience(n) {
			w.fail("wake-up: %v has waited beside free weight for %v (%d of %d held)", waiting.Acquisition.ID(), micros(w.now-since), used, limit)
		}
	}
}

// revive notes a late copy of a call that the server does not know to be late. Nobody gives back
// what it asks for: that ends with its lease.
func (k *checker) revive(c protocol.Call) {
	for _, r := range c.Requests {
		if r.Kind == protocol.Ask {
			k.ghosts[r.ID] = true
		}
	}
}

// strays looks for permits and tickets of a process that does not know of them,
// and is not about to give anything back: they would stay until they lapse.
func (k *checker) strays() {
	w := k.w
	w.server.ledger.Each(func(id engine.ID, end int64, detached bool) {
		if detached || k.ghosts[id] || end <= w.server.now() || w.server.now()-k.given[id] <= k.messages() {
			return // its client may have to hear of it yet
		}
		for _, n := range w.nodes {
			if n.client == id.Client && n.alive && !n.paused && n.machine.Idle() && !n.machine.Knows(id) && w.now > k.calm() {
				w.fail("leak: nobody has %v, or gives it back", id)
			}
		}
	})
}

// queued checks that each waiter has its place at the server all the time. With
// faults a waiter may lose its place, and gets it back when it asks again.
func (k *checker) queued() {
	if !k.faultless {
		return
	}
	w, gone := k.w, map[engine.ID]int64{}
	for _, n := range w.nodes {
		for _, c := range n.callers {
			id := c.Acquisition.ID()
			if c.State() != client.Waiting || !n.machine.Knows(id) || w.server.ledger.Queues(w.server.now(), id) {
				continue
			}
			if _, granted := w.server.ledger.LeaseEnd(id); granted {
				continue
			}
			gone[id] = min(w.now, k.gone[id])
			if k.gone[id] == 0 {
				gone[id] = w.now
			}
			if w.now-gone[id] > k.messages() {
				w.fail("queue: %v waits, and has had no ticket for %v", id, micros(w.now-gone[id]))
			}
		}
	}
	k.gone = gone
}

// unheard looks for callers whose permit was granted before a call failed whose reply
// may have told of it: nothing else would, and since then all has been asked for again.
func (k *checker) unheard() {
	w := k.w
	for _, n := range w.nodes {
		if !n.alive || n.paused || !n.machine.Idle() {
			continue
		}
		for _, c := range n.callers {
			id := c.Acquisition.ID()
			at, told := k.when[id]
			if end, granted := w.server.ledger.LeaseEnd(id); told && granted && !w.server.ledger.ledger.Revoked(id) && // the permit of a revoked ticket is no grant
				end > w.server.now() && c.State() == client.Waiting && at < n.doubtful {
				w.fail("wake-up: %v was granted at %v, a call failed at %v, and its caller waits", id, micros(at), micros(n.doubtful))
			}
		}
	}
}

// audited looks whether what the server and each process keep twice is the same.
func (k *checker) audited() {
	if err := k.w.server.ledger.Audit(); err != nil {
		k.w.fail("count: the server: %v", err)
	}
	for _, n := range k.w.nodes {
		if err := n.machine.Audit(); err != nil {
			k.w.fail("count: %s: %v", n.client, err)
		}
	}
}

// counted compares how many callers the server counts, of each process in which the
// same ones have waited undisturbed since its tickets were to be asked for again, with how many there are.
func (k *checker) counted() {
	w := k.w
	for _, n := range w.nodes {
		wait := 0
		for _, c := range n.callers {
			if c.State() == client.Waiting {
				wait++
			}
		}
		if n.unreachable { // its ticket may have gone when its turn came, until it asks again
			n.changed = w.now
		}
		said := max(n.changed, n.faulty) + 2*n.plan.lease/asksPerLease + k.messages()
		if !n.alive || n.paused || n.cut || n.plan.lasting || w.server.down || w.now < said || k.calm() > n.changed || n.awaits() {
			continue
		}
		if counted := w.server.ledger.Callers(w.server.now(), n.client); counted != wait {
			w.fail("count: %d callers of %s wait, and the server counts %d", wait, n.client, counted)
		}
	}
}

// patience is how long weight may be free beside a waiter. Without faults that
// is a matter of messages. With faults it also depends on the next ask: its
// own, or that of a ticket in front of it whose process has a fault.
func (k *checker) patience(n *node) int64 {
	w := k.w
	if k.faultless && k.rated() {
		return k.messages() + n.plan.lease/100 + 5*millisecond // so often somebody looks what time has brought
	}
	if k.faultless {
		return k.messages() + n.plan.lease/100
	}
	longest := int64(0)
	for _, other := range w.nodes {
		longest = max(longest, other.plan.lease)
	}
	return 2*longest + 6*second
}

// left looks what remains when everybody has gone.
func (k *checker) left() {
	w := k.w
	for pool, b := range k.begun {
		k.keepsTo(pool, b)
	}
	for _, n := range w.nodes {
		if len(n.callers) > 0 {
			c := n.callers[0]
			w.fail("leak: %v has not ended (state %d)", c.Acquisition.ID(), c.State())
		}
		if n.alive && !n.machine.Idle() {
			w.fail("leak: %s still wants to send something", n.client)
		}
	}
	w.server.ledger.Each(func(id engine.ID, end int64, _ bool) {
		if end > w.server.now() {
			w.fail("leak: the server still has %v", id)
		}
	})
	for _, p := range w.server.ledger.ledger.State(w.server.now()).Pools {
		if p.Used > 0 && p.Per == 0 || p.Waiting > 0 {
			w.fail("leak: the server still counts %+v", p)
		}
	}
}

// hasRoom reports whether so much is free that all of it cannot be kept free for others: with pools, as much as all want
// that wait.
func (w *world) hasRoom(c *caller) bool {
	l, most, wanted := w.server.ledger, w.heaviest(), map[string]int{}
	if w.pools != "" {
		most = 0
		add := func(weight int, takes engine.Pools) {
			most += weight
			for pool, n := range takes.All() {
				wanted[pool] += n
			}
		}
		for _, n := range w.nodes {
			for _, o := range n.callers {
				if !o.held {
					add(o.weight, o.Takes)
				}
			}
		}
		for _, u := range w.users {
			if !u.holds {
				add(u.weight, u.target.Takes)
			}
		}
	}
	for pool := range c.Takes.All() {
		taken := l.taken[pool]
		if l.rate(pool) {
			taken = l.missing(pool, w.server.now())
		}
		if taken+wanted[pool] > l.amountOf(pool) {
			return false
		}
	}
	room, _ := l.PathLoad(c.Key)
	return most <= min(room, l.Limit-l.used)
}

// heaviest is the largest weight that somebody waits for: less than that may be
// kept free for it.
func (w *world) heaviest() int {
	most := 0
	for _, n := range w.nodes {
		for _, c := range n.callers {
			if !c.held {
				most = max(most, c.weight)
			}
		}
	}
	for _, u := range w.users {
		if !u.holds {
			most = max(most, u.weight)
		}
	}
	return most
}

// recipient is the caller who will get what is granted under an id: the oldest
// one that nothing else is coming to, if the one who asked waits.
func (w *world) recipient(id engine.ID) *caller {
	for _, n := range w.nodes {
		if n.client != id.Client || !n.machine.Knows(id) {
			continue
		}
		target := w.server.ledger.TargetOf(id)
		var oldest *caller
		for _, c := range n.callers {
			switch {
			case c.Acquisition.ID() == id && (c.try || c.held):
				return c
			case !c.try && c.Target == target && c.weight == id.Weight && !n.served(c) && (oldest == nil || c.order() < oldest.order()):
				oldest = c
			}
		}
		return oldest
	}
	return nil
}

// served reports whether a caller has a permit, or one is on its way to it. What the server
// grants goes to the oldest caller that had come by then: one with a head start that comes while a
// grant travels may take it, and then the next grant is for the older one.
func (n *node) served(c *caller) bool {
	if c.held {
		return true
	}
	var coming []engine.ID
	for id := range n.coming {
		switch _, granted := n.w.server.ledger.LeaseEnd(id); {
		case !granted || !n.machine.Knows(id):
			delete(n.coming, id)
		case id.Weight == c.weight && n.w.server.ledger.TargetOf(id) == c.Target:
			coming = append(coming, id)
		}
	}
	if len(coming) == 0 {
		return false
	}
	slices.SortFunc(coming, func(a, b engine.ID) int { return cmp.Compare(n.coming[a], n.coming[b]) })
	var wait []*caller
	for _, other := range n.callers {
		if other == c || !other.held && !other.try && other.Target == c.Target && other.weight == c.weight {
			wait = append(wait, other)
		}
	}
	slices.SortStableFunc(wait, func(a, b *caller) int { return cmp.Compare(a.order(), b.order()) })
	for _, id := range coming {
		i := max(0, slices.IndexFunc(wait, func(o *caller) bool { return o.came <= n.coming[id] }))
		if wait[i] == c {
			return true
		}
		if wait = slices.Delete(wait, i, i+1); len(wait) == 0 {
			break
		}
	}
	return false
}
