package client

import (
	"slices"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// line is the callers of one target that wait, in the order in which they came. Those
// before next have claims.
type line struct {
	target      protocol.Target
	first, last *Acquisition
	length      int
	wanted      int          // the weight of the callers
	next        *Acquisition // the first without a claim
	untold      *Acquisition // the first that has not been told that it waits
	weight      int          // of the claims
	tickets     int          // claims that the engine has queued
	ahead       int          // tickets ahead in the last answer
	others      int          // the tickets of other clients among them
	served      int          // weight that was granted to callers in line
	pace        pace
	teller      *claim // the ticket with which the engine is told how many have no claim
	told        int    // so many
	mixed       bool   // callers of different weight are in line
	at          [2]int // one more than its place in each list of lines; 0: none
}

// lines are the lines of all targets.
type lines struct {
	*shared

	plain  line                      // of the zero target
	others map[protocol.Target]*line // that have callers, or claims
	lists  [2][]*line
	halted time.Duration // callers that came before it have waited through a pause or a cooldown
}

// The lists of lines: busy ones have callers, and some callers of those behind have no
// claim.
const (
	busy = iota
	behind
)

// of is the line of a target.
func (ls *lines) of(target protocol.Target) *line {
	if len(target.Key)+len(target.Takes) == 0 {
		return &ls.plain
	}
	l := ls.others[target]
	if l == nil {
		l = &line{target: target}
		if ls.others == nil {
			ls.others = map[protocol.Target]*line{}
		}
		ls.others[target] = l
	}
	return l
}

// note has the lists right again, after a line has changed. A line of nobody is
// forgotten.
func (ls *lines) note(l *line) {
	ls.list(busy, l, l.length > 0)
	ls.list(behind, l, l.next != nil)
	if l.length == 0 && l.weight == 0 && l != &ls.plain {
		delete(ls.others, l.target)
	}
}

// change takes in that a claim counts for more in its line, or for less.
func (ls *lines) change(c *claim, weight, tickets int) {
	if weight == 0 && tickets == 0 {
		return
	}
	l := ls.of(c.target)
	l.weight += weight
	l.tickets += tickets
	ls.note(l)
}

// busy are the lines with callers.
func (ls *lines) busy() []*line { return ls.lists[busy] }

// waitBeside reports whether callers of another target wait whose keys begin with the same name.
func (ls *lines) waitBeside(t protocol.Target) bool {
	name := func(k engine.Key) string { first, _, _ := strings.Cut(string(k), engine.KeySeparator); return first }
	return slices.ContainsFunc(ls.busy(), func(l *line) bool { return l.target != t && name(l.target.Key) == name(t.Key) })
}

// list puts a line on a list, or takes it off.
func (ls *lines) list(which int, l *line, in bool) {
	list, at := &ls.lists[which], l.at[which]
	switch {
	case in && at == 0:
		*list = append(*list, l)
		l.at[which] = len(*list)
	case !in && at > 0:
		last := (*list)[len(*list)-1]
		(*list)[at-1], last.at[which] = last, at
		*list = (*list)[:len(*list)-1]
		l.at[which] = 0
	}
}

func (l *line) add(a *Acquisition) {
	if l.length == 0 {
		l.others = 0 // what was known of other clients is of another time
	}
	before := l.last
	for before != nil && before.since() > a.since() {
		before = before.earlier
	}
	a.waiting, a.earlier, a.later = true, before, l.first
	if before != nil {
		a.later = before.later
	}
	if a.earlier == nil {
		l.first = a
	} else {
		a.earlier.later = a
	}
	if a.later == nil {
		l.last = a
	} else {
		a.later.earlier = a
	}
	l.length++
	l.wanted += a.weight
	a.joined, a.others = l.served, int32(l.others)
}

func (l *line) remove(a *Acquisition) {
	if a.earlier == nil {
		l.first = a.later
	} else {
		a.earlier.later = a.later
	}
	if a.later == nil {
		l.last = a.earlier
	} else {
		a.later.earlier = a.earlier
	}
	a.waiting, a.earlier, a.later = false, nil, nil
	l.length--
	l.wanted -= a.weight
}

// findNext moves next on to a caller without a claim.
func (ls *lines) findNext(l *line) {
	for l.next != nil && l.next.claim != nil {
		l.next = l.next.later
	}
	ls.note(l)
}

// oldest is the caller of this weight that has waited longest.
func (l *line) oldest(weight int) *Acquisition {
	for a := l.first; a != nil; a = a.later {
		if a.weight == weight {
			return a
		}
		if a == l.next { // those behind it came later than any that has a ticket
			break
		}
	}
	return nil
}

// Behind is how many callers of a target wait without a ticket.
func (m *Machine) Behind(target protocol.Target) int {
	if l := m.lines.others[target]; l != nil {
		return l.behind()
	}
	if target == (protocol.Target{}) {
		return m.lines.plain.behind()
	}
	return 0
}

func (l *line) behind() int {
	if l.next == nil {
		return 0
	}
	with := 0
	for a := l.first; a != l.next; a = a.later {
		with++
	}
	return l.length - with
}

// tells reports whether the engine has a ticket that says how many have none.
func (l *line) tells() bool { return l.teller != nil && l.teller.lined() }

// mostTickets is how much weight a line has tickets for at the most: as much as could
// be granted before the next call, twice the limit, which the lines that wait have
// between them. All may have one where the limit is only watched. With one ticket a key of short work would have one permit a round trip.
func (ls *lines) mostTickets() int {
	if ls.watched {
		return engine.MaxLimit
	}
	if n := len(ls.lists[busy]); n > 1 {
		return max(2, (2*ls.limit()+n-1)/n)
	}
	return 2 * ls.limit()
}

// few reports whether callers of a line should have tickets by now. A client asks for
// more when half of them are gone, or when it calls anyway.
func (ls *lines) few(l *line) bool { return l.next != nil && l.weight <= ls.mostTickets()/2 }

// fewTickets reports whether callers of any line should.
func (ls *lines) fewTickets() bool {
	for _, l := range ls.lists[behind] {
		if ls.few(l) {
			return true
		}
	}
	return false
}

// nextWithout is the caller without a claim that came first, of the lines that may
// have more tickets.
func (ls *lines) nextWithout() (first *Acquisition) {
	most := ls.mostTickets()
	for _, l := range ls.lists[behind] {
		if l.weight < most && (first == nil || l.next.since() < first.since()) {
			first = l.next
		}
	}
	return first
}

// withdraw takes its ticket from a caller in line.
func (l *line) withdraw(a *Acquisition) {
	a.claim, a.id = nil, engine.ID{}
	if l.next == nil || a.before(l.next) {
		l.next = a
	}
	if a.state == Asking {
		l.tellLater(a)
	}
}

// tellLater notes that a caller has not been told that it waits.
func (l *line) tellLater(a *Acquisition) {
	if l.untold == nil || a.before(l.untold) {
		l.untold = a
	}
}

// leaveLine takes a caller out of the line.
func (ls *lines) leaveLine(a *Acquisition) {
	if !a.waiting {
		return
	}
	l := ls.of(a.Target)
	if l.untold == a {
		l.untold = a.later
	}
	next := l.next
	if next == a {
		l.next = a.later
	}
	l.remove(a)
	l.mixed = l.mixed && l.length > 0
	if next == a {
		ls.findNext(l)
	} else {
		ls.note(l)
	}
}

// tellQueued tells the callers without a ticket that they wait, or refuses them. The engine has
// answered since they came, and others of their line go first.
func (ls *lines) tellQueued(now time.Duration) {
	lists := ls.lists[behind]
	for i := len(lists) - 1; i >= 0; i-- { // backwards, because a line without callers leaves the list
		l := lists[i]
		if ls.few(l) {
			continue
		}
		before := l.before()
		for a := l.untold; a != nil; a = a.later {
			before--
		}
		for a := l.untold; a != nil; before++ {
			later := a.later
			if e, refused := ls.refusal(now, l, a, before); a.claim == nil && a.state == Asking && refused {
				ls.deny(a, e)
				before--
			} else if a.claim == nil {
				ls.queued(a, l.ahead+1)
			}
			a = later
		}
		l.untold = nil
	}
}

// queued tells a caller that it waits, and behind how many tickets.
func (ls *lines) queued(a *Acquisition, ahead int) {
	if a.state == Asking {
		a.state = Waiting
	}
	if a.ahead != ahead {
		a.ahead = ahead
		ls.tell(Event{Kind: Queued, A: a, Ahead: ahead})
	}
}

// refuseLines refuses callers in line that have no ticket, for the same reason as
// one before them: their asks would hold up those behind, one after the other.
func (ls *lines) refuseLines(e Event, which func(*Acquisition) bool) {
	lists := ls.lists[behind]
	for i := len(lists) - 1; i >= 0; i-- { // backwards, because a line without callers leaves the list
		for a := lists[i].next; a != nil; {
			later := a.later
			if a.claim == nil && which(a) {
				ls.deny(a, e)
			}
			a = later
		}
	}
}

// denyLines refuses all callers in line.
func (ls *lines) denyLines(e Event) {
	for len(ls.lists[busy]) > 0 {
		ls.deny(ls.lists[busy][0].first, e)
	}
}

// deny ends an acquisition without a permit. Its claim is for the function that
// calls deny to deal with.
func (ls *lines) deny(a *Acquisition, e Event) {
	ls.leaveLine(a)
	if a.claim != nil {
		a.claim.holder, a.claim = nil, nil
	}
	a.state = Ended
	e.Kind, e.A = Denied, a
	ls.tell(e)
}
