package ledger

import (
	"math"

	"sema/engine"
)

// A rate is a pool that comes back with time. This file says when, what permits take of rates, and what
// a release settles. What a ticket keeps free of rates is in reserve.go.

// out is how much of a rate has not come back yet.
func (p *pool) out(now int64) int {
	return int(math.Ceil(max(0, p.full-float64(now)) / p.unit))
}

// setRate makes a pool a rate, or changes how fast it comes back, or makes it a pool that does not. What has not come back yet stays
// as many units as it was.
func (p *pool) setRate(now int64, a engine.Amount) {
	if a.Per == 0 {
		p.unit, p.full, p.given = 0, 0, 0
		return
	}
	unit := float64(a.Per.Microseconds()) / float64(a.Back)
	if p.unit > 0 && p.unit != unit {
		p.given = max(p.given, p.full+p.given-float64(now)) // what permits have taken until now is not given back
		p.full = float64(now) + max(0, p.full-float64(now))/p.unit*unit
	}
	p.unit = unit
}

// when is the time from which on n of a rate are there, and what is reserved.
func (p *pool) when(n int) int64 {
	return int64(math.Ceil(p.full - float64(p.limit-p.reserved-n)*p.unit))
}

// lacks reports whether time alone brings all that a demand lacks, and when the first rate that it lacks will be back. From then on
// those behind it may go on that want this rate. The demand itself may still lack another.
func (l *Ledger) lacks(d *demand) (timed bool, due int64) {
	if !l.keys.rated {
		return false, 0
	}
	timed = d.weight <= l.free()
	for name, n := range d.takes.All() {
		p := l.keys.pools[name]
		switch {
		case n <= p.free(l.now):
		case p.unit == 0:
			timed = false
		case n > p.limit-p.reserved: // those ahead keep it, and have to be served first
		case due == 0 || p.when(n) < due:
			due = p.when(n)
		}
	}
	return timed, due
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

// settle counts the use of rates in place of the amounts that a permit has taken. More than was taken is a debt. Less comes back at once,
// without the part that time has brought back already, and without the part that other permits have given back.
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
