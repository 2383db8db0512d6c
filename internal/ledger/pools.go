package ledger

import (
	"maps"
	"math"
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

	// Of a rate, which comes back with time: how long one takes, when all are back, and how much time permits have given back
	// that used less than they took. Microseconds.
	unit, full, given float64
}

// free is how much of a pool is neither used nor reserved. It is negative after the pool was made smaller: that blocks
// those alone that want some of it.
func (p *pool) free(now int64) int {
	used := p.used
	if p.unit > 0 {
		used = int(math.Ceil(max(0, p.full-float64(now)) / p.unit))
	}
	return p.limit - used - p.reserved
}

// when is the time from which on n of a rate are there, and what is reserved.
func (p *pool) when(n int) int64 {
	return int64(math.Ceil(p.full - float64(p.limit-p.reserved-n)*p.unit))
}

// spend takes what a permit is granted of rates, and notes until when that counts as its own, see settle.
func (l *Ledger) spend(now int64, h *holder) {
	if !l.keys.rated || h.takes == "" {
		return
	}
	var spent []float64
	rates := false
	for name, n := range h.takes.All() {
		until, p := 0.0, l.keys.pools[name]
		if p.unit > 0 {
			p.full = sum(max(p.full, float64(now)), float64(n)*p.unit)
			l.remember(now, micros(int64(p.full)-now))
			until, rates = p.full+p.given, true
		}
		spent = append(spent, until)
	}
	if rates {
		if l.spent == nil {
			l.spent = map[engine.ID][]float64{}
		}
		l.spent[h.id] = spent
	}
}

// sum rounds up: a number holds quarters of microseconds since 1970, and each permit would give away what is rounded down.
func sum(full, more float64) float64 {
	is := full + more
	if is-full < more {
		is += 0.5
	}
	return is
}

// delay lets nothing of rates come back for as long as that; below 0, it takes back that much of an earlier delay.
func (l *Ledger) delay(now, lasts int64) {
	for _, p := range l.keys.pools {
		if p.unit > 0 {
			p.full = max(p.full, float64(now)) + float64(lasts)
			l.remember(now, micros(int64(p.full)-now))
		}
	}
}

// settle counts the use of rates in place of the amounts that a permit has taken. More than was taken is a debt. Less comes back at once, but
// for what time has brought back already, or other permits have given: so what is used keeps to the rate.
func (l *Ledger) settle(now int64, h *holder, used engine.Pools) {
	spent := l.spent[h.id]
	if used == "" || spent == nil {
		return
	}
	i := 0
	for name, n := range h.takes.All() {
		p := l.keys.pools[name]
		if m, told := used.Has(name); told && p.unit > 0 && spent[i] > 0 {
			more := float64(m-n) * p.unit
			if more < 0 {
				more = -max(0, min(-more, spent[i]-p.given-float64(now)))
				p.given -= more
			}
			p.full = sum(max(p.full, float64(now)), more)
			l.remember(now, micros(int64(p.full)-now))
		}
		i++
	}
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
	l.keys.setPools(l.now, all)
}

// setPools changes what there is. What has not come back yet of a rate stays as many units as it was.
func (ks *tree) setPools(now int64, all engine.Pools) {
	ks.amounts, ks.rated = all, false
	for _, name := range slices.Collect(maps.Keys(ks.pools)) {
		if p := ks.pools[name]; all.Of(name) == 0 {
			*p = pool{used: p.used, reserved: p.reserved, awaited: p.awaited}
			ks.forgetPool(name)
		}
	}
	for name, n := range all.All() {
		p, a := ks.pool(name), all.Amount(name)
		if p.limit = n; a.Per == 0 {
			p.unit, p.full, p.given = 0, 0, 0
			continue
		}
		ks.rated = true
		unit := float64(a.Per.Microseconds()) / float64(a.Back)
		if p.unit > 0 && p.unit != unit {
			p.given = max(p.given, p.full+p.given-float64(now)) // what permits have taken until now is not given back
			p.full = float64(now) + max(0, p.full-float64(now))/p.unit*unit
		}
		p.unit = unit
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
				s.Next = micros(p.when(p.free(at)+1) - now)
			}
		}
		list = append(list, s)
	}
	return list
}
