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
// up to a place. A ticket whose client cannot be told is dropped, once. What it has reserved in the end holds
// until endPass.
func (l *Ledger) grant(now, upTo int64) {
	l.sweep()
	for !l.paused {
		t, is := l.next(now, upTo)
		if t == nil {
			return
		}
		if l.turns <= 0 {
			l.goOn(t)
			return
		}
		l.turns -= 1 + l.keys.sets()/setsPerTurn
		l.endPass() // what was reserved before counts again from the start
		l.pop(t)
		switch {
		case is == tooHeavy:
			l.tell(t.via).Ask = true // could never be served; asking again tells its client
		case is == ready && (t.insist || l.reach(t.via)):
			h := l.take(now, t.leaseEnd(now), t.id, t.key, t.takes, t.detached, t.owner)
			n := l.tell(t.via)
			l.handed[t.id] = t.via
			n.Grants = append(n.Grants, protocol.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})
			l.served(t)
			continue
		}
		l.reposition(t.key.leaf())
	}
}

// found is what next has found of a ticket.
type found uint8

const (
	ready    found = iota + 1 // there is room for it
	over                      // its client has not asked again in time
	tooHeavy                  // there will never be room
	lacking                   // a key lacks its weight, and the step has no turns left to look
)

// next is the first ticket, up to a place, that is to be served or dropped; nil: there is none. The
// tickets before it reserve what they want.
func (l *Ledger) next(now, upTo int64) (*ticket, found) {
	for {
		t := l.keys.root.first(l.isShut)
		if t == nil {
			l.pass.all = true
			return nil, 0
		}
		if t.place > upTo {
			return nil, 0
		}
		weight := t.id.Weight
		most, _ := l.mostOf(t.key)
		scarce, _ := scarce(t.takes, l.keys.limitOf)
		heavy := weight > most || scarce > 0
		if k := l.lacking(t); k != nil && !heavy { // its cap is smaller than it was, or what it has left is reserved
			if k.reserved == 0 {
				if l.turns <= 0 {
					return t, lacking
				}
				l.turns--
			}
			if len(l.pass.reserved) > 0 { // of a key above it, perhaps
				l.pass.moved = append(l.pass.moved, k)
			}
			l.reposition(k)
			continue
		}
		if t.silent(now) {
			return t, over
		}
		if heavy {
			return t, tooHeavy
		}
		full := weight > l.limit-l.used-l.keys.root.reserved
		if !full && l.fitPools(t.takes) {
			return t, ready
		}
		l.reserve(t)
		if full {
			l.pass.all = true
			return nil, 0
		}
	}
}

// fits reports whether a weight is free, for all and for each key of a path, and the amounts of pools. What is
// reserved is not free.
func (l *Ledger) fits(k *key, weight int, takes engine.Pools) bool {
	for n := k.leaf(); n.up != nil; n = n.up {
		if weight > l.room(n)-n.reserved {
			return false
		}
	}
	return !l.paused && weight <= l.limit-l.used-l.keys.root.reserved && l.fitPools(takes)
}

// first reports whether an ask goes before everybody that waits. Beside the keys of its
// path there are none in turn then, and none of another set.
func (l *Ledger) first(k *key, set string, r *protocol.Request, place int64) bool {
	for n := k.leaf(); n.up != nil; n = n.up {
		if up := n.up.lane(set); up != nil && slices.ContainsFunc(up.turn, func(c *lane) bool { return c.key != n }) {
			return false
		}
		if slices.ContainsFunc(n.lanes, func(other *lane) bool { return other.set != set }) && l.heldUp(n) {
			return false
		}
	}
	for _, n := range l.keys.root.lanes {
		if n.set != set && len(n.turn) > 0 {
			return false
		}
	}
	first := k.leaf().lane(set)
	return first == nil || len(first.queue) == 0 || first.queue[0].id == r.ID || r.Wait && place < first.queue[0].place
}

// silent reports whether the client of a ticket has not asked again in time.
func (t *ticket) silent(now int64) bool { return t.lease == 0 && t.end <= now }

// grantAndWatch hands out free weight, and finds somebody to watch. What watch drops may have held up others.
func (l *Ledger) grantAndWatch(now int64, asker engine.ID) {
	for again := true; again; again = l.watch(now, asker) {
		l.grant(now, last)
		l.endPass()
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
	slices.SortFunc(leaves, func(a, b *lane) int { return strings.Compare(b.path(), a.path()) })
	for _, n := range leaves {
		for i := len(n.queue) - 1; i >= 0 && l.turns > 0; i-- {
			switch t := n.queue[i]; {
			case !t.silent(now) && l.reach(t.via):
				l.watcher = t.id
				if news := l.tell(t.via); news.Recheck == 0 {
					news.Recheck = until(now, first)
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
	l.wait(t.key.leaf(), t.set, 1)
	n := t.lane()
	n.queue = slices.Insert(n.queue, position(n.queue, t), t)
}

// lane is where a ticket queues.
func (t *ticket) lane() *lane { return t.key.leaf().lane(t.set) }

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
	queue := &t.lane().queue
	l.wait(t.key.leaf(), t.set, -1)
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
