package ledger

import (
	"slices"
	"sort"
	"strings"

	"sema/engine"
)

// grant hands free weight to the head of the queue, as far as it goes, and up to
// a place in it. A ticket whose client cannot be told is dropped, once.
func (l *Ledger) grant(now, upTo int64) {
	for len(l.queue) > 0 && !l.paused {
		t := l.queue[0]
		if t.place > upTo {
			return
		}
		over, tooHeavy := t.silent(now), t.id.Weight > l.limit
		if !over && !tooHeavy && t.id.Weight > l.limit-l.used {
			return
		}
		if l.turns == 0 {
			l.tell(t.via).Ask = true // and go on with that
			return
		}
		l.turns--
		l.drop(t.id)
		switch {
		case over:
		case tooHeavy:
			l.tell(t.via).Ask = true // could never be served; asking again tells its client
		case t.insist || l.reach(t.via):
			h := l.take(now, t.leaseEnd(now), t.id, t.detached, t.owner)
			n := l.tell(t.via)
			l.handed[t.id] = t.via
			n.Grants = append(n.Grants, engine.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})
		}
	}
}

// silent reports whether the client of a ticket has not asked again in time.
func (t *ticket) silent(now int64) bool { return t.lease == 0 && t.end <= now }

// watch sees to it that somebody calls when the first lease ends, if anybody
// waits. An ask is answered with that time; so only a lease that ends before
// all that were known needs a message, to the ticket that came last. Clients that
// cannot be notified, and know it, ask often enough.
func (l *Ledger) watch(now int64, asker engine.ID) {
	first, held := l.NextEnd()
	if l.Watched || !held || len(l.queue) == 0 {
		l.alarm, l.watcher = 0, engine.ID{}
		return
	}
	if l.tickets[l.watcher] != nil && now < l.alarm && l.alarm <= first {
		return
	}
	l.alarm, l.watcher = first, asker
	if l.tickets[asker] != nil {
		return
	}
	for i := len(l.queue) - 1; i >= 0 && l.turns > 0; i-- {
		switch t := l.queue[i]; {
		case !t.silent(now) && l.reach(t.via):
			l.watcher, l.tell(t.via).Recheck = t.id, until(now, first)
			return
		case t.silent(now) || !t.insist:
			l.drop(t.id)
		}
		l.turns--
	}
	l.alarm, l.watcher = 0, engine.ID{}
}

// enqueue puts a ticket into its place.
func (l *Ledger) enqueue(t *ticket) {
	l.tickets[t.id] = t
	l.queue = slices.Insert(l.queue, l.position(t), t)
}

// drop removes a ticket, and reports whether there was one.
func (l *Ledger) drop(id engine.ID) bool {
	t := l.tickets[id]
	if t == nil {
		return false
	}
	delete(l.tickets, id)
	if i := l.position(t); i == 0 {
		l.queue[0] = nil
		l.queue = l.queue[1:]
	} else {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return true
}

// position is where a ticket is, or belongs, in the queue.
func (l *Ledger) position(t *ticket) int {
	return sort.Search(len(l.queue), func(i int) bool {
		q := l.queue[i]
		if q.place != t.place {
			return q.place > t.place
		}
		return q.id == t.id || strings.Compare(q.id.String(), t.id.String()) >= 0
	})
}
