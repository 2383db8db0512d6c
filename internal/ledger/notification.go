package ledger

import (
	"cmp"
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// reach reports whether a client can be told of something now.
func (l *Ledger) reach(client string) bool {
	return client == l.caller || l.hears(client)
}

// hears reports whether notifications reach a client.
func (l *Ledger) hears(client string) bool { return l.Reach == nil || l.Reach(client) }

// tell is what a client is going to be told of this step.
func (l *Ledger) tell(client string) *protocol.Notification {
	if l.news == nil {
		l.news = map[string]*protocol.Notification{}
	}
	n := l.news[client]
	if n == nil {
		n = &protocol.Notification{}
		l.news[client] = n
	}
	return n
}

// goOn tells a client to ask again at once, because this step leaves something to the next. It is the client of the ticket. If
// that one is silent or cannot be told, it may be dead: then it is the client that watches, or else the caller of the step.
func (l *Ledger) goOn(t *ticket) {
	who := t.via
	if t.silent(l.now) || !l.reach(who) {
		who = cmp.Or(l.caller, who)
		if w := l.tickets[l.watcher]; w != nil && !w.silent(l.now) && l.reach(w.via) {
			who = w.via
		}
	}
	l.tell(who).Recheck = protocol.AtOnce
}

// untell takes back the notification of a grant that was made in this step: an
// answer carries it, or it is over again.
func (l *Ledger) untell(id engine.ID) {
	if n := l.news[l.handed[id]]; n != nil {
		n.Grants = slices.DeleteFunc(n.Grants, func(g protocol.Grant) bool { return g.ID == id })
	}
	delete(l.handed, id)
}

// Notifications returns what the steps since the last call of it had to tell
// clients other than their callers, and clears it.
func (l *Ledger) Notifications() map[string]*protocol.Notification {
	news := l.news
	l.news = nil
	return news
}
