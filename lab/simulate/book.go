package simulate

import (
	"slices"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// book is the server's ledger with a view of it. Each method that may change the ledger
// makes the view anew.
type book struct {
	ledger *ledger.Ledger
	*view
	audited *view // the last one that Audit found right
}

// newBook is the book of a ledger. Only the book may change the ledger from now on.
func newBook(l *ledger.Ledger) *book { return &book{ledger: l, view: see(l.Save())} }

// look makes the view anew.
func (b *book) look() { b.view = see(b.ledger.Save()) }

// Step carries out a call. news is what it tells the clients, the caller excepted.
func (b *book) Step(now int64, client string, c protocol.Call) (reply protocol.Reply, news map[string]*protocol.Notification) {
	reply = b.ledger.Step(now, client, engine.Client{Host: client}, c)
	b.look()
	return reply, b.ledger.Notifications()
}

// Expire ends the leases that are over, and a semaphore that nobody has used for long.
// If there is neither, it does nothing: that saves time.
func (b *book) Expire(now int64) {
	if first, held := b.NextEnd(); now >= b.Keep || held && first <= now {
		b.ledger.Over(now)
		b.look()
	}
}

// Reap ends everything of dead clients, and returns what that tells the others.
func (b *book) Reap(now int64, dead []string) (news map[string]*protocol.Notification) {
	b.ledger.Reap(now, func(client string) bool { return slices.Contains(dead, client) })
	b.look()
	return b.ledger.Notifications()
}

// Reports is what clients have reported of late.
func (b *book) Reports(now int64) protocol.Reports { return b.ledger.Reports(now) }
