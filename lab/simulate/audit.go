package simulate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// dawn is a time before all others. State at dawn shows everything and ends nothing: no
// lease is over yet, and no ticket.
const dawn = 0

// Audit loads a second ledger from the view, and compares both. Loading adds up the
// weights and sorts the keys anew. So a sum or an order that the first has let drift is
// different in the second. The error has both.
func (b *book) Audit() error {
	if b.Limit == 0 || b.audited == b.view {
		return nil
	}
	written := b.Snapshot
	written.Limit = b.enforced
	anew := ledger.Load(written)
	if s := anew.Save(); !sameSnapshot(s, written) {
		return fmt.Errorf("%+v is written, and read as %+v", written, s)
	}
	if is, want := b.ledger.State(dawn), anew.State(dawn); !sameState(is, want) {
		return fmt.Errorf("the ledger shows %+v, and what it has written %+v", is, want)
	}
	for _, p := range b.ledger.State(dawn).Pools {
		if p.Per == 0 && p.Used != b.taken[p.Pool] {
			return fmt.Errorf("%d of pool %q is said to be used, and permits have %d", p.Used, p.Pool, b.taken[p.Pool])
		}
	}
	b.audited = b.view
	return nil
}

// sound reports a contradiction within a view; nil if there is none.
func (v *view) sound() error {
	if n := len(v.Holders) + len(v.Waiters); v.Limit == 0 && n > 0 {
		return fmt.Errorf("there is no semaphore, and it has %d permits and tickets", n)
	}
	waits, p := map[*tenant]bool{}, v.newRound(false)
	for _, t := range slices.Backward(v.tenants) {
		for _, n := range t.classes {
			for k := t; len(n.queue) > 0 && k != nil; k = k.up {
				waits[k] = true
			}
		}
	}
	for _, t := range v.tenants {
		switch {
		case t.held == 0 && !t.Ruled && !waits[t] && len(t.below) == 0:
			return fmt.Errorf("key %q is remembered for nothing", t.Name)
		case !t.Above && slices.ContainsFunc(t.below, func(k *tenant) bool { return k.held > 0 || waits[k] }):
			return fmt.Errorf("key %q has others below it, and is not said to", t.Name)
		}
		first := p.first(t, func(string) bool { return true })
		for _, n := range t.classes {
			leaf := p.next(n)
			switch {
			case leaf == nil && n.full:
				return fmt.Errorf("key %q is said to be full, and nobody waits", t.Name)
			case n.full && n.epoch != v.Epoch:
				return fmt.Errorf("key %q is full by a cap of the past", t.Name)
			case n.full && !t.blocks(leaf.queue[0].ID.Weight) && !t.blocks(first.queue[0].ID.Weight):
				return fmt.Errorf("key %q is said to be full, and holds %d of %d", t.Name, t.held, t.most)
			case n.seq == 0 && v.Keyed:
				return fmt.Errorf("key %q waits for %q, and has no seat", t.Name, n.set)
			}
		}
	}
	return nil
}

// sameSnapshot does for snapshots the same as reflect.DeepEqual, but compares lists faster.
func sameSnapshot(a, b ledger.Snapshot) bool {
	if !slices.Equal(a.Holders, b.Holders) || !slices.Equal(a.Waiters, b.Waiters) || !slices.Equal(a.Keys, b.Keys) || !maps.Equal(a.Fences, b.Fences) {
		return false
	}
	a.Holders, a.Waiters, a.Keys, a.Fences = b.Holders, b.Waiters, b.Keys, b.Fences
	return reflect.DeepEqual(a, b)
}

// sameState does so for states.
func sameState(a, b engine.State) bool {
	if !slices.Equal(a.Holders, b.Holders) || !slices.Equal(a.Waiters, b.Waiters) || !slices.Equal(a.Keys, b.Keys) {
		return false
	}
	a.Holders, a.Waiters, a.Keys = b.Holders, b.Waiters, b.Keys
	return reflect.DeepEqual(a, b)
}

// book is the server's ledger with a view of it. Each method that may change the ledger
// makes the view anew.
type book struct {
	ledger *ledger.Ledger
	*view
	audited *view // the last one that Audit found right
}

// newBook is the book of a ledger. Only the book may change the ledger from now on.
func newBook(l *ledger.Ledger) *book { return &book{ledger: l, view: see(l.Save(), 0)} }

// look makes the view anew.
func (b *book) look(now int64) { b.view = see(b.ledger.Save(), now) }

// Step carries out a call. news is what it tells the clients, the caller excepted.
func (b *book) Step(now int64, client string, c protocol.Call) (reply protocol.Reply, news map[string]*protocol.Notification) {
	reply = b.ledger.Step(now, client, engine.Client{Host: client}, c)
	b.look(now)
	return reply, b.ledger.Notifications()
}

// Expire ends the leases that are over, and a semaphore that nobody has used for long.
// If there is neither, it does nothing: that saves time.
func (b *book) Expire(now int64) {
	if first, held := b.NextEnd(); now >= b.Keep || held && first <= now {
		b.ledger.Over(now)
		b.look(now)
	}
}

// Reap ends everything of dead clients, and returns what that tells the others.
func (b *book) Reap(now int64, dead []string) (news map[string]*protocol.Notification) {
	b.ledger.Reap(now, func(client string) bool { return slices.Contains(dead, client) })
	b.look(now)
	return b.ledger.Notifications()
}

// Reports is what clients have reported of late.
func (b *book) Reports(now int64) protocol.Reports { return b.ledger.Reports(now) }
