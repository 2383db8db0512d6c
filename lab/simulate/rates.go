package simulate

import (
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// This file judges rates: in any time no more of a rate is used than there is at once and comes back in that time.

// begin is what a permit was granted of a rate.
type begin struct {
	at int64 // by the server's clock, without cooldowns: nothing comes back in them
	id engine.ID
	n  int // what it took, or used if that is less and was told
}

// begun is what was granted of a rate, since there was as much of it.
type begun struct {
	there engine.Amount
	all   []begin
}

// rated reports whether some pools are rates.
func (k *checker) rated() bool { return k.w.server.ledger.rated() }

// rates notes what a step grants of rates, and what is told of its use. A change of one pool leaves the others as they are.
func (k *checker) rates(before *view, c protocol.Call, reply protocol.Reply, grants []protocol.Grant) {
	l, now := k.w.server.ledger, k.w.server.now()
	if before.Cooldown > k.lastStep && now > k.lastStep {
		k.cooled += min(now, before.Cooldown) - k.lastStep
	}
	k.lastStep = now
	for pool, b := range k.begun {
		if there := l.Pools.Amount(pool); l.Limit == 0 || there != b.there {
			k.keepsTo(pool, b)
			delete(k.begun, pool)
		}
	}
	for pool := range before.Pools.All() {
		named := func(r protocol.Request) bool {
			_, has := r.Pools.Has(pool)
			return has || r.Kind == protocol.Ask && r.Pools != "" || r.Kind == protocol.Remove
		}
		if was, is := before.Pools.Amount(pool), l.Pools.Amount(pool); was != is && l.Limit > 0 && !slices.ContainsFunc(c.Requests, named) {
			k.w.fail("rate: there was %s=%v, and nobody made it %v", pool, was, is)
		} else if was != is && was.Per > 0 && is.Per > 0 && len(c.Requests) == 1 && l.units(pool, max(now, before.Cooldown)) < before.units(pool, max(now, before.Cooldown))-1e-3 {
			k.w.fail("rate: %s=%v became %v, and some are back at once", pool, was, is)
		}
	}
	since := map[string]int64{}
	for pool := range l.Pools.All() {
		if l.rate(pool) {
			since[pool] = k.w.now
			if was, rated := k.rateSince[pool]; rated {
				since[pool] = was
			}
		}
	}
	k.rateSince = since
	for i, r := range c.Requests {
		if r.Kind != protocol.Release || i >= len(reply.Answers) || reply.Answers[i].Status != protocol.Done {
			continue
		}
		for pool, used := range r.Pools.All() {
			if b := k.begun[pool]; b != nil {
				for i, x := range slices.Backward(b.all) { // an id may be granted again
					if x.id == r.ID {
						b.all[i].n = min(x.n, used)
						break
					}
				}
			}
		}
	}
	for _, g := range grants {
		if _, known := k.grants[g.Token]; known || g.Slot == protocol.WouldWait {
			continue // it is told once more, or spends nothing
		}
		for pool, n := range l.TargetOf(g.ID).Takes.All() {
			if !l.rate(pool) {
				continue
			}
			if k.begun == nil {
				k.begun = map[string]*begun{}
			}
			if k.begun[pool] == nil {
				k.begun[pool] = &begun{there: l.Pools.Amount(pool)}
			}
			k.begun[pool].all = append(k.begun[pool].all, begin{now - k.cooled, g.ID, n})
		}
	}
}

// keepsTo looks whether in any time no more of a rate was begun than there is at once, and comes back in that time.
func (k *checker) keepsTo(pool string, b *begun) {
	unit, level, last := float64(b.there.Per.Microseconds())/float64(b.there.Back), 0.0, int64(0)
	for _, x := range b.all {
		level = max(0, level-float64(x.at-last)/unit) + float64(x.n)
		if last = x.at; level > float64(b.there.N)+1e-6 {
			k.w.fail("rate: %v of %s=%v are used at once", level, pool, b.there)
			return
		}
	}
}
