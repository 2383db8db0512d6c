package ledger

import (
	"maps"
	"slices"

	"sema/engine"
)

// A pool is a further limit beside the tree of keys. A ticket takes all that it wants in one step, or
// waits and holds nothing. While a pool lacks what the first ticket of a set wants, that ticket keeps
// free for itself all that it wants: its weight, at each key of its path too, and its amounts of pools.
// Other tickets that want some of that pool are not looked at. All others are served with the rest. So a
// ticket that wants much does not wait for ever, and for each pool at most one ticket keeps some free.

// pool is how much there is of a pool.
type pool struct {
	limit, used int
	reserved    int  // what this step keeps free
	shut        bool // in this step: a ticket lacks it
}

// pass is what a step has reserved since it last granted.
type pass struct {
	all      bool   // it has looked at all that are in turn
	reserved []*key // by tickets of these leaves
	moved    []*key // repositioned meanwhile
}

// isShut reports whether a lane wants some of a pool that is shut.
func (l *Ledger) isShut(n *lane) bool {
	return len(l.pass.reserved) > 0 && slices.ContainsFunc(n.pools(), func(name string) bool {
		p := l.keys.pools[name]
		return p != nil && p.shut
	})
}

// reserve keeps free for a ticket what it wants, and shuts the pools that it lacks.
func (l *Ledger) reserve(t *ticket) {
	leaf := t.key.leaf()
	for n := leaf; n != nil; n = n.up {
		n.reserved += t.id.Weight
	}
	l.pass.reserved = append(l.pass.reserved, leaf)
	for name, n := range t.takes.All() {
		p := l.keys.pools[name]
		p.shut = p.shut || n > p.limit-p.used-p.reserved
		p.reserved += n
	}
}

// endPass gives up what is reserved.
func (l *Ledger) endPass() {
	was := l.pass
	l.pass = pass{}
	for _, k := range was.reserved {
		for ; k != nil; k = k.up {
			k.reserved = 0
		}
	}
	for _, p := range l.keys.pools {
		if len(was.reserved) > 0 {
			p.reserved, p.shut = 0, false
		}
	}
	for _, k := range was.moved {
		l.reposition(k)
	}
}

// fitPools reports whether there is as much of pools, without what is reserved. A pool that was made smaller
// may have less than nothing: that counts for those alone that want some of it.
func (l *Ledger) fitPools(takes engine.Pools) bool {
	for name, n := range takes.All() {
		if p := l.keys.pools[name]; p == nil || n > p.limit-p.used-p.reserved {
			return false
		}
	}
	return true
}

// leftFor reports whether a weight and amounts fit what all that wait leave, and nobody of their set or path stands aside.
func (l *Ledger) leftFor(k *key, weight int, takes engine.Pools) bool {
	if !l.pass.all || !l.fits(k, weight, takes) {
		return false
	}
	for n := k.leaf(); n.up != nil; n = n.up {
		if at := n.lane(takes.Names()); at != nil && at.where == full || l.heldUp(n) {
			return false
		}
	}
	return true
}

// scarce is the first pool that is too small for what is taken, counted from 1 on, and how much there is of it; 0: there
// is none. of is how much there is of a pool.
func scarce(takes engine.Pools, of func(name string) int) (at, limit int) {
	for name, n := range takes.All() {
		at++
		if limit = of(name); n > limit {
			return at, limit
		}
	}
	return 0, 0
}

func (ks *keyed) limitOf(name string) int {
	if p := ks.pools[name]; p != nil {
		return p.limit
	}
	return 0
}

// usePools changes how much is used of pools. One that there is nothing of is forgotten.
func (l *Ledger) usePools(takes engine.Pools, sign int) {
	for name, n := range takes.All() {
		l.keys.pool(name).used += sign * n
		l.keys.forgetPool(name)
	}
}

func (ks *keyed) pool(name string) *pool {
	if ks.pools == nil {
		ks.pools = map[string]*pool{}
	}
	if ks.pools[name] == nil {
		ks.pools[name] = &pool{}
	}
	return ks.pools[name]
}

func (ks *keyed) forgetPool(name string) {
	if p := ks.pools[name]; p.limit == 0 && p.used == 0 {
		delete(ks.pools, name)
	}
}

// setsPerTurn is for how many sets that wait a grant takes one turn more: each of their lanes
// is put to its place again.
const setsPerTurn = 4

// sets is how many sets of pools wait.
func (ks *keyed) sets() (n int) {
	for _, at := range ks.root.lanes {
		n += bit(at.set != "" && at.waiting > 0)
	}
	return n
}

// tooMany reports whether a set of pools may not wait beside those that do.
func (ks *keyed) tooMany(set string) bool {
	if at := ks.root.lane(set); set == "" || at != nil && at.waiting > 0 {
		return false
	}
	return ks.sets() >= engine.MaxPools
}

// dropSilent makes room for a set where too many wait: it drops the first tickets of sets whose clients have not asked
// again in time. Nobody may have looked at them.
func (l *Ledger) dropSilent(now int64, set string) {
	if !l.keys.tooMany(set) {
		return
	}
	for _, at := range slices.Clone(l.keys.root.lanes) {
		for t := at.first(); at.set != "" && t != nil && t.silent(now) && l.turns > 0; t = at.first() {
			l.turns--
			l.pop(t)
			l.reposition(t.key.leaf())
		}
	}
}

// setPools has exactly these pools from now on.
func (l *Ledger) setPools(all engine.Pools) {
	if all == l.keys.there {
		return
	}
	l.nameKeys()
	l.limited = true
	l.keys.setPools(all)
}

func (ks *keyed) setPools(all engine.Pools) {
	ks.there = all
	for _, name := range slices.Collect(maps.Keys(ks.pools)) {
		ks.pools[name].limit = 0
		ks.forgetPool(name)
	}
	for name, n := range all.All() {
		ks.pool(name).limit = n
	}
}

// changePools sets how much there is of some pools; 0 ends one. It reports false, and changes nothing, if there would be too many.
func (l *Ledger) changePools(some engine.Pools) bool {
	amounts := l.keys.there.Map()
	for name, n := range some.All() {
		if amounts[name] = n; n == 0 {
			delete(amounts, name)
		}
	}
	all, err := engine.NewPools(amounts, 1)
	if err == nil {
		l.setPools(all)
	}
	return err == nil
}

// poolOver reports whether more of a pool is used than there is.
func (ks *keyed) poolOver() bool {
	for _, p := range ks.pools {
		if p.limit > 0 && p.used > p.limit {
			return true
		}
	}
	return false
}

// poolStates are the pools as State shows them.
func (l *Ledger) poolStates(now int64) (list []engine.PoolState) {
	waiting := map[string]int{}
	for _, t := range l.tickets {
		for name := range t.takes.All() {
			waiting[name] += bit(!t.silent(now))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.keys.pools)) {
		p := l.keys.pools[name]
		list = append(list, engine.PoolState{Pool: name, Limit: p.limit, Used: p.used, Waiting: waiting[name]})
	}
	return list
}
