package ledger

import (
	"slices"

	"sema/engine"
)

func (l *Ledger) reach(client string) bool {
	return client == l.caller || l.Reach == nil || l.Reach(client)
}

func (l *Ledger) tell(client string) *engine.Notification {
	if l.news == nil {
		l.news = map[string]*engine.Notification{}
	}
	n := l.news[client]
	if n == nil {
		n = &engine.Notification{}
		l.news[client] = n
	}
	return n
}

func (l *Ledger) handed(id engine.ID) bool {
	n := l.news[id.Client]
	return n != nil && slices.ContainsFunc(n.Grants, func(g engine.Grant) bool { return g.ID == id })
}

func (l *Ledger) untell(id engine.ID) {
	if n := l.news[id.Client]; n != nil {
		n.Grants = slices.DeleteFunc(n.Grants, func(g engine.Grant) bool { return g.ID == id })
	}
}

func (l *Ledger) Notifications() map[string]*engine.Notification {
	news := l.news
	l.news = nil
	return news
}
