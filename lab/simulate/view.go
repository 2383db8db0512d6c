package simulate

import (
	"cmp"
	"math"

	"sema/engine"
	"sema/internal/ledger"
)

// view is what a ledger has written at one moment. The view adds up the weights and sorts
// the keys itself, as a judge of the ledger. It does not change.
type view struct {
	ledger.Snapshot
	used    int       // the weight that is held
	tenants []*tenant // the keys that hold, wait or have a rule
}

// tenant is one of the keys that share a semaphore.
type tenant struct {
	ledger.RecordedKey
	most  int // how much weight it may hold
	held  int
	queue []*ledger.Recorded // by place
}

// see is the view of a snapshot.
func see(s ledger.Snapshot) *view {
	v := &view{Snapshot: s}
	for _, k := range s.Keys {
		v.tenant(k.Name).RecordedKey = k
	}
	for i := range s.Holders {
		weight := s.Holders[i].ID.Weight
		v.used += weight
		v.tenant(s.Holders[i].Key).held += weight
	}
	for i := range s.Waiters {
		t := v.tenant(s.Waiters[i].Key)
		t.queue = append(t.queue, &s.Waiters[i])
	}
	for _, t := range v.tenants {
		t.most = v.capOf(t)
	}
	return v
}

// find is a key that the view has; nil if it has none of this name.
func (v *view) find(name string) *tenant {
	for _, t := range v.tenants {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// tenant finds a key, or makes it.
func (v *view) tenant(name string) *tenant {
	t := v.find(name)
	if t == nil {
		t = &tenant{RecordedKey: ledger.RecordedKey{Name: name}}
		v.tenants = append(v.tenants, t)
	}
	return t
}

// capOf is how much weight a key may hold: its own cap, or that of all keys.
func (v *view) capOf(t *tenant) int {
	switch {
	case t.Cap > 0:
		return t.Cap
	case t.Name != "" && v.PerKey > 0:
		return v.PerKey
	}
	return engine.MaxLimit
}

// inTurn reports whether a key waits, and the ledger does not say that it is full.
func (t *tenant) inTurn() bool { return len(t.queue) > 0 && !t.Full }

// lacks reports whether a key must give back something before its first ticket may be
// served. A ticket beyond the cap is not held up by that: it is dropped.
func (t *tenant) lacks() bool {
	weight := t.queue[0].ID.Weight
	return weight <= t.most && weight > t.most-t.held
}

// shares is the key's share: its own, or the default.
func (t *tenant) shares() int { return cmp.Or(t.Share, engine.DefaultShare) }

// level is how many whole shares a key holds if it holds a weight.
func (t *tenant) level(held int) int { return held * engine.DefaultShare / t.shares() }

// cost is how much virtual time a weight takes of a key: 1000 for each share of it, 1 at
// the least.
func (t *tenant) cost(weight int) int64 { return max(1, int64(weight)*1000/int64(t.shares())) }

// tag is the virtual time after the key's first ticket.
func (t *tenant) tag() int64 { return t.Base + t.cost(t.queue[0].ID.Weight) }

// byTurn is the order of the keys in turn.
func byTurn(a, b *tenant) int {
	return cmp.Or(cmp.Compare(a.level(a.held), b.level(b.held)), cmp.Compare(a.tag(), b.tag()), cmp.Compare(a.Seq, b.Seq))
}

// first is the first in turn of the keys that may be served; nil if there is none.
func (v *view) first(may func(*tenant) bool) (first *tenant) {
	for _, t := range v.tenants {
		if may(t) && (first == nil || byTurn(t, first) < 0) {
			first = t
		}
	}
	return first
}

// Next is the ticket that gets the next free weight; ok is false if none could have it.
func (v *view) Next() (id engine.ID, ok bool) {
	t := v.first((*tenant).inTurn)
	if t == nil {
		return engine.ID{}, false
	}
	return t.queue[0].ID, true
}

// EachInTurn calls f for each key in turn, with its first ticket.
func (v *view) EachInTurn(f func(key string, first engine.ID)) {
	for _, t := range v.tenants {
		if t.inTurn() {
			f(t.Name, t.queue[0].ID)
		}
	}
}

// KeyLoad is what a key holds, and may hold.
func (v *view) KeyLoad(name string) (held, most int) {
	if t := v.find(name); t != nil {
		return t.held, t.most
	}
	return 0, v.capOf(&tenant{RecordedKey: ledger.RecordedKey{Name: name}})
}

// recorded finds a permit or ticket in a list; nil if there is none.
func recorded(list []ledger.Recorded, id engine.ID) *ledger.Recorded {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

// entry is the permit or the ticket of an id; nil if there is none.
func (v *view) entry(id engine.ID) *ledger.Recorded {
	if h := recorded(v.Holders, id); h != nil {
		return h
	}
	return recorded(v.Waiters, id)
}

// KeyOf is the key of a permit or ticket; "" if there is none.
func (v *view) KeyOf(id engine.ID) string {
	if r := v.entry(id); r != nil {
		return r.Key
	}
	return ""
}

// LeaseEnd is when the lease of a permit ends; ok is false if there is no such permit.
func (v *view) LeaseEnd(id engine.ID) (end int64, ok bool) {
	if h := recorded(v.Holders, id); h != nil {
		return h.End, true
	}
	return 0, false
}

// Waits reports whether there is a ticket of this id.
func (v *view) Waits(id engine.ID) bool { return recorded(v.Waiters, id) != nil }

// Queues reports whether a ticket would be served in its turn: its client has asked in time.
func (v *view) Queues(now int64, id engine.ID) bool {
	t := recorded(v.Waiters, id)
	return t != nil && endOf(t) > now
}

// endOf is when a lease or a ticket ends. A ticket that lasts has no end.
func endOf(r *ledger.Recorded) int64 {
	if r.Lease > 0 {
		return math.MaxInt64
	}
	return r.End
}

// Each calls f for every permit and every ticket.
func (v *view) Each(f func(id engine.ID, end int64, detached bool)) {
	for _, list := range [][]ledger.Recorded{v.Holders, v.Waiters} {
		for i := range list {
			f(list[i].ID, endOf(&list[i]), list[i].Detached)
		}
	}
}

// Callers is how many callers of a client wait: its tickets, and those behind them.
func (v *view) Callers(client string) (n int) {
	for i := range v.Waiters {
		if t := &v.Waiters[i]; t.ID.Client == client {
			n += 1 + t.Behind
		}
	}
	return n
}

// NextEnd is when the first lease ends; ok is false without any.
func (v *view) NextEnd() (end int64, ok bool) {
	for i := range v.Holders {
		if h := &v.Holders[i]; !ok || h.End < end {
			end, ok = h.End, true
		}
	}
	return end, ok
}
