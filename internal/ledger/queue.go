package ledger

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"sema/engine"
)

// This file has the queues as data. The place of a ticket is set in ask.go, also that of one whose caller asks again.

// silent reports whether the client of a ticket has not asked again in time.
func (t *ticket) silent(now int64) bool { return t.lease == 0 && t.end <= now }

// class is where a ticket queues.
func (t *ticket) class() *class { return t.key.leaf().class(t.set) }

// enqueue puts a ticket into its place. Its leaf is rescheduled then.
func (l *Ledger) enqueue(t *ticket) {
	l.tickets[t.id] = t
	l.count(t.key.leaf(), t.set, 1)
	for _, queue := range []*[]*ticket{&l.line, &t.class().queue} {
		*queue = slices.Insert(*queue, position(*queue, t), t)
	}
}

// pop takes a ticket out of the queues. Its leaf is rescheduled then.
func (l *Ledger) pop(t *ticket) {
	delete(l.tickets, t.id)
	for _, queue := range []*[]*ticket{&l.line, &t.class().queue} {
		if i := position(*queue, t); i > 0 {
			*queue = slices.Delete(*queue, i, i+1)
			continue
		}
		(*queue)[0] = nil // most often it is the first
		*queue = (*queue)[1:]
	}
	l.count(t.key.leaf(), t.set, -1)
}

// drop removes a ticket, and reports whether there was one.
func (l *Ledger) drop(id engine.ID) bool {
	t := l.tickets[id]
	if t == nil {
		return false
	}
	l.pop(t)
	l.reschedule(t.key.leaf())
	return true
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

// byPath orders classes of leaves by the names that their callers know.
func byPath(a, b *class) int {
	return strings.Compare(strings.TrimSuffix(a.text(), engine.KeySeparator), strings.TrimSuffix(b.text(), engine.KeySeparator))
}

// inOrder are the tickets in the order of service, leaf by leaf.
func (l *Ledger) inOrder() (list []*ticket) {
	for _, c := range l.keys.leaves() {
		list = append(list, c.queue...)
	}
	return list
}

// anyTicket reports whether f picks any ticket.
func (l *Ledger) anyTicket(f func(*ticket) bool) bool {
	for _, t := range l.tickets {
		if f(t) {
			return true
		}
	}
	return false
}
