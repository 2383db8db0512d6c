package ledger

import (
	"cmp"
	"fmt"

	"sema/engine"
)

// Audit looks whether what the ledger keeps twice is the same: the weight that is
// held, in all and for each key, and where each key stands. It is for tests and the
// simulator.
func (l *Ledger) Audit() error {
	held, used := map[*key]int{}, 0
	for id, h := range l.holders {
		held[h.key] += id.Weight
		used += id.Weight
	}
	if used != l.used {
		return fmt.Errorf("%d is held, and %d counted", used, l.used)
	}
	waiting := 0
	for _, k := range l.keys.all {
		waiting += bit(len(k.queue) > 0)
		switch {
		case k.held != held[k]:
			return fmt.Errorf("key %q holds %d, and %d is counted", k.name, held[k], k.held)
		case k.idle() && l.keys.on:
			return fmt.Errorf("key %q is remembered for nothing", k.name)
		case (k.where == nowhere) != (len(k.queue) == 0):
			return fmt.Errorf("key %q with %d tickets is at %d", k.name, len(k.queue), k.where)
		}
		delete(held, k)
	}
	for k := range held {
		return fmt.Errorf("key %q holds %d, and is forgotten", k.name, held[k])
	}
	ks := &l.keys
	if waiting != len(ks.turn)+len(ks.aside) {
		return fmt.Errorf("%d keys wait, and %d and %d stand", waiting, len(ks.turn), len(ks.aside))
	}
	for i, k := range ks.turn {
		if k.where != inTurn || k.level != k.held*engine.DefaultShare/k.shares() || k.tag != k.base+k.cost(k.queue[0].id.Weight) {
			return fmt.Errorf("key %q stands at level %d with tag %d: %+v", k.name, k.level, k.tag, k)
		}
		if i == 0 {
			continue
		}
		if o := ks.turn[i-1]; cmp.Or(cmp.Compare(o.level, k.level), cmp.Compare(o.tag, k.tag), cmp.Compare(o.seq, k.seq)) >= 0 {
			return fmt.Errorf("key %q stands after %q", k.name, o.name)
		}
	}
	for _, k := range ks.aside {
		if k.epoch != ks.epoch && len(ks.aside) < maxSwept {
			return fmt.Errorf("key %q stands aside for a cap of the past", k.name)
		}
		if k.epoch == ks.epoch && !l.lacks(k, k.queue[0].id.Weight) {
			return fmt.Errorf("key %q is said to be full: it holds %d of %d", k.name, k.held, l.capOf(k))
		}
	}
	return nil
}

// Next is the ticket that the next weight that comes free goes to, as written; ok is
// false if none could have it.
func (l *Ledger) Next() (id engine.ID, ok bool) {
	if len(l.keys.turn) == 0 {
		return engine.ID{}, false
	}
	return l.keys.turn[0].queue[0].id, true
}

// EachInTurn calls f for each key in turn, in their order, with its first ticket.
func (l *Ledger) EachInTurn(f func(key string, first engine.ID)) {
	for _, k := range l.keys.turn {
		f(k.name, k.queue[0].id)
	}
}

// KeyOf is the key of a permit or ticket, as written; "" if there is none.
func (l *Ledger) KeyOf(id engine.ID) string {
	if h := l.holders[id]; h != nil {
		return h.key.name
	}
	if t := l.tickets[id]; t != nil {
		return t.key.name
	}
	return ""
}

// KeyLoad is what a key holds, and may hold, as written.
func (l *Ledger) KeyLoad(name string) (held, most int) {
	k := l.keys.all[name]
	if k == nil {
		k = &key{name: name}
	}
	return k.held, l.capOf(k)
}
