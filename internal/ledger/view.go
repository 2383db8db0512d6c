package ledger

import (
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// Head is the ticket whose caller has waited for the longest; ok is false if nobody
// waits.
func (l *Ledger) Head() (id engine.ID, ok bool) {
	if len(l.line) == 0 {
		return engine.ID{}, false
	}
	return l.line[0].id, true
}

// Behind is the ticket that follows the given one, whatever their keys: for engines in which clients
// watch each other.
func (l *Ledger) Behind(id engine.ID) (next engine.ID, ok bool) {
	t := l.tickets[id]
	if t == nil {
		return engine.ID{}, false
	}
	i := position(l.line, t) + 1
	if i == len(l.line) {
		return engine.ID{}, false
	}
	return l.line[i].id, true
}

// InService calls f with the session of each ticket, in the order in which they are
// served if nothing else happens: of several keys the first of each, then the second.
// It stops when f returns false.
func (l *Ledger) InService(f func(client string) bool) {
	for i, leaves := 0, l.keys.leaves(); len(leaves) > 0; i++ {
		leaves = slices.DeleteFunc(leaves, func(c *class) bool { return i >= len(c.queue) })
		for _, c := range leaves {
			if !f(c.queue[i].via) {
				return
			}
		}
	}
}

// InFront finds the first ticket of the clients that mine picks; ok is false if
// they have none. ahead is the client of the ticket in front of it, or
// "" if it is the first. Tickets that do not end with their clients do not count.
func (l *Ledger) InFront(mine func(client string) bool) (ahead string, ok bool) {
	first := slices.IndexFunc(l.line, func(t *ticket) bool { return mine(t.via) })
	if first < 0 {
		return "", false
	}
	for _, t := range slices.Backward(l.line[:first]) {
		if !t.detached {
			return t.via, true
		}
	}
	return "", true
}

// Holders calls f with each permit and its client. Those marked as detached do
// not end with their client.
func (l *Ledger) Holders(f func(id engine.ID, client string, detached bool)) {
	for _, h := range l.ends {
		f(h.id, h.via, h.detached)
	}
}

// Revoked reports whether there is a permit or a ticket of this id that an operator wants back.
func (l *Ledger) Revoked(id engine.ID) bool {
	h, t := l.holders[id], l.tickets[id]
	return h != nil && h.revoked || t != nil && t.revoked
}

// Permit is a permit as a grant, and the end of its lease.
func (l *Ledger) Permit(now int64, id engine.ID) (g protocol.Grant, end int64, ok bool) {
	h := l.holders[id]
	if h == nil || h.end <= now {
		return protocol.Grant{}, 0, false
	}
	return protocol.Grant{ID: id, Token: h.token, Slot: h.slot}, h.end, true
}

// Unfinished reports whether the last step has left something to the next one: its budget was spent.
func (l *Ledger) Unfinished() bool { return l.unfinished }

// Outlasts reports whether the semaphore exists at a time though nobody uses it from now on.
func (l *Ledger) Outlasts(t int64) bool {
	return l.pinned || l.paused || l.keys.rules > 0 || t < l.keep
}

// Waits reports whether there is a ticket of this id.
func (l *Ledger) Waits(id engine.ID) bool { return l.tickets[id] != nil }
