package ledger

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// grant hands free weight to the first tickets in turn, as far as it goes, and
// up to a place. A ticket whose client cannot be told is dropped, once.
func (l *Ledger) grant(now, upTo int64) {
	l.sweep()
	for len(l.keys.root.turn) > 0 && !l.paused {
		t := l.keys.root.first()
		if t.place > upTo {
			return
		}
		most, _ := l.mostOf(t.key)
		over, tooHeavy := t.silent(now), t.id.Weight > most
		k := l.lacking(t)
		lacking := k != nil && !tooHeavy // its cap is smaller than it was
		if lacking && l.turns > 0 {
			l.turns--
			l.reposition(k)
			continue
		}
		if !over && !tooHeavy && !lacking && t.id.Weight > l.limit-l.used {
			return
		}
		if l.turns == 0 {
			l.goOn(t)
			return
		}
		l.turns--
		l.pop(t)
		switch {
		case over:
		case tooHeavy:
			l.tell(t.via).Ask = true // could never be served; asking again tells its client
		case t.insist || l.reach(t.via):
			h := l.take(now, t.leaseEnd(now), t.id, t.key, t.detached, t.owner)
			n := l.tell(t.via)
			l.handed[t.id] = t.via
			n.Grants = append(n.Grants, protocol.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})
			l.served(t.key)
			continue
		}
		l.reposition(t.key.leaf())
	}
}

// fits reports whether a weight is free, for all and for each key of a path.
func (l *Ledger) fits(k *key, weight int) bool {
	for n := k.leaf(); n.up != nil; n = n.up {
		if weight > l.capOf(n)-n.held { // a sum could overflow
			return false
		}
	}
	return !l.paused && weight <= l.limit-l.used
}

// first reports whether an ask goes before everybody that waits. Beside the keys of its
// path there are none in turn then.
func (l *Ledger) first(k *key, r *protocol.Request, place int64) bool {
	k = k.leaf()
	for n := k; n.up != nil; n = n.up {
		if turn := n.up.turn; len(turn) > 1 || len(turn) == 1 && turn[0] != n {
			return false
		}
	}
	return len(k.queue) == 0 || k.queue[0].id == r.ID || r.Wait && place < k.queue[0].place
}

// silent reports whether the client of a ticket has not asked again in time.
func (t *ticket) silent(now int64) bool { return t.lease == 0 && t.end <= now }

// grantAndWatch hands out free weight, and finds somebody to watch. What watch drops may have held up others.
func (l *Ledger) grantAndWatch(now int64, asker engine.ID) {
	l.grant(now, last)
	for l.watch(now, asker) {
		l.grant(now, last)
	}
}

// watch sees to it that somebody calls when the first lease ends, if anybody
// waits. An ask is answered with that time; so only a lease that ends before
// all that were known needs a message, to the last ticket of the last path. Clients that
// cannot be notified, and know it, ask often enough. dropped reports whether watch has dropped tickets.
func (l *Ledger) watch(now int64, asker engine.ID) (dropped bool) {
	first, held := l.NextEnd()
	if l.Watched || !held || len(l.tickets) == 0 {
		l.alarm, l.watcher = 0, engine.ID{}
		return false
	}
	if l.tickets[l.watcher] != nil && now < l.alarm && l.alarm <= first {
		return false
	}
	l.alarm, l.watcher = first, asker
	if l.tickets[asker] != nil {
		return false
	}
	leaves := l.keys.leaves()
	slices.SortFunc(leaves, func(a, b *key) int { return strings.Compare(b.path(), a.path()) })
	for _, k := range leaves {
		for i := len(k.queue) - 1; i >= 0 && l.turns > 0; i-- {
			switch t := k.queue[i]; {
			case !t.silent(now) && l.reach(t.via):
				l.watcher = t.id
				if n := l.tell(t.via); n.Recheck == 0 {
					n.Recheck = until(now, first)
				}
				return dropped
			case t.silent(now) || !t.insist:
				dropped = l.drop(t.id)
			}
			l.turns--
		}
	}
	l.alarm, l.watcher = 0, engine.ID{}
	return dropped
}

// enqueue puts a ticket into its place. Its leaf is repositioned then.
func (l *Ledger) enqueue(t *ticket) {
	l.tickets[t.id] = t
	k := t.key.leaf()
	k.queue = slices.Insert(k.queue, position(k.queue, t), t)
	k.wait(1)
}

// drop removes a ticket, and reports whether there was one.
func (l *Ledger) drop(id engine.ID) bool {
	t := l.tickets[id]
	if t == nil {
		return false
	}
	l.pop(t)
	l.reposition(t.key.leaf())
	return true
}

// pop takes a ticket out of the queues. Its leaf is repositioned then.
func (l *Ledger) pop(t *ticket) {
	delete(l.tickets, t.id)
	k := t.key.leaf()
	k.wait(-1)
	queue := &k.queue
	if i := position(*queue, t); i > 0 {
		*queue = slices.Delete(*queue, i, i+1)
		return
	}
	(*queue)[0] = nil // most often it is the first
	*queue = (*queue)[1:]
}

// position is where a ticket is, or belongs, in a queue.
func position(queue []*ticket, t *ticket) int {
	return sort.Search(len(queue), func(i int) bool { return byPlace(queue[i], t) >= 0 })
}

// byPlace is the order of tickets. Of two that came at once it goes by their ids.
func byPlace(a, b *ticket) int {
	if a.place != b.place {
		return cmp.Compare(a.place, b.place)
	}
	if a.id == b.id {
		return 0
	}
	return strings.Compare(a.id.String(), b.id.String())
}
