package ledger

import (
	"cmp"
	"fmt"
	"slices"

	"sema/engine"
)

// Judge looks at steps of a ledger from outside: whether grants keep the order among
// keys and its bound. What it compares with it works out anew, without what the
// ledger keeps sorted. It is for tests and the simulator. The zero value is ready.
type Judge struct {
	before Snapshot
	stands map[string]stood
	passed map[[2]string]passing // one key stands, the other was served
}

// stood is how a key has stood in turn since it came, or was last served, or had
// another head.
type stood struct {
	seq          int64
	level, share int
	head         engine.ID
}

// passing is how often a key was served before another one that stood at its level.
type passing struct {
	times int64
	least int64 // the least that one of these cost
}

// Before is called right before a step. Leases that are over have to have been ended.
func (j *Judge) Before(l *Ledger) { j.before = l.Save() }

// After is called right after it. grants are those of the step, in the order of their
// tokens, those in answers included; told is whether a client was told to ask again.
func (j *Judge) After(l *Ledger, requests []engine.Request, grants []engine.Grant, told bool) error {
	asked := map[engine.ID]engine.Request{}
	for _, r := range requests {
		if r.Kind == engine.Ask {
			asked[r.ID] = r
		}
	}
	for _, g := range grants {
		r, ok := asked[g.ID]
		if !ok || r.Wait || r.Unfair || l.limit != j.before.Limit || len(requests) > 1 {
			continue
		}
		for name, s := range j.stands {
			if k := l.keys.all[name]; name != l.KeyOf(g.ID) && k != nil && k.where == inTurn && k.seq == s.seq {
				return fmt.Errorf("%v does not wait, and passes key %q", g.ID, name)
			}
		}
	}
	if len(asked) == 0 && !told {
		if err := j.inOrder(l, requests, grants); err != nil {
			return err
		}
	}
	return j.bounded(l, grants, asked)
}

// bounded counts how often keys are served before others that stand: at the same
// level no more often than the cost of the one's head is that of the other's, and
// once if they cost the same.
func (j *Judge) bounded(l *Ledger, grants []engine.Grant, asked map[engine.ID]engine.Request) error {
	now, served, held := map[string]stood{}, map[string]bool{}, map[string]int{}
	for _, k := range l.keys.turn {
		now[k.name] = stood{k.seq, k.level, k.shares(), k.queue[0].id}
	}
	for _, g := range grants {
		name := l.KeyOf(g.ID)
		served[name] = true
		if _, ok := held[name]; !ok {
			held[name], _ = l.KeyLoad(name)
		}
		held[name] -= g.ID.Weight // before the step
	}
	for name, s := range j.stands {
		_, again := asked[s.head] // it may have been silent, and dropped, and back again
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
		name := l.KeyOf(g.ID)
		k := l.keys.all[name]
		if k == nil {
			continue // it is over again
		}
		level := held[name] * engine.DefaultShare / k.shares()
		held[name] += g.ID.Weight
		if asked[g.ID].Unfair {
			continue
		}
		for waits, s := range j.stands {
			if waits == name || s.level != level {
				continue
			}
			if j.passed == nil {
				j.passed = map[[2]string]passing{}
			}
			pair := [2]string{waits, name}
			p := j.passed[pair]
			p.times++
			p.least = min(cmp.Or(p.least, k.cost(g.ID.Weight)), k.cost(g.ID.Weight))
			j.passed[pair] = p
			own := l.keys.all[waits].cost(s.head.Weight)
			if most := max(1, (own+p.least-1)/p.least); p.times > most {
				return fmt.Errorf("key %q was served %d times at level %d before %q, at the most %d expected", name, p.times, level, waits, most)
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

// tenant is a key as inOrder sees it.
type tenant struct {
	RecordedKey
	held  int
	queue []Recorded
}

// inOrder works out to whom the grants go of a step that asks for nothing.
func (j *Judge) inOrder(l *Ledger, requests []engine.Request, grants []engine.Grant) error {
	s, keys, used, released := j.before, map[string]*tenant{}, 0, map[engine.ID]bool{}
	of := func(name string) *tenant {
		if keys[name] == nil {
			keys[name] = &tenant{RecordedKey: RecordedKey{Name: name}}
		}
		return keys[name]
	}
	for _, k := range s.Keys {
		of(k.Name).RecordedKey = k
	}
	for _, r := range requests {
		switch r.Kind {
		case engine.Release:
			if ow := l.ownerOf(r.ID); ow == nil {
				released[r.ID] = true
			}
		case engine.SetLimit:
			if r.Auto != nil && (s.Pinned || s.Limit == 0) {
				continue // an operator's holds
			}
			s.Limit = cmp.Or(r.Limit, s.Limit)
			if s.Limit > 0 && r.PerKey != 0 {
				s.PerKey = max(0, r.PerKey)
			}
		case engine.SetKey:
			if k := of(r.Key); s.Limit > 0 {
				k.Cap, k.Share = cmp.Or(r.Cap, k.Cap), cmp.Or(r.Share, k.Share)
			}
		case engine.UnsetKey:
			of(r.Key).Cap, of(r.Key).Share = 0, 0
		}
	}
	for _, h := range s.Holders {
		if !released[h.ID] {
			of(h.Key).held += h.ID.Weight
			used += h.ID.Weight
		}
	}
	for _, t := range s.Waiters {
		if !released[t.ID] {
			of(t.Key).queue = append(of(t.Key).queue, t)
		}
	}
	for len(grants) > 0 {
		best, tag := first(keys, s.PerKey)
		if best == nil {
			return fmt.Errorf("%v is granted, and no key is in turn", grants[0].ID)
		}
		head := best.queue[0].ID
		best.queue = best.queue[1:]
		if head != grants[0].ID {
			if l.ownerOf(head) == nil {
				continue // its client was silent, or could not be told
			}
			return fmt.Errorf("%v of key %q is granted, and %v of %q was next", grants[0].ID, l.KeyOf(grants[0].ID), head, best.Name)
		}
		s.Seq++
		s.Time = max(s.Time, tag)
		best.Base, best.Seq = s.Time, s.Seq
		best.held += head.Weight
		if used += head.Weight; used > s.Limit {
			return fmt.Errorf("%v is granted beyond the limit", head)
		}
		grants = grants[1:]
	}
	return nil
}

// first is the key that is served next, and its tag.
func first(keys map[string]*tenant, perKey int) (best *tenant, tag int64) {
	var order [3]int64
	for _, k := range keys {
		most := k.Cap
		if most == 0 && k.Name != "" {
			most = perKey
		}
		if len(k.queue) == 0 || most > 0 && k.queue[0].ID.Weight <= most && k.held+k.queue[0].ID.Weight > most {
			continue
		}
		share := cmp.Or(k.Share, engine.DefaultShare)
		its := [3]int64{int64(k.held * engine.DefaultShare / share), k.Base + max(1, int64(k.queue[0].ID.Weight*unit/share)), k.Seq}
		if best == nil || slices.Compare(its[:], order[:]) < 0 {
			best, order = k, its
		}
	}
	return best, order[1]
}
