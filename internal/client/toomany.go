package client

import "time"

// This file decides which callers are refused at once because too many wait before them.

// pace is how long a line takes to be granted a weight of 1, as its callers have seen. The zero
// value knows nothing.
type pace struct {
	each time.Duration // 0: not known
	last time.Duration // when a caller that had waited was last granted
}

// longest bounds an estimate.
const longest = 366 * 24 * time.Hour

// learn takes in that a caller was granted, and which weight its line was granted while the
// caller waited, its own included. A quicker pace counts for a half, and a slower one for an eighth:
// a stall says less about the next grants than a row of quick ones.
func (p *pace) learn(now, waited time.Duration, weight int) {
	each := max(1, waited/time.Duration(max(1, weight)))
	switch {
	case p.each == 0:
		p.each = each
	case each < p.each:
		p.each -= (p.each - each) / 2
	default:
		p.each += (each - p.each) / 8
	}
	p.last = now
}

// wait estimates how long a line takes to be granted a weight; 0: nothing is known.
func (p *pace) wait(weight int) time.Duration {
	return time.Duration(min(float64(p.each)*float64(weight), float64(longest)))
}

// forgetPaces forgets how long lines took, because more is to be had from now on.
func (ls *lines) forgetPaces() {
	ls.plain.pace = pace{}
	for _, l := range ls.others {
		l.pace = pace{}
	}
}

// refusal reports whether a caller is refused at once, and with which event: because MaxWaiting callers and tickets of its line
// are before it, or because the grant would come after its deadline. A caller with none before it is never refused. While the
// limit is only watched, no caller is. A
// pace is stale if nobody was granted for as long as the deadline is away. Then no caller is refused for its deadline, because
// only callers that wait can learn a new pace.
func (ls *lines) refusal(now time.Duration, l *line, a *Acquisition, before int) (e Event, refused bool) {
	if before == 0 || ls.watched {
		return e, false
	}
	wait := l.pace.wait(l.weigh(before) + a.weight)
	left := max(0, a.Deadline-now)
	late := a.Deadline > 0 && wait > left && now-l.pace.last <= left
	return Event{Reason: Busy, Wait: wait}, late || ls.cfg.MaxWaiting > 0 && before >= ls.cfg.MaxWaiting
}

// refuseNext reports whether a caller is refused that would join a line that waits.
func (ls *lines) refuseNext(now time.Duration, a *Acquisition) bool {
	l := ls.of(a.Target)
	before := l.before()
	if a.Priority > 0 { // the engine says how many of other clients are before it
		before = 0
		for b := l.first; b != nil && b.since() <= a.since(); b = b.later {
			before++
		}
	}
	e, refused := ls.refusal(now, l, a, before)
	if refused {
		ls.deny(a, e)
	}
	return refused
}

// before is how many callers and tickets are before the next caller of the line, as far as
// this client knows. Callers of other clients that have no ticket are not counted.
func (l *line) before() int { return l.length + l.others }

// weigh is what so many callers weigh, if they weigh what those in line do on average.
func (l *line) weigh(callers int) int {
	if l.length == 0 {
		return callers
	}
	return callers * l.wanted / l.length
}

// place takes in how many tickets are ahead of a caller's. All tickets of this client are ahead of a new ticket, and
// all but one ahead of the last caller's.
func (l *line) place(c *claim, ahead int) {
	switch a := c.holder; {
	case c.stage == wished:
		l.others = max(0, ahead-l.tickets)
		a.others = int32(l.others)
	case a.later == l.next:
		l.others = max(0, ahead-l.tickets+1)
	}
}

// served takes in that a caller in line is granted its permit. Callers that gave up while it
// waited do not count: they say nothing of how often the line is granted something. Neither does one that
// waited through a pause or a cooldown.
func (ls *lines) served(now time.Duration, a *Acquisition) {
	if !a.waiting {
		return
	}
	l := ls.of(a.Target)
	l.served += a.weight
	if a.state == Waiting && a.came >= ls.halted {
		l.pace.learn(now, now-a.came, l.served-a.joined+l.weigh(int(a.others)))
	}
}
