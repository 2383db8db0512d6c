package ledger

import (
	"maps"
	"slices"

	"sema/engine"
)

// A pool is a further limit beside the tree of keys. A ticket takes all that it wants in one step, or
// waits and holds nothing. blocked.go says whom a pool blocks.

// pool is how much there is of a pool.
type pool struct {
	limit, used int
	reserved    int  // what the round keeps free
	awaited     bool // in this round: a ticket waits for some, and those behind it that want some wait, too

	// Of a rate, see rates.go: how long one takes to come back, when all are back, and how much time permits have given back
	// that used less than they took. Microseconds.
	unit, full, given float64
}

// free is how much of a pool is neither used nor reserved. It is negative after the pool was made smaller: that blocks
// those alone that want some of it.
func (p *pool) free(now int64) int {
	used := p.used
	if p.unit > 0 {
		used = p.out(now)
	}
	return p.limit - used - p.reserved
}

func (ks *tree) amountOf(name string) int {
	if p := ks.pools[name]; p != nil {
		return p.limit
	}
	return 0
}

func (ks *tree) pool(name string) *pool {
	if ks.pools == nil {
		ks.pools = map[string]*pool{}
	}
	if ks.pools[name] == nil {
		ks.pools[name] = &pool{}
	}
	return ks.pools[name]
}

func (ks *tree) forgetPool(name string) {
	if p := ks.pools[name]; p.limit == 0 && p.used == 0 {
		delete(ks.pools, name)
	}
}

// usePools changes how much is used of pools. One that there is nothing of is forgotten.
func (l *Ledger) usePools(takes engine.Pools, sign int) {
	for name, n := range takes.All() {
		l.keys.pool(name).used += sign * n
		l.keys.forgetPool(name)
	}
}

// poolOver reports whether more of a pool is used than there is.
func (ks *tree) poolOver() bool {
	for _, p := range ks.pools {
		if p.limit > 0 && p.unit == 0 && p.used > p.limit {
			return true
		}
	}
	return false
}

// sets is how many sets of pools wait.
func (ks *tree) sets() (n int) {
	for _, c := range ks.root.classes {
		n += bit(c.set != "" && c.waiting > 0)
	}
	return n
}

// tooMany reports whether too many other sets of pools wait for this one to wait, too.
func (ks *tree) tooMany(set string) bool {
	if c := ks.root.class(set); set == "" || c != nil && c.waiting > 0 {
		return false
	}
	return ks.sets() >= engine.MaxPools
}

// dropSilent makes room for a set where too many wait: it drops the heads of sets whose clients have not asked
// again in time. Perhaps no step has looked at them yet.
func (l *Ledger) dropSilent(now int64, set string) {
	if !l.keys.tooMany(set) {
		return
	}
	for _, c := range slices.Clone(l.keys.root.classes) {
		for t := c.head(); c.set != "" && t != nil && t.silent(now) && l.budget > 0; t = c.head() {
			l.budget--
			l.drop(t.id)
		}
	}
}

// setPools has exactly these pools from now on.
func (l *Ledger) setPools(all engine.Pools) {
	if all == l.keys.amounts {
		return
	}
	l.nameKeys()
	l.limited = true
	l.keys.setPools(l.resumes(l.now), all)
	l.rememberRates(l.now)
}

// setPools changes what there is.
func (ks *tree) setPools(resumes float64, all engine.Pools) {
	ks.amounts, ks.rated = all, false
	for _, name := range slices.Collect(maps.Keys(ks.pools)) {
		if p := ks.pools[name]; all.Of(name) == 0 {
			p.limit = 0
			p.setRate(resumes, engine.Amount{})
			ks.forgetPool(name)
		}
	}
	for name, n := range all.All() {
		p := ks.pool(name)
		p.limit = n
		p.setRate(resumes, all.Amount(name))
		ks.rated = ks.rated || p.unit > 0
	}
}

// changePools sets how much there is of some pools; 0 ends one. It reports false, and changes nothing, if there would be too many.
func (l *Ledger) changePools(some engine.Pools) bool {
	all, err := l.keys.amounts.With(some)
	if err == nil {
		l.setPools(all)
	}
	return err == nil
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
		s := engine.PoolState{Pool: name, Limit: p.limit, Used: p.used, Waiting: waiting[name]}
		if p.unit > 0 {
			s.Back, s.Per = l.keys.amounts.Amount(name).Back, l.keys.amounts.Amount(name).Per
			at := max(now, l.cooldown) // nobody is granted any before
			if s.Used = p.limit - p.free(at); s.Used > 0 {
				s.Next = micros(p.when(max(p.free(at), 0)+1) - now)
			}
		}
		list = append(list, s)
	}
	return list
}
