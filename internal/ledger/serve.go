package ledger

import (
	"cmp"
	"slices"

	"sema/engine"
	"sema/internal/protocol"
)

// This file serves: it goes through the queue in the order of service, and gives free weight to the tickets that nothing
// blocks.

// maxBudget is how many tickets a step serves or drops at the most, so that nobody keeps the engine from others
// for long. The next step goes on.
const maxBudget = 32

// setsPerCost is for how many waiting sets a ticket costs one more of the budget: the classes of each set are put
// into their lists again.
const setsPerCost = 4

// minDue is the shortest time after which somebody looks what time has brought, in microseconds.
const minDue = 5000

// verdict is what is done with the ticket that is next.
type verdict uint8

const (
	serve          verdict = iota + 1
	drop                   // its client has not asked again in time
	refuse                 // it is impossible: its client is told to ask again, and hears why
	blockedByKey           // its class should not be runnable: the cap is smaller now, or what it leaves is reserved
	blockedByLimit         // all that is behind it waits, too
	blockedByPool          // those behind it that want some of that pool wait, too
)

// grant serves and drops tickets in the order of service, up to a place in the queue, until the next one is blocked.
//
// Each ticket that is done with ends a round, because what it gives or takes may change who is next. What the last
// round has reserved stays reserved until endRound: an ask uses it, see backfills. A ticket whose client cannot be
// told is dropped; if its client lives, it asks again and is back in its place.
//
// left is a ticket that grant leaves to the next step because the budget is spent; nil: there is none.
func (l *Ledger) grant(now, upTo int64) (left *ticket) {
	left = l.sweep()
	for !l.halted() {
		t, is := l.next(now, upTo)
		if t == nil {
			return left
		}
		if l.budget <= 0 {
			return cmp.Or(left, t)
		}
		l.budget -= 1 + l.keys.sets()/setsPerCost
		l.endRound()
		l.pop(t)
		if is == serve && (t.insist || l.reach(t.via)) {
			if l.handOver(now, t) {
				l.served(t)
				continue
			}
		} else if is == refuse {
			l.tell(t.via).Ask = true
		}
		l.reschedule(t.key.leaf())
	}
	return left
}

// handOver makes a permit of a ticket, and tells its client. It reports false of a revoked one, for which its class does not pay.
func (l *Ledger) handOver(now int64, t *ticket) bool {
	e := t.entry
	e.end = t.leaseEnd(now)
	h := l.take(now, e)
	if h.revoked = t.revoked; h.revoked {
		l.tell(t.via).Ask = true
		return false
	}
	l.handed[t.id] = t.via
	n := l.tell(t.via)
	n.Grants = append(n.Grants, protocol.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})
	return true
}

// next is the ticket that is to be served or dropped next, up to a place in the queue; nil: there is none.
//
// It looks at heads in the order of service. A head that a pool blocks reserves its demand; then next looks at the
// classes that want none of that pool. A head that the limit blocks reserves its demand and ends the round: no weight is
// left for anybody behind it. A head that a key blocks was listed as runnable before the key became full: next lists the key's
// classes again, gives up what is reserved, and starts over. Each time costs budget, unless a reservation made the key full.
func (l *Ledger) next(now, upTo int64) (*ticket, verdict) {
	for {
		t := l.keys.root.head(l.wantsAwaited)
		if t == nil {
			l.round.complete = true
			return nil, 0
		}
		if t.place > upTo {
			return nil, 0
		}
		switch is, at := l.judge(now, t); is {
		case blockedByKey:
			if at.reserved == 0 {
				if l.budget <= 0 {
					return t, is
				}
				l.budget--
				l.endRound() // another may be the first of all now
			}
			l.correct(at)
		case blockedByLimit:
			l.reserve(t)
			l.round.complete = true
			return nil, 0
		case blockedByPool:
			l.reserve(t)
		default:
			return t, is
		}
	}
}

// judge is what to do with the first ticket of all; at is the key that blocks it, if one does.
//
// The order counts. If its class should be in another list, the ticket is no head at all. A silent one is dropped before it
// may block anybody. What is impossible is never blocked.
func (l *Ledger) judge(now int64, t *ticket) (is verdict, at *key) {
	impossible := l.impossible(&t.demand).Status != 0
	if at = l.blocker(&t.demand); at != nil && !impossible {
		return blockedByKey, at
	}
	switch {
	case t.silent(now):
		return drop, nil
	case impossible:
		return refuse, nil
	case t.weight > l.free():
		return blockedByLimit, nil
	case !l.poolsFit(t.takes):
		return blockedByPool, nil
	}
	return serve, nil
}

// correct reschedules a key that blocks a head whose class was runnable. What is reserved, there or above, may have
// made it so for this round only.
func (l *Ledger) correct(k *key) {
	if len(l.round.reserved) > 0 {
		l.round.revisit = append(l.round.revisit, k)
	}
	l.reschedule(k)
}

// grantAndWatch serves all that can be served, and finds somebody to watch. What watch drops may have blocked others.
func (l *Ledger) grantAndWatch(now int64, asker engine.ID) {
	var left *ticket
	for again := true; again; again = l.watch(now, asker) {
		left = l.grant(now, last)
		if l.due = 0; l.round.due > 0 {
			l.due = max(l.round.due, now+minDue)
		}
		l.endRound()
	}
	if l.unfinished = left != nil; l.unfinished {
		l.goOn(left)
	}
}

// watch sees to it that somebody calls when the first lease ends, if anybody waits. Each queued answer carries the
// first lease end. Only an earlier end needs a message. It goes to the last ticket of the last class, which is likely to wait for
// longest and so to be there. Clients that
// cannot be notified, and know it, ask often enough. dropped reports whether watch has dropped tickets.
func (l *Ledger) watch(now int64, asker engine.ID) (dropped bool) {
	first, held := l.NextEnd()
	if l.Watched || !held || len(l.tickets) == 0 {
		l.alarm, l.watcher = 0, engine.ID{}
		return false
	}
	if l.tickets[l.watcher] != nil && now < l.alarm && l.alarm <= first {
		return false
	}
	l.alarm, l.watcher = first, asker
	if l.tickets[asker] != nil {
		return false
	}
	leaves := l.keys.leaves()
	slices.SortFunc(leaves, func(a, b *class) int { return byPath(b, a) })
	for _, c := range leaves {
		for i := len(c.queue) - 1; i >= 0 && l.budget > 0; i-- {
			switch t := c.queue[i]; {
			case !t.silent(now) && l.reach(t.via):
				l.watcher = t.id
				if news := l.tell(t.via); news.Recheck == 0 {
					news.Recheck = until(now, first)
				}
				return dropped
			case t.silent(now) || !t.insist:
				dropped = l.drop(t.id)
			}
			l.budget--
		}
	}
	l.alarm, l.watcher = 0, engine.ID{}
	return dropped
}
