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

// century bounds how far ahead a rate is used up, in microseconds: no more than that of a debt is remembered.
const century = 100 * 365.25 * 24 * 3600 * 1e6

// resumes is when rates come back again: now, or at the end of a cooldown.
func (l *Ledger) resumes(now int64) float64 { return float64(max(now, l.cooldown)) }

// setRate makes a pool a rate, or changes how fast it comes back, or makes it a pool that does not. What has not come back yet stays
// as many units as it was. What permits have taken until now is not given back, also if the pool becomes a rate again.
func (p *pool) setRate(resumes float64, a engine.Amount) {
	unit := 0.0
	if a.Per > 0 {
		unit = float64(a.Per.Microseconds()) / float64(a.Back)
	}
	if p.full > 0 && p.unit != unit {
		p.given = max(p.given, p.full+p.given-resumes)
		left := 0.0
		if p.unit > 0 {
			left = max(0, p.full-resumes) / p.unit * unit
		}
		p.full = resumes + min(left, century)
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
			p.full = sum(l.resumes(now), p.full, float64(n)*p.unit)
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

// sum is when all is back after more was taken. It rounds up: a number holds quarters of microseconds since 1970, and each permit
// would give away what is rounded down.
func sum(resumes, full, more float64) float64 {
	full = max(full, resumes)
	is := full + more
	if is-full < more {
		is += 0.5
	}
	return min(is, resumes+century)
}

// delay lets nothing of rates come back for as long as that; below 0, it takes back that much of an earlier delay. What permits have
// taken counts as their own for as much longer.
func (l *Ledger) delay(now, lasts int64) {
	for _, p := range l.keys.pools {
		if p.unit > 0 || p.full > 0 {
			p.full, p.given = max(p.full, float64(now))+float64(lasts), p.given-float64(lasts)
		}
	}
	l.rememberRates(now)
}

// rememberRates keeps the limit known until all of the rates is back.
func (l *Ledger) rememberRates(now int64) {
	last := float64(now)
	for _, p := range l.keys.pools {
		if p.unit > 0 {
			last = max(last, p.full)
		}
	}
	if last > float64(now) {
		l.remember(now, micros(int64(last)-now))
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
				more = -max(0, min(-more, spent[i]-p.given-l.resumes(now)))
				p.given -= more
			}
			p.full = sum(l.resumes(now), p.full, more)
			l.remember(now, micros(int64(p.full)-now))
		}
		i++
	}
}
