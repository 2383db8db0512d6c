package ledger

import (
	"time"

	"sema/internal/protocol"
)

// leave decides what the caller of the step may do with permits that are
// released to it, for keep from now on, and notes that it was told so. A client
// that cannot be notified must give permits back: a recall would not reach it.
func (l *Ledger) leave(now int64, keep time.Duration) protocol.Leave {
	delete(l.keepers, l.caller)
	if keep <= 0 || l.stopped() || !l.hears(l.caller) {
		return protocol.GiveBack
	}
	leave := protocol.Keep
	if l.othersWait() {
		leave = protocol.Pass
	}
	if l.keepers == nil {
		l.keepers = map[string]Keeper{}
	}
	l.keepers[l.caller] = Keeper{leave, now + keep.Microseconds(), l.noneRunnable() && len(l.tickets) > 0}
	return leave
}

// maxLooked is how many tickets are looked at for one of another client. That one of more
// tickets is another's is taken for granted, so that the look does not take long.
const maxLooked = 1000

// stopped reports whether what is released may go to nobody.
func (l *Ledger) stopped() bool {
	return l.limit == 0 || l.paused || l.used > l.limit || l.keys.poolOver()
}

// othersWait reports whether another client than the caller of the step has a ticket.
func (l *Ledger) othersWait() bool {
	return len(l.tickets) > maxLooked || l.anyTicket(func(t *ticket) bool { return t.id.Client != l.caller })
}

// recall takes back from other clients what leave allowed them. If the caller of
// the step waits, those that keep permits are told; if nothing may be granted, or
// the step has changed the limit, all are; if a key waits for weight, those are that
// were told that none does, and may have callers of it. Notifications get lost, so each step tells them again until they make one
// of their own; but no more than maxTold of them, and the next step tells others.
// It reports whether another client keeps while the caller waits.
func (l *Ledger) recall(now int64, waits bool) (recalled bool) {
	told := 0
	for client, k := range l.keepers {
		of := protocol.RecallKept
		switch {
		case k.End <= now:
			delete(l.keepers, client)
			continue
		case client == l.caller:
			continue
		case l.stopped(), k.Room && !l.noneRunnable():
			of = protocol.RecallAll
		case waits && k.Leave == protocol.Keep:
			recalled = true
		case !l.limited:
			continue
		}
		if l.limited {
			of = protocol.RecallAll
		}
		if told < maxTold {
			l.tell(client).Recall = of
			told++
		}
	}
	return recalled
}
