package ledger

import (
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// A limit may only be watched. Then only a pause or a cooldown keeps a caller waiting, and this file counts the callers that the
// limit, a cap or a pool would have kept waiting.

// Observed counts the grants since the limit is only watched.
type Observed struct {
	WouldWait int64 // so many of them would have waited
	ForLimit  int64 // so many of those for the limit, and the others for caps and pools alone
	Most      int   // the most weight that was held at once
	Levels    []Level
}

// Level is how many grants a limit would have been needed for. Levels are sorted by limit, and none is without grants.
type Level struct {
	Limit  int
	Grants int64
}

// fineLevels is up to where each limit has a level of its own. Beyond, there are half as many for each doubling, so that
// counts stay small.
const fineLevels = 32

// levelOf is the level of a weight held: the weight, or up to a sixteenth more.
func levelOf(held int) int {
	step := 1
	for step*fineLevels < held {
		step *= 2
	}
	return (held + step - 1) / step * step
}

// observe begins to only watch the limit, or to enforce it again. What was counted before is forgotten, if anew says so, too.
func (l *Ledger) observe(on, anew bool) {
	if was := l.observed != nil; on != was {
		l.limited = true
		l.keys.epoch += bit(l.keys.on) // what caps block has changed
	} else if !on || !anew {
		return
	}
	l.observed = nil
	if on {
		l.observed = &Observed{}
	}
}

// limits is how much weight all may hold: the limit, or anything while it is only watched.
func (l *Ledger) limits() int {
	if l.observed != nil {
		return engine.MaxLimit
	}
	return l.limit
}

// wouldWait reports whether the limit, caps and pools keep a demand waiting when they are enforced, and counts for the limit.
func (l *Ledger) wouldWait(d *demand) bool {
	o := l.observed
	l.observed = nil
	waits := l.impossible(d).Status != 0 || !l.fits(d)
	if d.weight > l.free() && o != nil {
		o.ForLimit++
	}
	l.observed = o
	return waits
}

// count counts a grant, after its weight was taken. A permit that would have waited has no slot, and spends nothing of rates. So the
// rates are free for the others when the limit is enforced again.
func (o *Observed) count(held, slot int) {
	o.WouldWait += int64(bit(slot == protocol.WouldWait))
	o.Most = max(o.Most, held)
	at := levelOf(held)
	i, found := slices.BinarySearchFunc(o.Levels, at, func(v Level, limit int) int { return v.Limit - limit })
	if !found {
		o.Levels = slices.Insert(o.Levels, i, Level{Limit: at})
	}
	o.Levels[i].Grants++
}

func (o *Observed) clone() *Observed {
	if o == nil {
		return nil
	}
	c := *o
	c.Levels = slices.Clone(o.Levels)
	return &c
}

// State is the counts as operators see them.
func (o *Observed) State() *engine.Observed {
	if o == nil {
		return nil
	}
	s := &engine.Observed{WouldWait: o.WouldWait, ForLimit: o.ForLimit, Most: o.Most}
	for _, v := range o.Levels {
		s.Grants += v.Grants
	}
	rest := s.Grants / 100 // so many may have needed more
	for i := len(o.Levels) - 1; i >= 0 && s.Enough == 0; i-- {
		if rest -= o.Levels[i].Grants; rest < 0 {
			s.Enough = min(o.Levels[i].Limit, o.Most)
		}
	}
	return s
}
