// Package ledger is one semaphore as a plain state machine: no clock, no I/O,
// no locks. Time comes in, grants come out. The memory engine is a mutex
// around it, the file engine a file lock; and it is the judge of the Redis
// engine's Lua, which must give the same answers.
//
// Every operation first ends the permits whose lease is over, then does its
// work, then hands free weight to the head of the queue. Queue order is
// arrival order, weights included: a heavy ticket at the head holds up those
// behind it. A ticket whose client does not answer is dropped when its turn
// comes; its client, should it live, asks again with its arrival number and is
// back in its place.
package ledger

import (
	"container/heap"
	"slices"
	"sort"
	"strings"
	"time"

	"sema"
)

// keepIdle is how long beyond twice the lease an unused semaphore remembers
// its limit.
const keepIdle = time.Minute

// Ledger is the state of one semaphore. Times are microseconds of the engine's
// clock. The zero value is a semaphore nobody has used.
type Ledger struct {
	// Reach reports whether a client can be told of a grant now. Nil: always.
	Reach func(client string) bool

	limit   int
	pinned  bool
	used    int
	token   int64 // the last one given
	arrival int64 // the last one given
	keep    int64 // until when the limit is remembered without use

	holders map[string]*holder
	ends    endHeap         // the same holders, by the end of their lease
	slots   map[int]*holder // the same, by slot
	tickets map[string]*ticket
	queue   []*ticket // the same tickets, by arrival

	// Some client keeps watch while others wait: it knows to call at alarm, the
	// first lease end.
	alarm   int64
	watcher string

	news map[string]*sema.Wake // for each client, since the last Take
}

type holder struct {
	id       string
	weight   int
	end      int64
	since    int64
	token    int64
	slot     int
	revoked  bool
	detached bool
	client   sema.Client
	index    int // in ends
}

type ticket struct {
	id       string
	weight   int
	end      int64
	arrival  int64
	slot     bool
	detached bool
	client   sema.Client
}

// Acquire grants, queues or refuses.
func (l *Ledger) Acquire(now int64, by sema.Client, r sema.Request) sema.Answer {
	l.expire(now)
	if l.limit == 0 && r.Weight > r.Limit {
		return sema.Answer{Status: sema.TooHeavy, Limit: r.Limit, Slot: -1} // and there still is no semaphore
	}
	l.open(now, r)
	a := l.acquire(now, by, r)
	l.grant(now)
	a.Limit = l.limit
	if a.Status != sema.Granted {
		a.Slot = -1
	}
	if a.Status != sema.Queued {
		l.watch(now, "")
		return a
	}
	l.watch(now, r.ID)
	if first, held := l.nextEnd(); held {
		a.Look = micros(first - now)
	}
	return a
}

func (l *Ledger) acquire(now int64, by sema.Client, r sema.Request) sema.Answer {
	if h := l.holders[r.ID]; h != nil {
		if h.revoked {
			return sema.Answer{Status: sema.Revoked}
		}
		return h.answer(now)
	}
	if r.Strict && r.Limit != l.limit {
		l.drop(r.ID)
		return sema.Answer{Status: sema.LimitDiffers}
	}
	if r.Weight > l.limit {
		l.drop(r.ID)
		return sema.Answer{Status: sema.TooHeavy}
	}
	l.grant(now)
	if h := l.holders[r.ID]; h != nil { // its turn came just now
		l.untell(r.ID)
		h.end = now + r.Lease.Microseconds()
		heap.Fix(&l.ends, h.index)
		return h.answer(now)
	}
	first := r.Unfair || len(l.queue) == 0 || l.queue[0].id == r.ID ||
		r.Arrival > 0 && r.Arrival < l.queue[0].arrival
	if first && r.Weight <= l.limit-l.used { // a sum could overflow
		l.drop(r.ID)
		return l.take(now, now+r.Lease.Microseconds(), &ticket{id: r.ID, weight: r.Weight, slot: wantsSlot(r.ID), detached: r.Detached, client: by}).answer(now)
	}
	if !r.Wait {
		return sema.Answer{Status: sema.Refused}
	}
	t := l.tickets[r.ID]
	if t == nil {
		t = &ticket{id: r.ID, weight: r.Weight, arrival: r.Arrival, slot: wantsSlot(r.ID), detached: r.Detached, client: by}
		if t.arrival == 0 {
			t.arrival = max(l.arrival+1, now)
		}
		l.arrival = max(l.arrival, t.arrival)
		l.enqueue(t)
	}
	t.end = now + r.Ticket.Microseconds()
	return sema.Answer{Status: sema.Queued, Arrival: t.arrival, Ahead: l.position(t), Ticket: t.end}
}

// Renew extends a permit, or asks again for a ticket.
func (l *Ledger) Renew(now int64, by sema.Client, r sema.Request) sema.Answer {
	if r.Token == 0 {
		return l.Acquire(now, by, r)
	}
	l.expire(now)
	a := sema.Answer{Status: sema.Gone, Slot: -1}
	if h := l.holders[r.ID]; h != nil {
		if h.revoked {
			a.Status = sema.Revoked
		} else {
			h.end = now + r.Lease.Microseconds()
			heap.Fix(&l.ends, h.index)
			l.remember(now, r.Lease)
			a = h.answer(now)
		}
	}
	l.grant(now)
	l.watch(now, "")
	a.Limit = l.limit
	return a
}

// Release gives back a permit or leaves the queue, and reports whether there
// was anything.
func (l *Ledger) Release(now int64, id string) bool {
	l.expire(now)
	h := l.holders[id]
	if h != nil {
		l.forget(h)
	}
	found := l.drop(id) || h != nil
	l.grant(now)
	l.watch(now, "")
	return found
}

// Revoke makes the next renewal of a permit fail, and reports whether it
// exists.
func (l *Ledger) Revoke(now int64, id string) bool {
	l.expire(now)
	h := l.holders[id]
	if h != nil {
		h.revoked = true
	}
	l.grant(now)
	l.watch(now, "")
	return h != nil
}

// SetLimit stores the limit; pin makes it outlive idleness, for good.
func (l *Ledger) SetLimit(now int64, limit int, pin bool) {
	l.expire(now)
	l.limit, l.pinned = limit, l.pinned || pin
	l.remember(now, 0)
	l.grant(now)
	l.watch(now, "")
}

// Bury ends everything that clients which are dead had, except for detached
// permits.
func (l *Ledger) Bury(now int64, dead func(client string) bool) {
	l.expire(now)
	for id, h := range l.holders {
		if !h.detached && dead(sema.ClientOf(id)) {
			l.forget(h)
		}
	}
	for id, t := range l.tickets {
		if !t.detached && dead(sema.ClientOf(id)) {
			l.drop(id)
		}
	}
	l.grant(now)
	l.watch(now, "")
}

// nextEnd is when the first lease ends; ok is false without any.
func (l *Ledger) nextEnd() (end int64, ok bool) {
	if len(l.ends) == 0 {
		return 0, false
	}
	return l.ends[0].end, true
}

// Over reports whether the semaphore does not exist: never used, or idle for
// so long that its limit is forgotten.
func (l *Ledger) Over(now int64) bool {
	l.expire(now)
	return l.limit == 0
}

// Take returns and clears the news for clients since the last call.
func (l *Ledger) Take() map[string]*sema.Wake {
	news := l.news
	l.news = nil
	return news
}

// State is a snapshot: holders in no particular order, waiters in theirs.
func (l *Ledger) State(now int64) sema.State {
	l.expire(now)
	s := sema.State{Limit: l.limit, Pinned: l.pinned, Used: l.used}
	for _, h := range l.holders {
		s.Holders = append(s.Holders, sema.Holder{
			ID: h.id, Weight: h.weight, Slot: h.slot, Token: h.token, Revoked: h.revoked, Client: h.client,
			Age: micros(now - h.since), Left: micros(h.end - now),
		})
	}
	sort.Slice(s.Holders, func(i, j int) bool { return s.Holders[i].Token < s.Holders[j].Token })
	for _, t := range l.queue {
		if t.end > now {
			s.Waiters = append(s.Waiters, sema.Waiter{ID: t.id, Weight: t.weight, Waiting: micros(max(0, now-t.arrival)), Client: t.client})
		}
	}
	return s
}

// open makes sure the semaphore exists, with the limit the first user gives.
func (l *Ledger) open(now int64, r sema.Request) {
	if l.limit == 0 {
		l.limit = r.Limit
	}
	if l.holders == nil {
		l.holders, l.tickets, l.slots = map[string]*holder{}, map[string]*ticket{}, map[int]*holder{}
	}
	l.remember(now, r.Lease)
}

// remember keeps the limit known while a lease given now may live, and a while.
func (l *Ledger) remember(now int64, lease time.Duration) {
	l.keep = max(l.keep, now+2*lease.Microseconds()+keepIdle.Microseconds())
}

// expire ends what is over: permits, and in the end the semaphore itself.
func (l *Ledger) expire(now int64) {
	for len(l.ends) > 0 && l.ends[0].end <= now {
		l.forget(l.ends[0])
	}
	if len(l.holders) == 0 && len(l.tickets) == 0 && !l.pinned && now >= l.keep {
		l.limit = 0
	}
}

func (l *Ledger) nextToken(now int64) int64 {
	l.token = max(l.token+1, now)
	return l.token
}

// take makes a holder.
func (l *Ledger) take(now, end int64, t *ticket) *holder {
	h := &holder{id: t.id, weight: t.weight, end: end, since: now, token: l.nextToken(now), slot: -1, detached: t.detached, client: t.client}
	if t.slot {
		// There are fewer permits than the limit, so an index below it is free.
		for h.slot = 0; l.slots[h.slot] != nil; h.slot++ {
		}
		l.slots[h.slot] = h
	}
	l.used += h.weight
	l.holders[h.id] = h
	heap.Push(&l.ends, h)
	return h
}

func (l *Ledger) forget(h *holder) {
	l.used -= h.weight
	delete(l.holders, h.id)
	if h.slot >= 0 {
		delete(l.slots, h.slot)
	}
	heap.Remove(&l.ends, h.index)
}

func (h *holder) answer(now int64) sema.Answer {
	return sema.Answer{Status: sema.Granted, Token: h.token, Slot: h.slot, Lease: micros(h.end - now)}
}

// grant hands free weight to the head of the queue, as far as it goes.
func (l *Ledger) grant(now int64) {
	for len(l.queue) > 0 {
		t := l.queue[0]
		client := sema.ClientOf(t.id)
		switch {
		case t.end <= now:
			l.drop(t.id) // fell silent
		case t.weight > l.limit:
			l.drop(t.id) // could never be served; asking again tells its client
			l.tell(client).Ask = true
		case t.weight > l.limit-l.used:
			return
		case !l.reach(client):
			l.drop(t.id)
		default:
			l.drop(t.id)
			h := l.take(now, t.end, t)
			wake := l.tell(client)
			wake.Grants = append(wake.Grants, sema.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})
		}
	}
}

// watch sees to it that somebody calls when the first lease ends, if anybody
// waits. Whoever asks is told when that is; so only a lease that ends before
// all that were known needs a message, to the ticket that joined last.
func (l *Ledger) watch(now int64, asker string) {
	first, held := l.nextEnd()
	for len(l.queue) > 0 && held {
		if l.tickets[l.watcher] != nil && now < l.alarm && l.alarm <= first {
			return
		}
		l.alarm = first
		if l.tickets[asker] != nil {
			l.watcher = asker
			return
		}
		tail := l.queue[len(l.queue)-1]
		if client := sema.ClientOf(tail.id); tail.end > now && l.reach(client) {
			l.watcher, l.tell(client).Look = tail.id, micros(first-now)
			return
		}
		l.drop(tail.id)
	}
	l.alarm, l.watcher = 0, ""
}

func (l *Ledger) reach(client string) bool { return l.Reach == nil || l.Reach(client) }

func (l *Ledger) tell(client string) *sema.Wake {
	if l.news == nil {
		l.news = map[string]*sema.Wake{}
	}
	w := l.news[client]
	if w == nil {
		w = &sema.Wake{}
		l.news[client] = w
	}
	return w
}

// untell takes back the news of a grant that the answer at hand carries.
func (l *Ledger) untell(id string) {
	w := l.tell(sema.ClientOf(id))
	w.Grants = slices.DeleteFunc(w.Grants, func(g sema.Grant) bool { return g.ID == id })
}

// drop removes a ticket, and reports whether there was one.
func (l *Ledger) drop(id string) bool {
	t := l.tickets[id]
	if t == nil {
		return false
	}
	delete(l.tickets, id)
	if i := l.position(t); i == 0 {
		l.queue[0] = nil
		l.queue = l.queue[1:]
	} else {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return true
}

func (l *Ledger) enqueue(t *ticket) {
	l.tickets[t.id] = t
	l.queue = slices.Insert(l.queue, l.position(t), t)
}

// position is where a ticket is, or belongs, in the queue.
func (l *Ledger) position(t *ticket) int {
	return sort.Search(len(l.queue), func(i int) bool {
		q := l.queue[i]
		return q.arrival > t.arrival || q.arrival == t.arrival && q.id >= t.id
	})
}

// wantsSlot reads the flag s of an id, client-number[s][l]-weight.
func wantsSlot(id string) bool {
	i := strings.LastIndexByte(id, '-')
	return i > 0 && strings.HasSuffix(strings.TrimSuffix(id[:i], "l"), "s")
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// endHeap orders holders by the end of their lease.
type endHeap []*holder

func (e endHeap) Len() int           { return len(e) }
func (e endHeap) Less(i, j int) bool { return e[i].end < e[j].end }
func (e endHeap) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}
func (e *endHeap) Push(x any) {
	h := x.(*holder)
	h.index = len(*e)
	*e = append(*e, h)
}
func (e *endHeap) Pop() any {
	old := *e
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return h
}
