// Package ledger is one semaphore as a pure state machine: no clock, no I/O,
// no locks. Time and calls come in, answers and notifications come out. The
// memory engine is a mutex around it, the file engine a file lock; and it is
// the judge of the Redis engine's Lua, which has functions of the same names and
// must give the same answers.
//
// Every step first ends the permits that have lost their lease, then carries out the
// requests, then grants free weight to the head of the queue. The queue is in
// the order in which the waiters came, weights included: behind a heavy ticket at
// the head the others wait. If a client cannot be reached, its ticket is
// dropped when it is next. If the client lives, it asks again, says how
// long it has waited, and is back in its place.
//
// The files, in the order of a step:
//
//	ledger.go        a step: it ends leases, carries out each request, and begins grants
//	ask.go           an ask: whom it refuses, and the place of its ticket; one who asks again gets the old place
//	names.go         asks under a name that the caller chose, which other servers may have heard, too
//	queue.go         the queues as data: a ticket comes in, a ticket goes out
//	order.go         who is next: sets, classes, shares of keys
//	blocked.go       what keeps the next one waiting: the limit, a key's cap, a pool
//	reserve.go       what is kept free for the one that waits
//	serve.go         the loop that grants, with these four
//	keys.go          the tree of keys, and their rules
//	pools.go         further limits beside the tree; rates.go those that come back with time, and what releases settle of them
//	observe.go       a limit that is only watched: who would have waited
//	keep.go          what clients may do with released permits without a call
//	notification.go  what a step tells clients that did not call
//	report.go        what clients report, for the eyes of operators
//	view.go          what is shown; foresee.go what will happen next; snapshot.go and codec.go what is stored
package ledger

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

const (
	// keepIdle is how long beyond the lease an unused semaphore remembers its
	// limit at the least; twice as long as both at the most.
	keepIdle = time.Minute

	// keepFence is how long after a fence late calls are refused: longer than a kernel
	// repeats a packet, which is a quarter of an hour.
	keepFence = 1000 * time.Second

	// last is behind every place in the queue.
	last = math.MaxInt64

	// maxTold is how many keepers a step tells that it is over.
	maxTold = 128
)

// Ledger is the state of one semaphore. Times are microseconds of the engine's
// clock. The zero value is a semaphore that nobody has used.
type Ledger struct {
	// Reach reports whether a client can be told of a grant now. Nil: always.
	// The caller of a step is always reached, by the reply.
	Reach func(client string) bool

	// Watched says that the engine itself notices when leases end. Otherwise
	// the ledger keeps one of the waiting clients told of the first end.
	Watched bool

	// MostEnds is how many leases a step ends at the most, so that it does not take
	// long; 0: all that are over. What is more is left to the next steps: its weight
	// is still taken, but a request about it finds it gone.
	MostEnds int

	limit  int
	pinned bool
	paused bool
	used   int
	token  int64 // the last one given
	keep   int64 // until when the limit is remembered without use
	due    int64 // when time will have brought what some ticket waits for; 0: none waits for that alone

	observed *Observed // nil: the limit is enforced

	cooldown int64         // nobody is granted a permit before; 0: there is none
	cooledBy engine.Client // who said so

	holders map[engine.ID]*holder
	ends    endHeap                 // the same holders, by the end of their lease
	slots   map[int]*holder         // the same, by slot
	spent   map[engine.ID][]float64 // by holder: of each pool that it takes, until when a rate counts as its own; none if none is a rate
	tickets map[engine.ID]*ticket
	line    []*ticket // the same, by place, whatever their keys
	keys    tree      // whose they are, and their queues

	// fences has, for each client that lost sight of a call, the smallest
	// number of a call that still counts. An engine whose sessions keep fences
	// (protocol.Fence) sends calls without numbers, so its ledger has none.
	fences map[string]fence

	// keepers has, for each client that was told it may keep permits or pass
	// them on, until when that holds. What it was told is taken back as soon as it
	// is not so any more.
	keepers map[string]Keeper

	// How the clients' holds have gone, and what the last controller said.
	reports map[string]Reported
	auto    ReportedAuto

	// Some client keeps watch while others wait: it knows to call at alarm, the
	// first lease end.
	alarm   int64
	watcher engine.ID

	step
	behind     bool // the last step left leases that are over to the next one
	unfinished bool // the last step left tickets or blocked classes to the next one, see goOn
	news       map[string]*protocol.Notification

	// Memory to be used again.
	blank     []protocol.Answer
	forgotten []*holder
}

// step is what lives for one step.
type step struct {
	caller  string
	now     int64
	budget  int  // how many tickets it may still serve or drop, see maxBudget
	swept   int  // how many blocked classes it has looked at, see sweep
	limited bool // it has changed a limit or a cap
	round   round
	handed  map[engine.ID]string // what it granted, and the client that it told
}

// entry is what a permit and a ticket have both.
type entry struct {
	owner
	demand
	id       engine.ID
	end      int64 // of the lease, or of the ticket
	detached bool
}

type holder struct {
	entry
	since   int64
	token   int64
	slot    int
	revoked bool
	index   int // in ends
}

type ticket struct {
	entry
	lease  int64 // of a ticket that lasts: what its permit begins with; else 0
	place  int64 // when its caller came, by the engine's clock
	insist bool  // granted in its turn even if its client cannot be told
	behind int   // how many more callers wait in its process

	revoked bool // its next ask hears that, and so does who is granted a permit for it
}

type fence struct {
	number uint64
	end    int64
}

// Step carries out a call of a client.
func (l *Ledger) Step(now int64, client string, who engine.Client, c protocol.Call) protocol.Reply {
	late := l.late(now, client, c)
	if !late || now >= l.keep { // a late call ends no leases
		l.expire(now)
	}
	if l.limit == 0 {
		l.keys, l.observed = tree{}, nil
	}
	if late {
		return protocol.Reply{Limit: l.limit}
	}
	l.begin(now, client)
	reply := protocol.Reply{Answers: l.answers(len(c.Requests))}
	var asker engine.ID
	waits, refused, again, acts := false, false, false, false
	for i := range c.Requests {
		r := &c.Requests[i]
		a := l.carryOut(now, &who, r)
		if a.Status != protocol.Granted {
			a.Slot = -1
		}
		if a.Status == protocol.Queued {
			waits, asker = true, r.ID
			again = again || r.Again
		}
		refused = refused || a.Status == protocol.Refused
		acts = acts || r.Acts() && a.Status == protocol.Done
		reply.Answers[i] = a
	}
	if acts && c.Number > 0 {
		l.fence(now, client, c.Number+1)
	}
	l.grantAndWatch(now, asker)
	recalled := l.recall(now, refused || waits)
	reply.Recalled = refused && recalled
	reply.Keep = l.mayKeep(now, c.Keep)
	reply.Unreachable = (again || waits && c.Keep > 0) && !l.hears(client)
	if first, held := l.NextEnd(); held && waits {
		reply.Recheck = until(now, first)
	}
	reply.Limit, reply.Caps, reply.Pools, reply.Watched, reply.Halted, reply.Room = l.limit, l.keys.caps, l.keys.amounts, l.observed != nil, l.halted(), l.noneRunnable()
	if n := l.news[client]; n != nil {
		reply.Notification = *n
		delete(l.news, client)
	}
	l.caller = ""
	return reply
}

// begin begins a step of a client's, or of nobody's.
func (l *Ledger) begin(now int64, caller string) {
	clear(l.handed)
	l.step = step{caller: caller, now: now, budget: maxBudget, handed: l.handed}
	if l.handed == nil {
		l.handed = map[engine.ID]string{}
	}
}

// answers is memory for n answers. Small calls share an allocation.
func (l *Ledger) answers(n int) []protocol.Answer {
	const many = 32
	if n > many/4 {
		return make([]protocol.Answer, n)
	}
	if n > len(l.blank) {
		l.blank = make([]protocol.Answer, many)
	}
	part := l.blank[:n:n]
	l.blank = l.blank[n:]
	return part
}

func (l *Ledger) carryOut(now int64, who *engine.Client, r *protocol.Request) protocol.Answer {
	switch r.Kind {
	case protocol.Ask:
		return l.ask(now, who, r)
	case protocol.Renew:
		return l.renew(now, r)
	case protocol.Release:
		return l.release(now, r)
	case protocol.Revoke:
		return l.revoke(now, r)
	case protocol.SetLimit:
		if r.Auto != nil {
			return l.autoLimit(now, r.Limit, *r.Auto)
		}
		return l.setLimit(now, r)
	case protocol.UnsetLimit:
		return l.mark(now, &l.pinned, false)
	case protocol.Pause:
		return l.mark(now, &l.paused, true)
	case protocol.Unpause:
		if l.cooldown > 0 {
			l.delay(now, now-l.cooldown)
		}
		l.cooldown = 0
		return l.mark(now, &l.paused, false)
	case protocol.Cooldown:
		return l.cool(now, cmp.Or(r.Who, who), r.Lease)
	case protocol.SetKey, protocol.UnsetKey:
		return l.setKey(now, r)
	case protocol.Report:
		return l.report(now, *r.Totals)
	default:
		return l.remove()
	}
}

// late reports whether a later call has fenced this one off. Such a call is a copy: its sender
// has long asked again.
func (l *Ledger) late(now int64, client string, c protocol.Call) bool {
	if c.Number == 0 {
		return false
	}
	if f := l.fences[client]; c.Number < f.number && now < f.end {
		return true
	}
	if c.Fence {
		l.fence(now, client, c.Number)
	}
	return false
}

// fence has calls of a client with a smaller number change nothing.
func (l *Ledger) fence(now int64, client string, number uint64) {
	if l.fences == nil {
		l.fences = map[string]fence{}
	}
	for other, f := range l.fences {
		if f.end <= now {
			delete(l.fences, other)
		}
	}
	l.fences[client] = fence{number, now + keepFence.Microseconds()}
}

// renew extends a permit.
func (l *Ledger) renew(now int64, r *protocol.Request) protocol.Answer {
	h := l.holder(now, r.ID)
	switch {
	case h == nil:
		return protocol.Answer{Status: protocol.Gone}
	case h.revoked:
		return protocol.Answer{Status: protocol.Revoked}
	}
	l.untell(r.ID)
	if r.Mine && h.named() {
		l.give(&h.owner, l.caller, true)
	}
	l.token = max(l.token, r.Token)
	l.extend(h, now+r.Lease.Microseconds())
	l.remember(now, r.Lease)
	return h.answer(now)
}

// release gives back a permit or leaves the queue. A client whose permit was
// given back by another renews, and so hears of it.
func (l *Ledger) release(now int64, r *protocol.Request) protocol.Answer {
	h, e := l.holder(now, r.ID), l.entry(r.ID)
	if e != nil && l.keptFor(&e.owner, r, h) {
		return protocol.Answer{Status: protocol.Gone}
	}
	l.untell(r.ID)
	if h != nil {
		l.token = max(l.token, r.Token)
		l.settle(now, h, r.Pools)
		l.forget(h)
		if h.via != l.caller {
			l.tell(h.via).Renew = true
		}
	}
	if !l.drop(r.ID) && h == nil {
		return protocol.Answer{Status: protocol.Gone}
	}
	return protocol.Answer{Status: protocol.Done}
}

// revoke makes the next renewal of a permit fail, or the next ask of a ticket, and tells its client to make one now. A
// ticket stays in the queue until its client gives it up. If it is its turn before, it becomes a revoked permit.
func (l *Ledger) revoke(now int64, r *protocol.Request) protocol.Answer {
	h, t := l.holder(now, r.ID), l.tickets[r.ID]
	switch {
	case h != nil && (h.revoked || !r.Wait):
		h.revoked = true
		l.tell(h.via).Renew = true
	case t != nil:
		t.revoked, t.insist = true, false
		l.tell(t.via).Ask = true
	case h != nil:
		return protocol.Answer{Status: protocol.InUse}
	default:
		return protocol.Answer{Status: protocol.Gone}
	}
	return protocol.Answer{Status: protocol.Done}
}

// setLimit stores the limit, and the caps of keys; 0 leaves each as it is. With Pin the limit
// outlives idleness. A limit without Observe is enforced.
func (l *Ledger) setLimit(now int64, r *protocol.Request) protocol.Answer {
	limit, caps := cmp.Or(r.Limit, l.limit), l.keys.caps
	if limit == 0 {
		return protocol.Answer{Status: protocol.Gone}
	}
	if !l.changePools(r.Pools) {
		return protocol.Answer{Status: protocol.TooMany}
	}
	l.limited = l.limited || l.limit != limit
	l.limit, l.pinned = limit, l.pinned || r.Pin
	l.observe(r.Observe || r.Limit == 0 && l.observed != nil, true)
	for i, c := range r.Caps {
		caps[i] = max(0, cmp.Or(c, caps[i]))
	}
	l.setCaps(caps)
	l.remember(now, 0)
	return protocol.Answer{Status: protocol.Done}
}

// mark sets whether a semaphore is pinned, or paused. As long as it is either, it
// outlives idleness.
func (l *Ledger) mark(now int64, flag *bool, on bool) protocol.Answer {
	if l.limit == 0 {
		return protocol.Answer{Status: protocol.Gone}
	}
	*flag = on
	l.remember(now, 0)
	return protocol.Answer{Status: protocol.Done}
}

// cool stops all grants for a while. A cooldown only becomes longer, and ends by itself. Nothing of a rate comes back in it: what would
// have come back would begin all at once at its end.
func (l *Ledger) cool(now int64, by *engine.Client, lasts time.Duration) protocol.Answer {
	if l.limit == 0 {
		return protocol.Answer{Status: protocol.Gone}
	}
	lasts = min(lasts, engine.MaxCooldown)
	if end := now + lasts.Microseconds(); end > max(now, l.cooldown) {
		l.delay(now, end-max(now, l.cooldown))
		l.cooldown, l.cooledBy = end, *by
		l.remember(now, lasts)
	}
	return protocol.Answer{Status: protocol.Done}
}

// halted reports whether all grants are stopped: by an operator, or for a while.
func (l *Ledger) halted() bool { return l.paused || l.cooldown > 0 }

// remove forgets a semaphore that nobody uses.
func (l *Ledger) remove() protocol.Answer {
	switch {
	case l.limit == 0:
		return protocol.Answer{Status: protocol.Gone}
	case len(l.holders) > 0 || len(l.tickets) > 0:
		return protocol.Answer{Status: protocol.InUse}
	}
	l.limit, l.pinned, l.paused, l.observed, l.cooldown, l.keep, l.token, l.keys = 0, false, false, nil, 0, 0, 0, tree{on: l.keys.on}
	clear(l.keepers)
	return protocol.Answer{Status: protocol.Done}
}

// holder is the permit of this id, unless its lease is over.
func (l *Ledger) holder(now int64, id engine.ID) *holder {
	h := l.holders[id]
	if h != nil && l.behind && h.end <= now {
		l.forget(h)
		return nil
	}
	return h
}

// leaseEnd is when the first lease ends if the ticket is handed over now.
func (t *ticket) leaseEnd(now int64) int64 {
	if t.lease > 0 {
		return now + t.lease
	}
	return t.end
}

// take makes a holder.
func (l *Ledger) take(now int64, e entry) *holder {
	l.token = max(l.token+1, now)
	h := l.newHolder()
	*h = holder{entry: e, since: now, token: l.token, slot: -1}
	if l.observed != nil && l.wouldWait(&h.demand) {
		h.slot = protocol.WouldWait
	} else if h.id.Slot {
		// There are fewer permits than the limit, so an index below it is free.
		for h.slot = 0; l.slots[h.slot] != nil; h.slot++ {
		}
		l.slots[h.slot] = h
	}
	l.used += h.weight
	l.hold(&h.demand, 1)
	if h.slot != protocol.WouldWait {
		l.spend(now, h)
	}
	if l.observed != nil {
		l.observed.count(l.used, h.slot)
	}
	l.holders[h.id] = h
	heap.Push(&l.ends, h)
	return h
}

// newHolder is memory for a holder, of a forgotten one if there is any.
func (l *Ledger) newHolder() *holder {
	n := len(l.forgotten)
	if n == 0 {
		return &holder{}
	}
	h := l.forgotten[n-1]
	l.forgotten = l.forgotten[:n-1]
	return h
}

// maxForgotten is how many holders' memory is kept for the next.
const maxForgotten = 64

// extend gives a permit another end of its lease.
func (l *Ledger) extend(h *holder, end int64) {
	h.end = end
	heap.Fix(&l.ends, h.index)
}

// forget removes a permit. The holder stays as it is until the next one is made.
func (l *Ledger) forget(h *holder) {
	l.used -= h.weight
	delete(l.holders, h.id)
	if h.slot >= 0 {
		delete(l.slots, h.slot)
	}
	heap.Remove(&l.ends, h.index)
	l.hold(&h.demand, -1)
	if len(l.spent) > 0 {
		delete(l.spent, h.id)
	}
	l.reschedule(h.key.leaf())
	if len(l.forgotten) < maxForgotten {
		l.forgotten = append(l.forgotten, h)
	}
}

// remember keeps the limit known while a lease given now may live, and a while;
// in steps, because in Redis that costs.
func (l *Ledger) remember(now int64, lease time.Duration) {
	if long := (lease + keepIdle).Microseconds(); l.keep < now+long {
		l.keep = now + 2*long
	}
}

// expire ends what is over: permits, and in the end the semaphore itself, with
// the tickets of those who fell silent.
func (l *Ledger) expire(now int64) {
	l.behind = false
	if l.cooldown <= now {
		l.cooldown = 0
	}
	if l.MostEnds > 0 && now < l.keep {
		l.expireSome(now)
		return
	}
	for len(l.ends) > 0 && l.ends[0].end <= now {
		l.forget(l.ends[0])
	}
	waits := func(t *ticket) bool { return !t.silent(now) }
	if now < l.keep || len(l.holders) > 0 || l.anyTicket(waits) {
		return
	}
	for id := range l.tickets {
		l.drop(id)
	}
	if !l.Outlasts(now) {
		l.limit, l.observed, l.keys = 0, nil, tree{}
		clear(l.keepers)
	}
}

// expireSome ends no more than MostEnds leases, the oldest first.
func (l *Ledger) expireSome(now int64) {
	var over []*holder
	for _, h := range l.ends {
		if h.end <= now {
			over = append(over, h)
		}
	}
	slices.SortFunc(over, func(a, b *holder) int {
		return cmp.Or(cmp.Compare(a.end, b.end), strings.Compare(a.id.String(), b.id.String()))
	})
	l.behind = len(over) > l.MostEnds
	for _, h := range over[:min(len(over), l.MostEnds)] {
		l.forget(h)
	}
}

// NextEnd is when a lease ends, or a cooldown, or time has brought what a ticket waits for; ok is false if nothing of that
// is to come.
func (l *Ledger) NextEnd() (end int64, ok bool) {
	end = earlier(l.cooldown, l.due)
	if len(l.ends) > 0 {
		end = earlier(end, l.ends[0].end)
	}
	return end, end > 0
}

// earlier is the earlier of two times; 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (h *holder) answer(now int64) protocol.Answer {
	return protocol.Answer{Status: protocol.Granted, Token: h.token, Slot: h.slot, Lease: micros(h.end - now)}
}

// Reap ends everything of clients that are dead, except for detached permits.
func (l *Ledger) Reap(now int64, dead func(client string) bool) {
	l.expire(now)
	l.begin(now, "")
	for _, h := range slices.Clone(l.ends) {
		if !h.detached && dead(h.via) {
			l.forget(h)
		}
	}
	for _, t := range slices.Clone(l.line) {
		if !t.detached && dead(t.via) {
			l.drop(t.id)
		}
	}
	l.grantAndWatch(now, engine.ID{})
}

// Over reports whether the semaphore does not exist: never used, or idle for
// so long that its limit is forgotten.
func (l *Ledger) Over(now int64) bool {
	l.expire(now)
	return l.limit == 0
}

// State is a snapshot: holders in the order of their grants, waiters in the
// order of service.
func (l *Ledger) State(now int64) engine.State {
	l.expire(now)
	s := engine.State{Limit: l.limit, Pinned: l.pinned, Paused: l.paused, Used: l.used, Caps: l.keys.caps, Observed: l.observed.State()}
	for _, h := range l.holders {
		s.Holders = append(s.Holders, engine.Holder{
			ID: h.id.String(), Weight: h.id.Weight, Slot: max(-1, h.slot), WouldWait: h.slot == protocol.WouldWait, Token: h.token, Revoked: h.revoked, Client: h.who, Key: engine.Key(h.key.name), Takes: h.takes,
			Age: micros(max(0, now-h.since)), Left: micros(h.end - now),
		})
	}
	sort.Slice(s.Holders, func(i, j int) bool { return s.Holders[i].Token < s.Holders[j].Token })
	for _, t := range l.inOrder() {
		if !t.silent(now) {
			s.Waiters = append(s.Waiters, engine.Waiter{
				ID: t.id.String(), Weight: t.id.Weight, Waiting: micros(max(0, now-t.place)), Behind: t.behind, Client: t.who, Key: engine.Key(t.key.name), Takes: t.takes,
			})
		}
	}
	if l.cooldown > 0 {
		s.Cooldown = &engine.Cooldown{Left: micros(l.cooldown - now), By: l.cooledBy}
	}
	s.Keys, s.Turns, s.Pools = l.keyStates(now), l.turns(), l.poolStates(now)
	if a := l.auto; l.limit > 0 && a.End > now {
		s.Auto = &a.Auto
	}
	return s
}

// until is the time to a lease's end, which may be past if a step is behind.
func until(now, end int64) time.Duration { return micros(max(1, end-now)) }

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
