package ledger

import "slices"

// This file keeps free what a blocked head wants, so that a large demand does not wait for ever.

// round is what a step has found since it last served a ticket: what the tickets that it passed keep free. When a
// ticket is served or dropped, the next round begins with nothing reserved.
type round struct {
	complete bool   // every runnable class was looked at, or all the rest is kept free
	reserved []*key // leaves of the tickets that keep something free
	revisit  []*key // keys that were rescheduled while something was reserved
	due      int64  // when the first rate is back that some ticket lacks; 0: there is none
}

// reserve keeps free for a ticket all that it wants, until the round ends. A pool that has too little for it is awaited.
// If time alone brings all that the ticket lacks, only rates and places of its own keys are kept free for it. Others use the rest until
// then. Without the places, callers of the same key that want no rate could have them all whenever the rate is back.
func (l *Ledger) reserve(t *ticket) {
	leaf := t.key.leaf()
	timed, due := l.lacks(&t.demand)
	for k := range leaf.path() {
		k.reserved += t.weight
	}
	if !timed {
		l.keys.root.reserved += t.weight
	}
	if due > 0 && (l.round.due == 0 || due < l.round.due) {
		l.round.due = due
	}
	l.round.reserved = append(l.round.reserved, leaf)
	for name, n := range t.takes.All() {
		if p := l.keys.pools[name]; !timed || p.unit > 0 {
			p.awaited = p.awaited || n > p.free(l.now)
			p.reserved += n
		}
	}
}

// endRound gives up what is reserved.
func (l *Ledger) endRound() {
	was := l.round
	l.round = round{}
	for _, k := range was.reserved {
		for ; k != nil; k = k.up {
			k.reserved = 0
		}
	}
	if len(was.reserved) > 0 {
		for _, p := range l.keys.pools {
			p.reserved, p.awaited = 0, false
		}
	}
	for _, k := range was.revisit {
		l.reschedule(k)
	}
}

// backfills reports whether a demand fits beside all that is reserved, and nobody of its class or path is ahead of it:
// then serving it keeps nobody waiting any longer.
func (l *Ledger) backfills(d *demand) bool {
	if len(l.keys.pools) == 0 || !l.round.complete || !l.fits(d) {
		return false
	}
	for k := range d.key.path() {
		if c := k.class(d.set); c != nil && c.state == blocked || l.blocksAll(k) {
			return false
		}
	}
	return true
}

// wantsAwaited reports whether a class wants some of a pool for which a ticket ahead of it waits.
func (l *Ledger) wantsAwaited(c *class) bool {
	return len(l.round.reserved) > 0 && slices.ContainsFunc(c.pools(), func(name string) bool {
		p := l.keys.pools[name]
		return p != nil && p.awaited
	})
}
