package ledger

import "sema/engine"

// Head is the ticket that is served next; ok is false if nobody waits.
func (l *Ledger) Head() (id engine.ID, ok bool) {
	if len(l.queue) == 0 {
		return engine.ID{}, false
	}
	return l.queue[0].id, true
}

// Behind is the ticket that follows the given one in the queue.
func (l *Ledger) Behind(id engine.ID) (next engine.ID, ok bool) {
	t := l.tickets[id]
	if t == nil {
		return engine.ID{}, false
	}
	i := l.position(t) + 1
	if i >= len(l.queue) {
		return engine.ID{}, false
	}
	return l.queue[i].id, true
}

// InFront finds the first ticket of the clients that mine picks; ok is false if
// they have none. ahead is the ticket in front of it, or the zero ID if it is
// the first. Tickets that do not end with their clients do not count.
func (l *Ledger) InFront(mine func(client string) bool) (ahead engine.ID, ok bool) {
	for _, t := range l.queue {
		if mine(t.id.Client) {
			return ahead, true
		}
		if !t.detached {
			ahead = t.id
		}
	}
	return engine.ID{}, false
}

// Holders calls f with each permit. Those marked as detached do not end with
// their client.
func (l *Ledger) Holders(f func(id engine.ID, detached bool)) {
	for _, h := range l.ends {
		f(h.id, h.detached)
	}
}

// Permit is a permit as a grant, and the end of its lease.
func (l *Ledger) Permit(now int64, id engine.ID) (g engine.Grant, end int64, ok bool) {
	h := l.holders[id]
	if h == nil || h.end <= now {
		return engine.Grant{}, 0, false
	}
	return engine.Grant{ID: id, Token: h.token, Slot: h.slot}, h.end, true
}

// Waits reports whether there is a ticket of this id.
func (l *Ledger) Waits(id engine.ID) bool { return l.tickets[id] != nil }

// NextEnd is when the first lease ends; ok is false without any.
func (l *Ledger) NextEnd() (end int64, ok bool) { return l.nextEnd() }

// Forgotten is what a snapshot says of a semaphore whose clients are all gone:
// its limit, and the last token.
func (s Snapshot) Forgotten() Snapshot {
	return Snapshot{Limit: s.Limit, Pinned: s.Pinned, Token: s.Token, Keep: s.Keep}
}
