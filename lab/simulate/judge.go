package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// judge looks at steps of a ledger from outside: whether grants keep the order among
// keys and its bound. It works that out from views. The zero value is ready.
type judge struct {
	stands map[string]stood
	passed map[[2]string]passing // one key stands, the other was served
}

// stood is how a key has stood in turn since it came, or was last served, or had
// another first ticket.
type stood struct {
	seq          int64
	level, share int
	first        engine.ID
}

// passing is how often a key was served before another one that stood at its level.
type passing struct {
	times int64
	least int64 // the least that one of these cost
}

// step looks at a step, from the views right before and after it. Leases that are over
// must have ended before. grants are those of the step, those in answers included, in the
// order of their tokens. told is whether a client was told to ask again.
func (j *judge) step(before, after *view, requests []protocol.Request, grants []protocol.Grant, told bool) error {
	asked := map[engine.ID]protocol.Request{}
	for _, r := range requests {
		if r.Kind == protocol.Ask {
			asked[r.ID] = r
		}
	}
	for _, g := range grants {
		r, ok := asked[g.ID]
		if !ok || r.Wait || r.Unfair || after.Limit != before.Limit || len(requests) > 1 {
			continue
		}
		for n := after.leafOf(g.ID); n != nil && n.up != nil; n = n.up {
			for name, s := range j.stands {
				if t := after.find(name); t != nil && t != n && t.up == n.up && t.inTurn() != nil && t.Seq == s.seq {
					return fmt.Errorf("%v does not wait, and passes key %q", g.ID, name)
				}
			}
		}
	}
	if len(asked) == 0 && !told {
		if err := inOrder(before, after, requests, grants); err != nil {
			return err
		}
	}
	if err := seated(before, after, asked, grants); err != nil {
		return err
	}
	return j.bounded(after, grants, asked)
}

// seated looks whether keys that wait all through a step, and are not served, keep their seats.
func seated(before, after *view, asked map[engine.ID]protocol.Request, grants []protocol.Grant) error {
	if !before.Keyed {
		return nil // seats are not written yet
	}
	waited, served := map[*tenant]bool{}, map[*tenant]bool{}
	for i := range before.Waiters {
		id := before.Waiters[i].ID
		if _, again := asked[id]; again || !after.Waits(id) { // it may have been dropped, and be back again
			continue
		}
		for n := after.leafOf(id); n.up != nil; n = n.up {
			waited[n] = true
		}
	}
	for _, g := range grants {
		leaf := after.leafOf(g.ID)
		if leaf == nil {
			return nil // it is over again, and its key is not known
		}
		for ; leaf.up != nil; leaf = leaf.up {
			served[leaf] = true
		}
	}
	for n := range waited {
		if was := before.find(n.Name); was != nil && !served[n] && (was.Base != n.Base || was.Seq != n.Seq) {
			return fmt.Errorf("key %q waited since %d as %d, and now since %d as %d", n.Name, was.Base, was.Seq, n.Base, n.Seq)
		}
	}
	return nil
}

// bounded counts how often a key is served before another one below the same key that stands
// at the same level. The bound is the cost of the other's first ticket, divided by the least
// cost of these grants, and rounded up: once, if the costs are equal. One that stands at
// a lower level is not passed at all.
func (j *judge) bounded(after *view, grants []protocol.Grant, asked map[engine.ID]protocol.Request) error {
	now, served, held := map[string]stood{}, map[*tenant]bool{}, map[*tenant]int{}
	for _, t := range after.tenants {
		held[t] = t.held
		if leaf := t.inTurn(); leaf != nil {
			now[t.Name] = stood{t.Seq, t.level(t.held), t.shares(), leaf.queue[0].ID}
		}
	}
	for _, g := range grants {
		for n := after.leafOf(g.ID); n != nil; n = n.up {
			served[n] = true
			held[n] -= g.ID.Weight // before the step
		}
	}
	for name, s := range j.stands {
		_, again := asked[s.first] // it may have been silent, and dropped, and back again
		if n, ok := now[name]; ok && n == s && !served[after.find(name)] && !again {
			continue
		}
		delete(j.stands, name)
		for pair := range j.passed {
			if pair[0] == name {
				delete(j.passed, pair)
			}
		}
	}
	for _, g := range grants {
		for n := after.leafOf(g.ID); n != nil && n.up != nil; n = n.up { // it may be over again
			level := n.level(held[n])
			held[n] += g.ID.Weight
			if asked[g.ID].Unfair {
				continue
			}
			for waits, s := range j.stands {
				if other := after.find(waits); other.up == n.up {
					if err := j.pass(n, other, s, level, g.ID.Weight); err != nil {
						return err
					}
				}
			}
		}
	}
	if j.stands == nil {
		j.stands = map[string]stood{}
	}
	for name, s := range now {
		if _, ok := j.stands[name]; !ok {
			j.stands[name] = s
		}
	}
	return nil
}

// pass notes that a key was served at a level, with a weight, while another one beside it stands.
func (j *judge) pass(served, other *tenant, stands stood, level, weight int) error {
	switch {
	case level > stands.level:
		return fmt.Errorf("key %q was served at level %d before %q, which stands at level %d", served.Name, level, other.Name, stands.level)
	case level < stands.level:
		return nil
	}
	if j.passed == nil {
		j.passed = map[[2]string]passing{}
	}
	pair, cost := [2]string{other.Name, served.Name}, served.cost(weight)
	p := j.passed[pair]
	if p.times++; p.times == 1 || cost < p.least {
		p.least = cost
	}
	j.passed[pair] = p
	if most := max(1, (other.cost(stands.first.Weight)+p.least-1)/p.least); p.times > most {
		return fmt.Errorf("key %q was served %d times at level %d before %q, at the most %d expected", served.Name, p.times, level, other.Name, most)
	}
	return nil
}

// inOrder works out the grants of a step that asks for nothing, and compares.
func inOrder(before, after *view, requests []protocol.Request, grants []protocol.Grant) error {
	if len(grants) == 0 {
		return nil
	}
	now := carriedOut(before, after, requests)
	if now.unseen() {
		return nil
	}
	granted := map[engine.ID]bool{}
	for _, g := range grants {
		granted[g.ID] = true
	}
	for dropped := false; len(grants) > 0; {
		leaf := now.root.next(hasRoom)
		if leaf == nil {
			return fmt.Errorf("%v is granted, and no key is in turn", grants[0].ID)
		}
		first := leaf.queue[0].ID
		if first != grants[0].ID && after.entry(first) != nil && !dropped && first.Weight > now.Limit-now.root.held {
			// Then the step dropped tickets of clients that it could not tell of the end of the first lease. The others
			// may be in another order without them.
			dropped = true
			for _, t := range now.tenants {
				t.queue = slices.DeleteFunc(t.queue, func(r *ledger.Recorded) bool { return after.entry(r.ID) == nil && !granted[r.ID] })
			}
			continue
		}
		if first != grants[0].ID && after.entry(first) != nil {
			return fmt.Errorf("%v of key %q is granted, and %v of %q was next", grants[0].ID, after.KeyOf(grants[0].ID), first, leaf.Name)
		}
		leaf.queue = leaf.queue[1:]
		if first != grants[0].ID {
			continue // its client was silent, or could not be told
		}
		for n := leaf; n.up != nil; n = n.up {
			now.Seq++
			n.up.Time = max(n.up.Time, n.tag(first.Weight))
			n.Base, n.Seq = n.up.Time, now.Seq
			n.held += first.Weight
		}
		if now.root.held += first.Weight; now.root.held > now.Limit {
			return fmt.Errorf("%v is granted beyond the limit", first)
		}
		grants = grants[1:]
	}
	return nil
}

// unseen reports whether a key below another is full by a smaller cap of all keys, and the ledger has
// not looked yet. It looks when the first ticket of the key comes. Until then the weight of
// that ticket counts for the keys above.
func (v *view) unseen() bool {
	for _, t := range v.tenants {
		if leaf := t.inTurn(); leaf != nil && t.lacks(leaf.queue[0].ID.Weight) && leaf.up != v.root {
			return true
		}
	}
	return false
}

// carriedOut is the view before a step, with the step's requests carried out and nothing
// granted yet. None of the requests asks for a permit. A release counts if its permit or
// ticket is missing after the step.
func carriedOut(before, after *view, requests []protocol.Request) *view {
	s := before.Snapshot
	s.Keys = slices.Clone(s.Keys)
	of := func(name string) *ledger.RecordedKey {
		i := slices.IndexFunc(s.Keys, func(k ledger.RecordedKey) bool { return k.Name == name })
		if i < 0 {
			i, s.Keys = len(s.Keys), append(s.Keys, ledger.RecordedKey{Name: name})
		}
		return &s.Keys[i]
	}
	for i := range requests {
		switch r := &requests[i]; r.Kind {
		case protocol.Release:
			if after.entry(r.ID) == nil {
				of := func(o ledger.Recorded) bool { return o.ID == r.ID }
				s.Holders = slices.DeleteFunc(slices.Clone(s.Holders), of)
				s.Waiters = slices.DeleteFunc(slices.Clone(s.Waiters), of)
			}
		case protocol.SetLimit:
			if r.Auto != nil && (s.Pinned || s.Limit == 0) {
				continue // an operator's holds
			}
			s.Limit = cmp.Or(r.Limit, s.Limit)
			for i, c := range r.Caps {
				if s.Limit > 0 && c != 0 {
					s.Caps[i] = max(0, c)
				}
			}
		case protocol.SetKey:
			if k := of(r.Key); s.Limit > 0 {
				k.Cap, k.Share = cmp.Or(r.Cap, k.Cap), cmp.Or(r.Share, k.Share)
			}
		case protocol.UnsetKey:
			k := of(r.Key)
			k.Cap, k.Share = 0, 0
		}
	}
	return see(s)
}
