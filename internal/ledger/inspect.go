package ledger

import "sema/engine"

// LeaseEnd is when the lease of a permit ends, if there is such a permit. It
// looks at what is written and ends nothing.
func (l *Ledger) LeaseEnd(id engine.ID) (end int64, ok bool) {
	h := l.holders[id]
	if h == nil {
		return 0, false
	}
	return h.end, true
}

// Load is the limit, the weight held and the number of tickets, as written.
func (l *Ledger) Load() (limit, used, tickets int) { return l.limit, l.used, len(l.tickets) }

// Paused reports whether an operator has stopped all grants, as written.
func (l *Ledger) Paused() bool { return l.paused }

// Pinned reports whether an operator's limit is pinned.
func (l *Ledger) Pinned(now int64) bool {
	l.expire(now)
	return l.pinned
}

// Each calls f for every permit and every ticket, in the order of lease ends
// and of the queue. A ticket that lasts has no end.
func (l *Ledger) Each(f func(id engine.ID, end int64, detached bool)) {
	for _, h := range l.ends {
		f(h.id, h.end, h.detached)
	}
	for _, t := range l.byPlace() {
		end := t.end
		if t.lease > 0 {
			end = last
		}
		f(t.id, end, t.detached)
	}
}

// Callers is how many callers of a client wait: its tickets, and those behind them.
func (l *Ledger) Callers(client string) (n int) {
	for id, t := range l.tickets {
		if id.Client == client {
			n += 1 + t.behind
		}
	}
	return n
}

// Queues reports whether a ticket would get its turn: its client has asked in time.
func (l *Ledger) Queues(now int64, id engine.ID) bool {
	t := l.tickets[id]
	return t != nil && !t.silent(now)
}
