package client

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/enum"
	"sema/internal/protocol"
)

// claim is what the client has at the engine under one id, or wants to have: a
// wish, then a ticket, then a permit. Claims belong to the client. Which of its
// callers a claim is for may change, until the caller has the permit; and a
// permit may pass from caller to caller. A claim that its caller named is that
// caller's to the end.
type claim struct {
	id     engine.ID
	target protocol.Target
	label  string // the engine has been told, or will be

	priority time.Duration // of the caller that the ticket was last asked for

	holder *Acquisition // the caller that it is for, or that has the permit; nil: the next one to come
	wish   *Wish        // of a caller that named it; see names.go

	began  time.Duration // when the granted request left, or the permit was handed over: MaxHold counts from here
	sent   time.Duration // when the request of the last good answer left; wished: the first ask that may have been carried out
	valid  time.Duration // held: until when it may be trusted
	due    time.Duration // when to ask again, or renew
	ticket int64         // the life of the ticket in the last answer

	token     int64         // the one that the engine granted
	received  time.Duration // when that was known here
	last      int64         // the last token given out: that one, or after a pass a later one
	keepUntil time.Duration // for nobody

	// A claim is made for each acquisition: small fields are together, so that it fits into 192 bytes.
	slot  int32
	index int32 // in claims.all
	stage stage

	noWait   bool // its caller does not wait
	resumed  bool // another client made the permit
	oldCaps  bool // caps have changed since it was asked for: the engine sees its release, and whether its key is over its cap
	labelled bool // an ask had a label: later asks say so if there is none
	pending  bool // in claims.due, or in the call in flight
	again    bool // ask, or renew, once more when the call in flight is back
	unsure   bool // an ask failed with unknown outcome, and none has been answered since
	moved    bool // the ticket is for another caller than the engine knows of
	found    bool // named: its permit was there before it was asked for here
	parted   bool // named: its caller asks another server
}

// stage is how far a claim is.
type stage uint8

// The stages of a claim. With holder they say all: a claim that is held for nobody
// is kept for the next caller; one that is wished or queued for nobody is spare.
const (
	wished   stage = iota + 1 // no answer yet
	queued                    // there is a ticket
	unproven                  // there is a permit, to be renewed before a caller gets it
	held                      // there is a permit: its caller has it, or it is kept for the next one
	ended
)

// String names the stage.
func (s stage) String() string {
	return enum.Name("stage", s, "", "wished", "queued", "unproven", "held", "ended")
}

// next is what each stage may become. A granted ticket may be a ticket again: the permit may lapse before anybody has it.
var next = [...][]stage{
	wished:   {queued, unproven, held, ended},
	queued:   {queued, unproven, held, ended},
	unproven: {queued, unproven, held, ended},
	held:     {held, ended},
}

// becomes changes how far a claim is.
func (cs *claims) becomes(c *claim, s stage) {
	if c.stage == ended || !slices.Contains(next[c.stage], s) {
		panic(fmt.Sprintf("client: %v is %v, and cannot become %v", c.id, c.stage, s))
	}
	weight, tickets := c.counts()
	c.stage = s
	if s == queued { // whatever it had been granted is over
		c.token, c.last, c.found = 0, 0, false
	}
	now, queues := c.counts()
	cs.lines.change(c, now-weight, queues-tickets)
}

// issued reports whether a caller has the permit.
func (c *claim) issued() bool { return c.stage == held && c.holder != nil }

// lined reports whether it is, or will be, a ticket for the callers in line.
func (c *claim) lined() bool { return !c.noWait && !c.named() && c.stage <= queued }

// counts is what it counts for in its line: weight, and tickets that the engine has queued.
func (c *claim) counts() (weight, tickets int) {
	if !c.lined() {
		return 0, 0
	}
	if c.stage == queued {
		tickets = 1
	}
	return c.id.Weight, tickets
}

// passedToken is the last token given out, if the engine does not know it.
func (c *claim) passedToken() int64 {
	if c.last > c.token {
		return c.last
	}
	return 0
}

// releaseToken is the token for a release: the last one given out, or the one of a grant
// to a caller that named it, and may have another grant under that name by then.
func (c *claim) releaseToken() int64 {
	if c.named() {
		return c.token
	}
	return c.passedToken()
}

// touched reports whether the engine may have something of it that is to be given
// back when nobody wants it. A named permit may belong to a caller of another server.
// So it counts only if it is known to be this client's own.
func (c *claim) touched() bool {
	if c.named() {
		return c.stage != wished && !c.found && !c.resumed
	}
	return c.stage != wished || c.pending || c.unsure
}

// cameAt is when the caller of a claim came.
func (c *claim) cameAt() time.Duration {
	if c.holder == nil {
		return c.began
	}
	return c.holder.came
}

// since is from when on the caller of a claim counts as waiting.
func (c *claim) since() time.Duration {
	if c.holder == nil {
		return c.began
	}
	return c.holder.since()
}

// isPermit and isTicket pick claims that are for nobody.
func isPermit(c *claim) bool { return c.stage == held }
func isTicket(c *claim) bool { return c.stage <= queued }

// ticketOf picks the tickets of a target.
func ticketOf(target protocol.Target) func(*claim) bool {
	return func(c *claim) bool { return c.target == target && isTicket(c) }
}

// claims are what the engine has for this client.
type claims struct {
	*shared
	lines *lines

	number   uint64               // of the last claim
	all      []*claim             // that have not ended
	byID     map[engine.ID]*claim // those of them that a caller named, or resumed
	byNumber map[uint64]*claim    // the others, by the part of their ids that tells them apart: half the price of an id

	idle  []*claim // permits and tickets for the next callers
	due   []*claim // to be renewed, or asked for again
	moved bool     // some tickets are for other callers than the engine knows of
	fresh []*claim // that have had no answer, in the order in which their callers came
}

// claim makes a claim for a caller.
func (cs *claims) claim(a *Acquisition) *claim {
	cs.number++
	c := &claim{
		id:     engine.ID{Client: cs.cfg.Client, Number: cs.number, Weight: a.weight, Slot: cs.cfg.Slots},
		target: a.Target, label: a.Label, priority: a.Priority, stage: wished, noWait: !a.wait, due: never, slot: -1,
	}
	cs.pair(a, c)
	cs.add(c)
	return c
}

// pair gives a claim to a caller. A ticket is asked for again if the engine has it with the label or the
// priority of another one.
func (cs *claims) pair(a *Acquisition, c *claim) {
	a.claim, a.id, c.holder = c, c.id, a
	if !c.named() && c.stage <= queued && (c.label != a.Label || c.priority != a.Priority) {
		if c.priority != a.Priority {
			c.moved, cs.moved = true, true
		}
		c.label, c.priority = a.Label, a.Priority
		cs.askAgain(c)
	}
}

func (cs *claims) add(c *claim) {
	c.index = int32(len(cs.all))
	cs.all = append(cs.all, c)
	if c.numbered() {
		cs.byNumber[c.id.Number] = c
	} else {
		cs.byID[c.id] = c
	}
	weight, tickets := c.counts()
	cs.lines.change(c, weight, tickets)
}

// numbered reports whether this machine gave the claim its number.
func (c *claim) numbered() bool { return !c.named() && !c.resumed }

// find is the claim of an id, nil if there is none.
func (cs *claims) find(id engine.ID) *claim {
	if c := cs.byNumber[id.Number]; c != nil && c.id == id {
		return c
	}
	return cs.byID[id]
}

// end takes a claim out of the machine.
func (cs *claims) end(c *claim) {
	if c.stage == ended {
		return
	}
	if a := c.holder; a != nil && a.claim == c {
		a.claim, a.valid = nil, c.valid
	}
	cs.unlist(c)
	c.holder = nil
	cs.becomes(c, ended)
	if c.numbered() {
		delete(cs.byNumber, c.id.Number)
	} else {
		delete(cs.byID, c.id)
	}
	last := cs.all[len(cs.all)-1]
	cs.all[c.index], last.index = last, c.index
	cs.all[len(cs.all)-1] = nil
	cs.all = cs.all[:len(cs.all)-1]
}

// push renews a claim, or asks for it again, with the next call.
func (cs *claims) push(c *claim) {
	if !c.pending {
		c.pending = true
		cs.due = append(cs.due, c)
	}
}

// askAgain asks for a ticket with the next call. The answer to an ask that
// travels may be older than the news.
func (cs *claims) askAgain(c *claim) {
	switch {
	case c.stage > queued:
	case c.pending:
		c.again = true
	case c.stage == queued:
		cs.push(c)
	}
}

// askAllAgain asks for all tickets again.
func (cs *claims) askAllAgain() {
	for _, c := range cs.all {
		cs.askAgain(c)
	}
}

// correctMoved asks again for the tickets that are for other callers than the engine knows of.
func (cs *claims) correctMoved() {
	for _, c := range cs.all {
		if cs.moved && c.moved && c.stage == queued && c.holder != nil {
			cs.push(c)
		}
	}
}

// renewAll renews all permits. One that its caller renews is left to the caller.
func (cs *claims) renewAll() {
	for _, c := range cs.all {
		if c.named() && cs.terms(c).Renew == 0 {
			continue
		}
		if c.pending {
			c.again = true // the answer on its way may be older
		}
		if c.issued() {
			cs.push(c)
		}
	}
}

// renewAny renews one permit.
func (cs *claims) renewAny() {
	if i := slices.IndexFunc(cs.all, func(c *claim) bool { return c.stage == held }); i >= 0 {
		cs.push(cs.all[i])
	}
}

// any reports whether there are claims.
func (cs *claims) any() bool { return len(cs.all) > 0 }

// again puts a claim of a call that failed among those to be sent.
func (cs *claims) again(c *claim) {
	if c.stage == wished {
		cs.fresh = append(cs.fresh, c)
	} else {
		cs.push(c)
	}
}

// anew makes another claim for a caller, which is sent in the order in which callers came.
func (cs *claims) anew(a *Acquisition) {
	c := cs.claim(a)
	i, _ := slices.BinarySearchFunc(cs.fresh, c, func(x, y *claim) int { return cmp.Compare(x.since(), y.since()) })
	cs.fresh = slices.Insert(cs.fresh, i, c)
}

// takeMoved yields the tickets that are for other callers than the engine knows of, at most so many.
func (cs *claims) takeMoved(most int) iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		cs.moved = false
		for _, c := range cs.all {
			switch {
			case !c.moved || c.stage > queued || c.holder == nil:
			case c.stage == wished || most <= 0:
				cs.moved = true // another time
			default:
				most--
				if c.pending {
					cs.due = slices.DeleteFunc(cs.due, func(d *claim) bool { return d == c })
				}
				c.pending = true
				yield(c)
			}
		}
	}
}

// takeDue yields what is to be renewed or asked for again. The eldest are first: should the engine have forgotten
// the tickets, they join again in order.
func (cs *claims) takeDue() iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		slices.SortFunc(cs.due, func(a, b *claim) int { return cmp.Compare(a.since(), b.since()) })
		n := 0
		for more := true; more && n < len(cs.due); n++ {
			more = yield(cs.due[n])
		}
		cs.due = slices.Delete(cs.due, 0, n)
	}
}

// takeFresh yields what has had no answer, in the order in which the callers came. To a call that has anything to say it
// adds claims for callers in line that have none.
func (cs *claims) takeFresh(anything bool) iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		adds := anything || len(cs.fresh) > 0 || cs.lines.fewTickets()
		n := 0
		for more := true; more; {
			var next *Acquisition
			if adds {
				next = cs.lines.nextWithout()
			}
			switch {
			case n < len(cs.fresh) && (next == nil || cs.fresh[n].since() <= next.since()):
				n++
				more = yield(cs.fresh[n-1])
			case next != nil:
				c := cs.claim(next)
				cs.lines.findNext(cs.lines.of(next.Target))
				more = yield(c)
			default:
				more = false
			}
		}
		cs.fresh = slices.Delete(cs.fresh, 0, n)
	}
}

// forNobody are the claims that are for nobody. The last one may end while its caller goes through them backwards.
func (cs *claims) forNobody() []*claim { return cs.idle }

// askAny asks for one ticket again. Where its ask travels, the answer may be older than the news: then that is asked
// once more. It reports whether any ask is, or will be, on its way.
func (cs *claims) askAny() bool {
	var travels *claim
	for _, c := range cs.all {
		switch {
		case c.stage > queued || c.holder == nil:
		case c.pending:
			travels = c
		case c.stage == queued:
			cs.push(c)
			return true
		default:
			return true // its first ask is to be sent
		}
	}
	if travels != nil {
		travels.again = true
	}
	return travels != nil
}

// forgetAnswered takes what has had an answer off the list of those without.
func (cs *claims) forgetAnswered() {
	cs.fresh = slices.DeleteFunc(cs.fresh, func(c *claim) bool { return c.stage != wished })
}

// waits reports whether a caller waits for its first ask to be sent.
func (cs *claims) waits() bool {
	return slices.ContainsFunc(cs.fresh, func(c *claim) bool { return item{claim: c}.awaited() })
}

// toSend reports whether any claim waits to be sent.
func (cs *claims) toSend() bool { return len(cs.due) > 0 || len(cs.fresh) > 0 }

// unsent are the claims that wait to be sent.
func (cs *claims) unsent() []*claim { return slices.Concat(cs.fresh, cs.due) }

// overtake gives a ticket to a caller that joined before others by its priority. It takes the ticket of the last caller that
// has one, if that fits, and asks for it again: its place is another one now.
func (cs *claims) overtake(l *line, a *Acquisition) {
	if l.next != nil && l.next.since() <= a.since() {
		return
	}
	last := l.last
	if l.next != nil {
		last = l.next.earlier
	}
	c := last.claim // of a itself: none
	if c == nil || c.stage > queued || last.weight != a.weight || last.Label != a.Label {
		cs.fresh = append(cs.fresh, cs.claim(a))
		return
	}
	l.withdraw(last)
	cs.pair(a, c)
}

// putAside keeps a claim for the next caller.
func (cs *claims) putAside(c *claim, until time.Duration) {
	c.holder, c.keepUntil = nil, until
	cs.idle = append(cs.idle, c)
	cs.schedule(until)
}

// unlist takes a claim off the idle list.
func (cs *claims) unlist(c *claim) {
	if c.holder != nil {
		return
	}
	list := cs.idle
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == c {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			cs.idle = list[:len(list)-1]
			return
		}
	}
}

// spares is how many tickets of a key are put aside.
func (cs *claims) spares(target protocol.Target) (n int) {
	for _, c := range cs.idle {
		if c.target == target && isTicket(c) {
			n++
		}
	}
	return n
}

// back notes that a claim is not in the call in flight any more. While it was,
// Tick passed over what is due for it.
func (cs *claims) back(c *claim) {
	c.pending = false
	if c.stage != ended {
		cs.schedule(c.due)
	}
}

// takeSpare is a ticket of this weight that is for nobody.
func (cs *claims) takeSpare(l *line, weight int, label string) *claim {
	if l.mixed {
		return nil // it would pass callers of another weight
	}
	for _, c := range cs.idle {
		if isTicket(c) && c.target == l.target && c.label == label && c.id.Weight == weight {
			cs.unlist(c)
			return c
		}
	}
	return nil
}

// move gives a ticket to another caller of the line.
func (cs *claims) move(a *Acquisition, c *claim) {
	cs.pair(a, c)
	l := cs.lines.of(a.Target)
	cs.lines.findNext(l)
	if a.state == Asking && c.stage == queued {
		cs.lines.queued(a, l.ahead)
	}
	c.moved, cs.moved = true, true
}

// Knows reports whether the machine has something under an id.
func (m *Machine) Knows(id engine.ID) bool { return m.claims.find(id) != nil }

// Unused reports whether no caller waits, or has a permit.
func (m *Machine) Unused() bool {
	return len(m.lines.busy()) == 0 && !slices.ContainsFunc(m.claims.all, func(c *claim) bool { return c.holder != nil })
}

// Cooling reports whether the engine is still to be told of a cooldown.
func (m *Machine) Cooling() bool {
	s := &m.sender
	return slices.ContainsFunc(s.orders, (*Order).cools) ||
		s.flight.flying && slices.ContainsFunc(s.flight.items, func(it item) bool { return it.order != nil && it.order.cools() })
}

// EachPermit calls f for every acquisition whose caller has a permit. f does not
// use the machine.
func (m *Machine) EachPermit(f func(*Acquisition)) {
	for _, c := range m.claims.all {
		if c.issued() {
			f(c.holder)
		}
	}
}
