package simulate

import (
	"cmp"
	"fmt"
	"maps"
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

// stood is how a key has been runnable since it came, or was last served, or had
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
func (j *judge) step(now int64, before, after *view, requests []protocol.Request, grants []protocol.Grant, told bool) error {
	asked := map[engine.ID]protocol.Request{}
	for _, r := range requests {
		if r.Kind == protocol.Ask {
			asked[r.ID] = r
		}
	}
	for _, g := range grants {
		r, ok := asked[g.ID]
		if !ok || r.Wait || r.Unfair || after.Limit != before.Limit || len(requests) > 1 || len(before.Pools) > 0 {
			continue // beside pools it gets what is left by those who wait
		}
		for n := after.leafOf(g.ID); n != nil && n.up != nil; n = n.up {
			for _, t := range n.up.below {
				for _, k := range t.classes {
					if s, ok := j.stands[k.name()]; ok && t != n && after.runnable(k) != nil && k.seq == s.seq {
						return fmt.Errorf("%v does not wait, and passes key %q", g.ID, t.Name)
					}
				}
			}
		}
	}
	if len(requests) == 1 && len(grants) == 1 && requests[0].ID == grants[0].ID && len(asked) == 1 {
		if err := left(see(before.Snapshot, now), after, &requests[0]); err != nil {
			return err
		}
	}
	if err := inLanes(before, after, asked, grants); err != nil {
		return err
	}
	if len(asked) == 0 && !told {
		if err := inOrder(now, before, after, requests, grants); err != nil {
			return err
		}
	}
	if err := seated(before, after, asked, grants); err != nil {
		return err
	}
	return j.bounded(after, grants, asked)
}

// left looks whether a permit for which nobody would wait takes only what all leave that wait. Nothing else happens in its step.
func left(before, after *view, r *protocol.Request) error {
	same := func(a, b ledger.Recorded) bool { return a.ID == b.ID && a.End == b.End }
	if r.Wait || r.Unfair || len(before.Pools) == 0 || before.Pools != after.Pools || before.Limit != after.Limit || before.Caps != after.Caps || !slices.EqualFunc(before.Waiters, after.Waiters, same) {
		return nil
	}
	p := before.newRound(false)
	if p.ready(none) != nil {
		return nil // a step has left something to this one
	}
	for pool, n := range r.Takes.All() {
		if p.awaited[pool] || n > before.amountOf(pool)-p.taken[pool] {
			return fmt.Errorf("%v takes %d of %q, which is kept free for others", r.ID, n, pool)
		}
	}
	for _, t := range append([]*tenant{before.root}, before.tenants...) {
		if weight := r.ID.Weight; (t == before.root || slices.Contains(path(r.Key), t.Name)) && weight > t.most-t.held-p.kept[t] {
			return fmt.Errorf("%v takes weight of %q that is kept free for others", r.ID, t.Name)
		}
	}
	return nil
}

// inLanes looks whether nobody is passed in a class.
func inLanes(before, after *view, asked map[engine.ID]protocol.Request, grants []protocol.Grant) error {
	for _, g := range grants {
		t := recorded(before.Waiters, g.ID)
		if _, asks := asked[g.ID]; asks || t == nil {
			continue
		}
		for i := range before.Waiters {
			o := &before.Waiters[i]
			if _, asks := asked[o.ID]; asks || o.Place >= t.Place || !after.Waits(o.ID) || before.leaf(o.Key) != before.leaf(t.Key) || before.setOf(o.ID) != before.setOf(t.ID) {
				continue
			}
			return fmt.Errorf("%v passes %v, which came before it and wants the same pools", g.ID, o.ID)
		}
	}
	return nil
}

// seated looks whether keys that wait all through a step, and are not served, keep their seats.
func seated(before, after *view, asked map[engine.ID]protocol.Request, grants []protocol.Grant) error {
	if !before.Keyed {
		return nil // seats are not written yet
	}
	waited, served := map[*class]bool{}, map[*class]bool{}
	for i := range before.Waiters {
		id := before.Waiters[i].ID
		if _, again := asked[id]; again || !after.Waits(id) { // it may have been dropped, and be back again
			continue
		}
		for n := after.leafOf(id); n.up != nil; n = n.up {
			waited[n.of(after.setOf(id))] = true
		}
	}
	for _, g := range grants {
		leaf := after.leafOf(g.ID)
		if leaf == nil {
			return nil // it is over again, and its key is not known
		}
		for ; leaf.up != nil; leaf = leaf.up {
			served[leaf.of(after.setOf(g.ID))] = true
		}
	}
	for n := range waited {
		was := before.find(n.Name)
		if was == nil || served[n] {
			continue
		}
		if b := was.of(n.set); b.seq > 0 && (b.base != n.base || b.seq != n.seq) {
			return fmt.Errorf("key %q waited for %q since %d as %d, and now since %d as %d", n.Name, n.set, b.base, b.seq, n.base, n.seq)
		}
	}
	return nil
}

// bounded counts how often a key is served before another one below the same key that stands
// at the same level, of those that wait for the same pools. The bound is the cost of the other's first ticket, divided by the least
// cost of these grants, and rounded up: once, if the costs are equal. One that stands at
// a lower level is not passed at all. A key that waits for several sets of pools may be passed: what it may
// still hold is kept free for one of them.
func (j *judge) bounded(after *view, grants []protocol.Grant, asked map[engine.ID]protocol.Request) error {
	now, classes, served := map[string]stood{}, map[string]*class{}, map[string]bool{}
	for _, t := range after.tenants {
		for _, n := range t.classes {
			classes[n.name()] = n
			if leaf := after.runnable(n); leaf != nil && len(t.classes) == 1 {
				now[n.name()] = stood{n.seq, n.level(n.counts(n.pools())), n.shares(), leaf.queue[0].ID}
			}
		}
	}
	was := map[*tenant]tenant{} // before the step
	for _, t := range after.tenants {
		c := *t
		c.with = maps.Clone(t.with)
		was[t] = c
	}
	count := func(id engine.ID, sign int) {
		for n := after.leafOf(id); n != nil && n.up != nil; n = n.up {
			c := was[n]
			c.held += sign * id.Weight
			for pool := range takesOf(after.entry(id)) {
				c.with[pool] += sign * id.Weight
			}
			was[n] = c
		}
	}
	for _, g := range grants {
		for n := after.leafOf(g.ID); n != nil && n.up != nil; n = n.up {
			served[n.of(after.setOf(g.ID)).name()] = true
		}
		count(g.ID, -1)
	}
	for name, s := range j.stands {
		_, again := asked[s.first] // it may have been silent, and dropped, and back again
		if n, ok := now[name]; ok && n == s && !served[name] && !again {
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
		for n := after.leafOf(g.ID); n != nil && n.up != nil && !asked[g.ID].Unfair; n = n.up { // it may be over again
			c, of := was[n], n.of(after.setOf(g.ID))
			then := class{tenant: &c, set: of.set}
			level := then.level(then.counts(then.pools()))
			for waits, s := range j.stands {
				if other := classes[waits]; other.up == n.up && other.set == of.set {
					if err := j.servedBefore(of, other, s, level, g.ID.Weight); err != nil {
						return err
					}
				}
			}
		}
		count(g.ID, 1)
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

// servedBefore notes that a class was served at a level, with a weight, while another one beside it stands.
func (j *judge) servedBefore(served, other *class, stands stood, level, weight int) error {
	switch {
	case level > stands.level:
		return fmt.Errorf("key %q was served at level %d before %q, which stands at level %d", served.Name, level, other.Name, stands.level)
	case level < stands.level:
		return nil
	}
	if j.passed == nil {
		j.passed = map[[2]string]passing{}
	}
	pair, cost := [2]string{other.name(), served.name()}, served.cost(weight)
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
func inOrder(at int64, before, after *view, requests []protocol.Request, grants []protocol.Grant) error {
	if len(grants) == 0 || before.rated() != after.rated() || after.rated() && (before.Pools != after.Pools || before.Cooldown > at || slices.ContainsFunc(requests, func(r protocol.Request) bool { return r.Pools != "" })) {
		return nil // what was not used of a rate, or is left of one that changed, is for package ledger to say
	}
	now := carriedOut(at, before, after, requests)
	if now.unseen() {
		return nil
	}
	granted := map[engine.ID]bool{}
	for _, g := range grants {
		granted[g.ID] = true
	}
	gone := func(id engine.ID) bool { return after.entry(id) == nil && !granted[id] }
	silent := func(id engine.ID) bool { // dropped where it is met, though a pool blocks it
		t := before.entry(id)
		return gone(id) && t.Lease == 0 && t.End <= at
	}
	for dropped := false; len(grants) > 0; {
		leaf := now.newRound(true).ready(silent)
		if !dropped && (leaf == nil || len(now.Pools) > 0 && leaf.queue[0].ID != grants[0].ID && !gone(leaf.queue[0].ID)) {
			// Then the step dropped tickets of clients that it could not tell of the end of the first lease. The others
			// may be in another order without them.
			dropped = true
			for _, t := range now.tenants {
				for _, n := range t.classes {
					n.queue = slices.DeleteFunc(n.queue, func(r *ledger.Recorded) bool { return gone(r.ID) })
				}
			}
			continue
		}
		if leaf == nil {
			return fmt.Errorf("%v is granted, and no key is runnable", grants[0].ID)
		}
		first := leaf.queue[0].ID
		if first != grants[0].ID && after.entry(first) != nil {
			return fmt.Errorf("%v of %v is granted, and %v of %q was next", grants[0].ID, after.TargetOf(grants[0].ID), first, leaf.Name)
		}
		takes := takesOf(leaf.queue[0])
		leaf.queue = leaf.queue[1:]
		if first != grants[0].ID {
			continue // its client was silent, or could not be told
		}
		for t := leaf.tenant; t.up != nil; t = t.up {
			n := t.of(leaf.set)
			now.Seq++
			t.up.Time = max(t.up.Time, n.tag(first.Weight))
			n.base, n.seq = t.up.Time, now.Seq
			t.held += first.Weight
			for pool := range takes {
				if t.with == nil {
					t.with = map[string]int{}
				}
				t.with[pool] += first.Weight
			}
		}
		for pool, n := range takes {
			if now.taken[pool]+n > now.amountOf(pool) {
				return fmt.Errorf("%v is granted beyond pool %q", first, pool)
			}
			if now.taken[pool] += n; now.rate(pool) {
				now.taken[pool] = now.spend(pool, n, at)
			}
		}
		if now.root.held += first.Weight; now.root.held > now.Limit {
			return fmt.Errorf("%v is granted beyond the limit", first)
		}
		grants = grants[1:]
	}
	return nil
}

// unseen reports whether a key below another, or one that waits for several sets of pools, is full by a smaller cap of all keys, and the ledger has
// not looked yet. It looks when the first ticket of the key comes. Until then the weight of
// that ticket counts for the keys above.
func (v *view) unseen() bool {
	for _, t := range v.tenants {
		for _, n := range t.classes {
			if leaf := v.runnable(n); leaf != nil && t.blocks(leaf.queue[0].ID.Weight) && (leaf.up != v.root || len(t.classes) > 1) {
				return true
			}
		}
	}
	return false
}

// carriedOut is the view before a step, with the step's requests carried out and nothing
// granted yet. None of the requests asks for a permit. A release counts if its permit or
// ticket is missing after the step.
func carriedOut(at int64, before, after *view, requests []protocol.Request) *view {
	s := before.Snapshot
	s.Limit, s.Keys, s.Rates = before.enforced, slices.Clone(s.Keys), map[string]ledger.Rate{}
	maps.Copy(s.Rates, before.Rates)
	of := func(name string) *ledger.RecordedKey {
		i := slices.IndexFunc(s.Keys, func(k ledger.RecordedKey) bool { return k.Name == name && k.Set == "" })
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
			if watched := s.Observed != nil; r.Auto == nil && s.Limit > 0 && watched != (r.Observe || watched && r.Limit == 0) {
				if s.Observed = nil; !watched {
					s.Observed = &ledger.Observed{}
				}
			}
			for i, c := range r.Caps {
				if s.Limit > 0 && c != 0 {
					s.Caps[i] = max(0, c)
				}
			}
			s.Pools = changed(s.Pools, r.Pools)
		case protocol.SetKey:
			if k := of(string(r.Key)); s.Limit > 0 {
				k.Cap, k.Share = cmp.Or(r.Cap, k.Cap), cmp.Or(r.Share, k.Share)
			}
		case protocol.UnsetKey:
			k := of(string(r.Key))
			k.Cap, k.Share = 0, 0
		}
	}
	return see(s, at)
}

// changed are pools of which some have other amounts; 0 ends one.
func changed(all, some engine.Pools) engine.Pools {
	if some == "" {
		return all
	}
	amounts := all.Map()
	maps.Copy(amounts, some.Map())
	maps.DeleteFunc(amounts, func(_ string, n int) bool { return n == 0 })
	all, _ = engine.NewPools(amounts, 1)
	return all
}
