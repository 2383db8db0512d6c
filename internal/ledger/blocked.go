package ledger

import (
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// What keeps a ticket from being served, from the most lasting to the shortest:
//
//   - It is impossible: more than a cap of its path, than the limit or than a pool in all. It is dropped.
//   - It is blocked by a key of its path: the key has to get weight back. Its class is blocked then, and
//     nobody else is: keys beside that one are served.
//   - It is blocked by the limit. The head of all then keeps free what it wants, and the step serves nobody
//     behind it.
//   - It is blocked by a pool. Then it keeps free for itself all that it wants: its weight, at each key of its
//     path too, and its amounts. Whoever wants some of that pool waits behind it; all others are served with
//     the rest. So a large demand does not wait for ever, and for each pool at most one ticket keeps some free.
//   - A ticket ahead of it in its queue, or in the order of classes, is not served.
//
// The first three are kept from step to step in the lists of order.go. What is kept free is found anew in each
// round, see serve.go.

// capOf is how much weight a key may hold.
func (l *Ledger) capOf(k *key) int {
	if l.observed != nil {
		return engine.MaxLimit
	}
	return l.capSet(k)
}

// capSet is how much weight a key may hold while the limit is enforced.
func (l *Ledger) capSet(k *key) int {
	switch {
	case k.cap > 0:
		return k.cap // an operator's
	case k.depth > 0 && l.keys.caps[k.depth-1] > 0:
		return l.keys.caps[k.depth-1]
	}
	return engine.MaxLimit
}

// noteOver marks a key that holds more than its cap. While a key is marked, no client may keep what is released. A change of
// the caps of all keys marks no key at once, because there may be very many. It makes each client give back what it had by then
// (see client.claim), and each of these releases marks its key. While caps are only watched, keys are marked for the time when caps
// hold again.
func (l *Ledger) noteOver(k *key) {
	l.keys.over -= bit(k.over)
	k.over = k.held > l.capSet(k)
	l.keys.over += bit(k.over)
}

// room is how much more weight a key may hold.
func (l *Ledger) room(k *key) int { return l.capOf(k) - k.held }

// free is how much more weight all may hold. Reserved weight is not free.
func (l *Ledger) free() int { return l.limits() - l.used - l.keys.root.reserved }

// impossible is the answer to a demand that could never be served; its status is 0 if it could.
func (l *Ledger) impossible(d *demand) (a protocol.Answer) {
	if l.observed != nil {
		return a
	}
	most, depth := l.limit, 0
	for k := range d.key.path() {
		if c := l.capOf(k); c < most {
			most, depth = c, k.depth
		}
	}
	if d.weight > most {
		return protocol.Answer{Status: protocol.TooHeavy, Bound: most, Depth: depth}
	}
	if at, limit := tooSmall(d.takes, l.keys.amountOf); at > 0 {
		return protocol.Answer{Status: protocol.TooHeavy, Bound: limit, Pool: at}
	}
	return a
}

// tooSmall is the first pool that has less in all than is taken, counted from 1 on, and its amount; 0: none has.
func tooSmall(takes engine.Pools, amountOf func(name string) int) (at, amount int) {
	for name, n := range takes.All() {
		at++
		if amount = amountOf(name); n > amount {
			return at, amount
		}
	}
	return 0, 0
}

// fits reports whether a demand could be served now: nothing blocks it, also not what is reserved.
func (l *Ledger) fits(d *demand) bool {
	for k := range d.key.path() {
		if d.weight > l.room(k)-k.reserved {
			return false
		}
	}
	return !l.halted() && d.weight <= l.free() && l.poolsFit(d.takes)
}

func (l *Ledger) poolsFit(takes engine.Pools) bool {
	if l.observed != nil {
		return true
	}
	for name, n := range takes.All() {
		if p := l.keys.pools[name]; p == nil || n > p.free(l.now) {
			return false
		}
	}
	return true
}

// blocks reports whether a key has to get something back before it may have a weight beside some that is
// reserved. It does not block what is above its cap: that is impossible.
func (l *Ledger) blocks(k *key, weight, reserved int) bool {
	return weight <= l.capOf(k) && weight > l.room(k)-reserved
}

// blocker is the lowest key that blocks a demand; nil: none does.
func (l *Ledger) blocker(d *demand) *key {
	for k := range d.key.path() {
		if l.blocks(k, d.weight, k.reserved) {
			return k
		}
	}
	return nil
}

// isBlocker reports whether a key, and none below it, blocks a ticket even if nothing is reserved. A key below it may
// block the ticket without being known to: its cap has become smaller.
func (l *Ledger) isBlocker(k *key, t *ticket) bool {
	for below := range t.key.path() {
		if below == k {
			break
		}
		if t.weight > l.room(below) {
			return false
		}
	}
	return l.blocks(k, t.weight, 0)
}

// blocksAll reports whether a key blocks the head of all its classes. What it gets back is for that ticket, so all its
// classes are blocked.
func (l *Ledger) blocksAll(k *key) bool {
	head := k.head(nil)
	return head != nil && l.isBlocker(k, head)
}

// noneAhead reports whether an ask goes before everybody that waits: no key beside its path is runnable, no other set is,
// and its place is before its queue's head.
func (l *Ledger) noneAhead(a *asking) bool {
	for k := range a.key.path() {
		if up := k.up.class(a.set); up != nil && slices.ContainsFunc(up.runnable, func(c *class) bool { return c.key != k }) {
			return false
		}
		if slices.ContainsFunc(k.classes, func(c *class) bool { return c.set != a.set }) && l.blocksAll(k) {
			return false
		}
	}
	for _, c := range l.keys.root.classes {
		if c.set != a.set && len(c.runnable) > 0 {
			return false
		}
	}
	c := a.key.leaf().class(a.set)
	return c == nil || len(c.queue) == 0 || c.queue[0].id == a.r.ID || a.r.Wait && a.place < c.queue[0].place
}

// noneRunnable reports whether all that wait are blocked by a cap of their own, or of the callers beside them.
func (l *Ledger) noneRunnable() bool { return l.keys.runnable == 0 }
