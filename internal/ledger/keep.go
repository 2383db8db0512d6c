package ledger

import (
	"time"

	"sema/engine"
)

// leave decides what the caller of the step may do with permits that are
// released to it, for keep from now on, and notes that it was told so. Only who
// can be reached may do anything: it may have to be told that it is over.
func (l *Ledger) leave(now int64, keep time.Duration) engine.Leave {
	delete(l.keepers, l.caller)
	if keep <= 0 || l.stopped() || !l.hears(l.caller) {
		return engine.GiveBack
	}
	leave := engine.Keep
	if l.othersWait() {
		leave = engine.Pass
	}
	if l.keepers == nil {
		l.keepers = map[string]Keeper{}
	}
	l.keepers[l.caller] = Keeper{leave, now + keep.Microseconds()}
	return leave
}

// stopped reports whether what is released may go to nobody.
func (l *Ledger) stopped() bool { return l.limit == 0 || l.paused || l.used > l.limit }

// othersWait reports whether another client than the caller of the step has a
// ticket. A client has few, so one of another is found soon.
func (l *Ledger) othersWait() bool {
	for _, t := range l.queue {
		if t.id.Client != l.caller {
			return true
		}
	}
	return false
}

// recall tells the other clients that what they were told of keeping is over:
// one that keeps, as long as the caller of the step waits; all, if nobody may be
// granted anything. A keeper is told with each step in which that is found,
// until it makes a step itself, because notifications get lost; but no more than
// maxTold in one step: the next ones tell others. It reports
// whether another client keeps while the caller waits.
func (l *Ledger) recall(now int64, waits bool) (recalled bool) {
	told := 0
	for client, k := range l.keepers {
		of := engine.RecallKept
		switch {
		case k.End <= now:
			delete(l.keepers, client)
			continue
		case client == l.caller:
			continue
		case l.stopped():
			of = engine.RecallAll
		case !waits || k.Leave != engine.Keep:
			continue
		default:
			recalled = true
		}
		if told < maxTold {
			l.tell(client).Recall = of
			told++
		}
	}
	return recalled
}
