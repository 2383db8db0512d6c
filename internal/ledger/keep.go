package ledger

import "time"

// mayKeep reports whether the caller of the step may keep permits that are
// released to it, for keep from now on, and notes that it was told so. A client
// that cannot be notified must give permits back: a recall would not reach it.
func (l *Ledger) mayKeep(now int64, keep time.Duration) bool {
	delete(l.keepers, l.caller)
	if keep <= 0 || l.stopped() || !l.hears(l.caller) || l.othersWait() {
		return false
	}
	if l.keepers == nil {
		l.keepers = map[string]Keeper{}
	}
	l.keepers[l.caller] = Keeper{now + keep.Microseconds(), l.noneRunnable() && len(l.tickets) > 0}
	return true
}

// maxLooked is how many tickets are looked at for one of another client. That one of more
// tickets is another's is taken for granted, so that the look does not take long.
const maxLooked = 1000

// stopped reports whether what is released may go to nobody.
func (l *Ledger) stopped() bool {
	return l.limit == 0 || l.observed != nil || l.halted() || l.used > l.limit || l.keys.over > 0 || l.keys.poolOver()
}

// othersWait reports whether another client than the caller of the step has a ticket.
func (l *Ledger) othersWait() bool {
	return len(l.tickets) > maxLooked || l.anyTicket(func(t *ticket) bool { return t.id.Client != l.caller })
}

// recall takes back from other clients what mayKeep allowed them. It reports whether another client keeps while the
// caller of the step waits.
//
// All are told if nothing may be granted now, if the step has changed the limit, or if its caller waits. If a key has become
// runnable, the clients are told that may keep because no key was: they may have callers of that key. Notifications get lost, so each step
// tells a client again, until that client makes a step. One step tells maxTold clients, and the next step tells others.
func (l *Ledger) recall(now int64, waits bool) (recalled bool) {
	told := 0
	for client, k := range l.keepers {
		switch {
		case k.End <= now:
			delete(l.keepers, client)
			continue
		case client == l.caller:
			continue
		case l.stopped(), k.Room && !l.noneRunnable():
		case waits:
			recalled = true
		case !l.limited:
			continue
		}
		if told < maxTold {
			l.tell(client).Recall = true
			told++
		}
	}
	return recalled
}
