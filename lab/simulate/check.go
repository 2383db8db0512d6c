package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// checker judges a run after every event, by the state of the clients and of
// the server.
type checker struct {
	w         *world
	faultless bool // nothing is planned to go wrong

	allowed          int   // the most weight that may be held: the limit, or what a smaller one found
	doubt            int64 // until when clients may trust what the server forgot
	upset            int64 // until when a failover may have put the queue out of order, or brought back what was released
	token            int64 // the last one given
	bySlot           map[int]int64
	byPool           map[string]int             // how much of each pool may be used: as much as there is, or what a smaller amount found
	byKey            map[string]int             // what each key, and each above one, held after the last step
	over             map[string]int64           // since when keys have held more than their caps
	rateSince        map[string]int64           // since when pools are rates
	lastStep, cooled int64                      // when the server made its last step, and for how long there were cooldowns until then
	turns            map[string]int64           // since when each leaf has been runnable
	given            map[engine.ID]int64        // the token of the last grant to each
	when             map[engine.ID]int64        // and when it was
	grants           map[int64]engine.ID        // the permit of each token
	idle             map[*node]int64            // since when weight was free beside a waiter of that node
	lately           int64                      // when the server last granted
	used             int64                      // the last token a caller was given, if the limit never was above 1
	gone             map[engine.ID]int64        // since when a waiter has had no ticket
	ghosts           map[engine.ID]bool         // what a late copy of a call asked for, after the server forgot that it is late
	reports          map[string]protocol.Totals // that were known after the last step
	begun            map[string]*begun          // of each rate
}

// stepped looks at a step: before is what was written before it.
func (k *checker) stepped(before *view, c protocol.Call, reply protocol.Reply, news map[string]*protocol.Notification) {
	w := k.w
	limit, used := w.server.ledger.Limit, w.server.ledger.used
	k.allowed = max(limit, min(k.allowed, used))
	if limit < before.Limit {
		k.allowed = max(limit, before.used)
	}
	if used > k.allowed && used > before.used {
		w.fail("limit: the server has granted %d, allowed %d", used, k.allowed)
	}
	if w.server.paused > 0 && used > before.used {
		w.fail("pause: the server has granted during a pause")
	}
	k.cooldown(before, c)
	err := w.server.ledger.sound()
	if room := w.server.ledger.Room(); err == nil && len(reply.Answers) > 0 && reply.Room != room {
		err = fmt.Errorf("%s is told that there is room beside those that wait: %v, and it is %v", c.Requests[0].ID.Client, reply.Room, room)
	}
	if err == nil && w.seed%8 == 0 { // in the others now and then, for that takes long
		err = w.server.ledger.Audit()
	}
	if err != nil {
		w.fail("count: %v", err)
	}
	k.caps()
	k.amounts()
	k.handedOn(c, reply, news)
	grants := slices.Clone(reply.Notification.Grants)
	for _, n := range news {
		grants = append(grants, n.Grants...)
	}
	for i, a := range reply.Answers {
		r := c.Requests[i]
		// A renewal finds what an ask before it has granted in the same step.
		if a.Status == protocol.Granted && (r.Kind == protocol.Ask || a.Token > k.token) {
			grants = append(grants, protocol.Grant{ID: r.ID, Token: a.Token, Slot: a.Slot})
		}
	}
	slices.SortFunc(grants, func(a, b protocol.Grant) int { return cmp.Compare(a.Token, b.Token) })
	k.shares(before, c, grants, reply, news)
	k.rates(before, c, reply, grants)
	for _, g := range grants {
		k.grantedAt(g.ID, g.Token)
	}
}

// asks reports whether a notification tells its client to ask again now.
func asks(n *protocol.Notification) bool { return n.Ask || n.Recheck == protocol.AtOnce }

// shares looks whether a step keeps the order among keys.
func (k *checker) shares(before *view, c protocol.Call, grants []protocol.Grant, reply protocol.Reply, news map[string]*protocol.Notification) {
	w := k.w
	if !w.classes() || len(reply.Answers) < len(c.Requests) { // a late copy does nothing
		return
	}
	told := asks(&reply.Notification) || len(c.Requests) == 0 // then the engine itself has ended what is over
	for _, n := range news {
		told = told || asks(n)
	}
	fresh := slices.DeleteFunc(slices.Clone(grants), func(g protocol.Grant) bool { return g.Token <= k.token || k.grants[g.Token] == g.ID })
	if err := w.server.judge.step(w.server.now(), before, w.server.ledger.view, c.Requests, fresh, told); err != nil {
		w.fail("share: %v", err)
	}
}

// caps compares what each key holds with its cap, or what a smaller one found.
func (k *checker) caps() {
	w := k.w
	if !w.classes() {
		return
	}
	turns := map[string]int64{}
	w.server.ledger.EachRunnable(func(leaf *class, _ engine.ID) {
		turns[leaf.name()] = w.now
		if since, ok := k.turns[leaf.name()]; ok {
			turns[leaf.name()] = since
		}
	})
	k.turns = turns
	if k.byKey == nil {
		k.byKey, k.over = map[string]int{}, map[string]int64{}
		for _, key := range w.keys {
			for _, name := range path(key) {
				k.byKey[name] = 0
			}
		}
	}
	for name, had := range k.byKey {
		held, most := w.server.ledger.KeyLoad(name)
		if _, over := k.over[name]; held <= most {
			delete(k.over, name)
		} else if !over {
			k.over[name] = w.now
		}
		most = max(most, min(had, held))
		k.byKey[name] = max(held, 0)
		if held > most {
			w.fail("cap: the server has granted %d to %q, allowed %d", held, name, most)
		}
	}
}

// amounts compares what is used of each pool with how much there is, or what a smaller amount found.
func (k *checker) amounts() {
	l := k.w.server.ledger
	if k.byPool == nil {
		k.byPool = map[string]int{}
	}
	for pool := range k.w.pools.All() {
		if w := k.w; w.pools.Amount(pool).Per > 0 {
			continue // see rates
		}
		used := l.taken[pool]
		most := max(l.Pools.Of(pool), min(k.byPool[pool], used))
		if k.byPool[pool] = most; used > most {
			k.w.fail("pool: the server has granted %d of %q, allowed %d", used, pool, most)
		}
	}
}

// missesSteps takes in that a server does not have the last steps: what had been given back since,
// beyond a limit or a cap that is smaller now, is held again.
func (k *checker) missesSteps() {
	k.allowed = max(k.allowed, k.w.server.ledger.used)
	for pool := range k.byPool {
		k.byPool[pool] = max(k.byPool[pool], k.w.server.ledger.taken[pool])
	}
	for name := range k.byKey {
		k.byKey[name], _ = k.w.server.ledger.KeyLoad(name)
	}
}

// cooldown looks whether nobody is granted anything during a cooldown, which only becomes longer.
func (k *checker) cooldown(before *view, c protocol.Call) {
	s := k.w.server
	l, now := s.ledger, s.now()
	ends := slices.ContainsFunc(c.Requests, func(r protocol.Request) bool { return r.Kind == protocol.Unpause })
	switch {
	case before.Cooldown > now && !ends && l.used > before.used:
		k.w.fail("cooldown: the server has granted %v before its end", micros(before.Cooldown-now))
	case before.Cooldown > now && !ends && l.Limit > 0 && l.Cooldown < before.Cooldown:
		k.w.fail("cooldown: it has become %v shorter", micros(before.Cooldown-l.Cooldown))
	case l.Cooldown <= now:
		s.cooled = 0
	case s.cooled == 0:
		s.cooled = k.w.now
	}
}

// halted is since when all grants are stopped; 0: they are not.
func (k *checker) halted() int64 {
	if s := k.w.server; s.paused == 0 && s.ledger.Cooldown > s.now() {
		return s.cooled
	}
	return k.w.server.paused
}

// handedOn looks whether a step has left free weight beside a ticket: none does,
// but for a late copy of a call, and one that has done so much that it has somebody
// ask. A client that cannot be notified finds out when it asks next, which is soon.
func (k *checker) handedOn(c protocol.Call, reply protocol.Reply, news map[string]*protocol.Notification) {
	l := k.w.server.ledger
	head, waits := l.Ready()
	if !waits || l.Paused || l.Cooldown > k.w.server.now() || !k.w.server.reach[head.Client] || len(reply.Answers) < len(c.Requests) || asks(&reply.Notification) {
		return
	}
	for client, n := range news { // beside pools it may be another one that goes on, with a ticket that was looked at before
		if k.w.pools != "" && asks(n) && k.w.server.reach[client] {
			return
		}
	}
	if n := news[head.Client]; n == nil || !asks(n) {
		k.w.fail("wake-up: a step leaves %v in the queue with %d of %d held", head, l.used, l.Limit)
	}
}

// revived looks at the renewals of permits that did not exist before a step.
func (k *checker) revived(gone []int, c protocol.Call, reply protocol.Reply) {
	for _, i := range gone {
		if len(reply.Answers) > 0 && reply.Answers[i].Status == protocol.Granted {
			k.w.fail("once: the renewal of %v has revived it", c.Requests[i].ID)
		}
	}
}

// grantedAt looks at a grant where it is made: its token, and whether somebody
// was passed over.
func (k *checker) grantedAt(id engine.ID, token int64) {
	w := k.w
	k.when[id] = w.now
	if k.grants[token] == id { // told again; perhaps by a replica without the last steps
		k.given[id] = token
		return
	}
	if token <= k.token {
		w.fail("token: %v has %d after %d", id, token, k.token)
	}
	k.token, k.given[id], k.grants[token], k.lately = token, token, id, w.now

	c := w.recipient(id)
	if c == nil {
		return // given up meanwhile
	}
	c.n.coming[id] = true
	if c.n.plan.unfair || c.n.faulty > c.came {
		return
	}
	if other := k.passedOver(c); other != nil {
		w.fail("order: %v came %v before %v and still waits", other.Came(), micros(c.since()-other.since()), id)
	}
}

// passedOver is a caller that came earlier than c, by more than messages take,
// and waits undisturbed.
func (k *checker) passedOver(c *caller) *caller {
	for _, n := range k.w.nodes {
		for _, other := range n.callers {
			if k.earlier(other, c) {
				return other
			}
		}
	}
	return nil
}

func (k *checker) earlier(other, c *caller) bool {
	n := other.n
	if k.w.classes() && !k.w.server.ledger.Waits(other.Acquisition.ID()) {
		return false // a process with callers of several keys has few tickets for each
	}
	return other.Target == c.Target && other.since()+k.messages() < c.since() && max(other.came, n.overtaken)+k.messages() < k.w.now && !n.served(other) && !other.try && !k.w.server.ledger.TooHeavy(other.Target, other.weight) && !n.plan.unfair &&
		n.alive && !n.paused && n.faulty < other.came && !k.mayBePassed(n, other) && k.calm() < other.came
}

// overtaken bounds how many callers are served before one that came earlier: as
// many as all permits may be passed on in a row. Each caller with priority that came since adds as many.
// Its ticket may go to another caller and be granted before the engine knows that.
func (k *checker) overtaken(c *caller) {
	for _, n := range k.w.nodes {
		for _, other := range n.callers {
			if n == c.n || c.n.plan.unfair || c.n.faulty > c.came || c.try || !k.earlier(other, c) || k.uninformed(c.n, other) {
				continue
			}
			if other.behind++; other.behind > 3*k.allowed+k.w.starts-other.starts {
				k.w.fail("order: %d were served before %v that came later", other.behind, other.Came())
			}
		}
	}
}

// mayBePassed reports whether a process that cannot be notified may be passed over: as
// long as it has not asked again for its ticket since.
func (k *checker) mayBePassed(n *node, c *caller) bool {
	return n.unreachable && k.w.now < max(n.unreachableSince, c.came, c.ticket)+n.plan.lease/4+k.messages()
}

// uninformed reports whether a process that cannot be notified may not know yet that another's caller
// waits: it passes permits on for a sixth of its lease after its last call.
func (k *checker) uninformed(n *node, other *caller) bool {
	return n.unreachable && k.w.now < other.came+n.plan.lease/6+k.messages()
}

// tokens looks at the token of a permit that a caller gets, perhaps from another
// caller.
func (k *checker) tokens(c *caller) {
	w, id := k.w, c.Acquisition.ID()
	if w.back > 0 {
		return // what was given out and not reported may be ahead of the server's clock
	}
	if w.server.ledger.Limit != 1 || w.limits > 0 || w.limit != 1 {
		k.used = 1 << 62
	}
	if k.used != 1<<62 {
		if c.token <= k.used && w.now >= k.doubt {
			w.fail("token: %v has %d after %d", id, c.token, k.used)
		}
		k.used = max(k.used, c.token)
	}
	if slot := c.Slot(); slot >= 0 {
		if c.token <= k.bySlot[slot] && w.now >= k.doubt {
			w.fail("token: slot %d has %d after %d", slot, c.token, k.bySlot[slot])
		}
		k.bySlot[slot] = max(k.bySlot[slot], c.token)
	}
	if ahead := c.token - w.server.now(); ahead > 1000 && w.now > k.doubt && !w.hurried {
		w.fail("token: %v has one that is %v ahead of the server's clock", id, micros(ahead))
	}
}

// passed looks at a permit that went from caller to caller.
func (k *checker) passed(c *caller) {
	w, n, id := k.w, c.n, c.Acquisition.ID()
	contact := n.plan.lease/6 + k.messages()
	if since := k.halted(); since > 0 && w.now-since > contact {
		w.fail("pause: %v is passed on %v after it", id, micros(w.now-since))
	}
	for _, name := range path(c.Key) {
		if since, over := k.over[name]; over && w.now-since > contact && k.calm() <= since {
			w.fail("cap: %v is passed on, and %q has held more than its cap for %v", id, name, micros(w.now-since))
		}
	}
	for pool := range c.Takes.All() {
		if since, rated := k.rateSince[pool]; rated && w.now-since > contact && k.calm() <= since {
			w.fail("rate: %v is passed on, and %s has been a rate for %v", id, pool, micros(w.now-since))
		}
	}
	if n.plan.unfair || n.faulty > c.came {
		return
	}
	k.beside(c)
	if other := k.passedOver(c); other != nil {
		if k.uninformed(n, other) {
			return
		}
		w.fail("order: %v came %v before the one to whom %v is passed on", other.Came(), micros(c.since()-other.since()), id)
	}
}

// beside looks whether a permit is passed on while another key of the process waits
// runnable, by more than messages take.
func (k *checker) beside(c *caller) {
	w := k.w
	if w.server.down || k.calm() > w.now-k.messages() || c.n.faulty > w.now {
		return
	}
	w.server.ledger.EachRunnable(func(leaf *class, first engine.ID) {
		target := leaf.target()
		waits := slices.ContainsFunc(c.n.callers, func(o *caller) bool { return o.Target == target && o.State() == client.Waiting })
		since := max(k.turns[leaf.name()], k.lately)
		if waits && target != c.Target && first.Client == c.n.client && w.now-since > 2*k.messages() {
			w.fail("share: %v is passed on, and %v of its process has been runnable for %v", c.Acquisition.ID(), target, micros(w.now-since))
		}
	})
}

// within looks whether a process serves its callers in the order they came.
func (k *checker) within(c *caller) {
	for _, other := range c.n.callers {
		if c.Target == other.Target && !c.try && !other.try && !other.held && other.weight == c.weight && other.order() < c.order() && !c.n.plan.unfair {
			k.w.fail("order: %v of %s is served before %v", c.Came(), c.n.client, other.Came())
		}
	}
}

// messages is how long a caller's wish may take to reach the server: it waits
// for a call's return, and then travels.
func (k *checker) messages() int64 {
	if k.w.failovers > 0 { // and then for a replica, as what is handed over does
		return 12*k.w.delay + millisecond
	}
	return 6*k.w.delay + millisecond
}

// calm is when the server was last disturbed.
func (k *checker) calm() int64 { return max(k.doubt, k.upset) }

// mostTicks is how many ticks in a row may do nothing at all.
const mostTicks = 1000

// ticked looks when a machine wants its next tick, right after one. A real loop
// would spin as well.
func (k *checker) ticked(n *node) {
	if at, ok := n.machine.Wake(); ok && at <= n.clock() {
		k.w.fail("tick: %s has ticked, and is to tick again at once: %v ago", n.client, n.clock()-at)
	}
	if n.ticks > mostTicks {
		k.w.fail("tick: %s has ticked %d times in a row, and nothing else happened", n.client, n.ticks)
	}
}

// looked looks at a permit whose process has just compared it with its clock.
func (k *checker) looked(c *caller) {
	if c.Valid() <= c.n.clock() {
		k.w.fail("loss: %v is held, and its time is up", c.Acquisition.ID())
	}
}

// granted looks at a permit that a caller gets.
func (k *checker) granted(c *caller) {
	k.trust(c)
	k.held()
	if t := k.w.server.ledger.TargetOf(c.Acquisition.ID()); t != c.Target && k.w.now >= k.doubt && k.w.classes() {
		k.w.fail("share: %v is one of %v, and goes to a caller of %v", c.Acquisition.ID(), t, c.Target)
	}
	k.tokens(c)
	k.within(c)
	if k.given[c.Acquisition.ID()] != c.token {
		k.passed(c)
	}
	k.overtaken(c)
	delete(c.n.coming, c.Acquisition.ID())
	if c.over {
		k.w.fail("once: %v was granted after its end", c.Acquisition.ID())
	}
}

// trust checks that a client trusts its permit no longer than the server's
// lease lasts.
func (k *checker) trust(c *caller) {
	w := k.w
	if w.now < k.doubt {
		return
	}
	valid := c.n.truly(c.Valid())
	if c.Valid() <= c.n.clock() {
		w.fail("loss: %v is given to its caller after its time", c.Acquisition.ID())
	}
	end, ok := w.server.ledger.LeaseEnd(c.Acquisition.ID())
	if truly := end - w.server.now() + w.now; !ok || truly < valid {
		w.fail("loss: %v is trusted until %v, and its lease ends at %v (%v)", c.Acquisition.ID(), micros(valid), micros(truly), ok)
	}
}

// held adds up the weight that clients trust, by their own clocks.
func (k *checker) held() {
	w, sum := k.w, 0
	taken := map[string]int{}
	count := func(weight int, takes engine.Pools) {
		sum += weight
		for pool, n := range takes.All() {
			if w.pools.Amount(pool).Per == 0 {
				taken[pool] += n
			}
		}
	}
	if w.now < k.doubt {
		return
	}
	slots := map[int]bool{}
	for _, n := range w.nodes {
		for _, c := range n.callers {
			if !c.held || n.truly(c.Valid()) <= w.now {
				continue
			}
			count(c.weight, c.Takes)
			if s := c.Slot(); s >= 0 {
				if slots[s] {
					w.fail("slot: %d is held twice", s)
				}
				slots[s] = true
			}
		}
	}
	for _, u := range w.users {
		if u.holds && !u.gives && u.until > w.now {
			count(u.weight, u.target.Takes)
		}
	}
	if sum > k.allowed {
		w.fail("limit: %d is held, allowed %d", sum, k.allowed)
	}
	for pool, n := range taken {
		if n > k.byPool[pool] && k.allowed < 1<<30 {
			w.fail("pool: %d of %q is held, allowed %d", n, pool, k.byPool[pool])
		}
	}
}

// userGranted looks at a permit that a user is told of, for which it asked at a time.
func (k *checker) userGranted(u *user, came int64) {
	k.userTrusts(u)
	w := k.w
	w.longest = max(w.longest, w.now-came)
	if u.broke > 0 && w.now < u.broke+2*w.longestLease() {
		return
	}
	for _, other := range w.users {
		if _, granted := w.server.ledger.LeaseEnd(other.id()); granted {
			continue // and is about to hear of it
		}
		if other.target == u.target && other.came > 0 && other.came+k.messages()+w.userTime() < came && other.sure < other.came+1 &&
			other.weight <= w.server.ledger.Limit && k.calm() < other.came && other.undisturbed() {
			w.fail("order: user %d came %v before user %d and still waits", other.number, micros(came-other.came), u.number)
		}
	}
}

// userTrusts checks that a user trusts its permit no longer than the server's
// lease lasts.
func (k *checker) userTrusts(u *user) {
	w := k.w
	k.held()
	if w.now < k.doubt || u.until <= w.now {
		return
	}
	end, ok := w.server.ledger.LeaseEnd(u.id())
	if truly := end - w.server.now() + w.now; !ok || truly < u.until {
		w.fail("loss: user %d trusts %v until %v, and its lease ends at %v (%v)", u.number, u.id(), micros(u.until), micros(truly), ok)
	}
}

// userLost looks at a permit that was gone when its user gave it back.
func (k *checker) userLost(u *user) {
	w := k.w
	if u.until <= w.now || w.revokes > 0 || k.calm() >= w.now-2*w.longestLease() || w.forgets > 0 || w.failovers > 0 || w.unsets > 0 {
		return
	}
	w.fail("loss: %v of user %d is gone, and nobody took it", u.id(), u.number)
}

// userDenied looks at a user whose request ended without a permit.
func (k *checker) userDenied(u *user) {
	w := k.w
	if k.faultless {
		w.fail("wait: user %d was refused", u.number)
	}
}

// denied looks at an acquisition that ends without a permit.
func (k *checker) denied(c *caller, e client.Event) {
	w := k.w
	switch e.Reason {
	case client.Refused:
		if !c.try {
			w.fail("wait: %v was refused, though it waits", c.Acquisition.ID())
		}
	case client.Busy:
		if c.try || !c.n.refuses() {
			w.fail("wait: %v was refused as one of too many, and may wait", c.Acquisition.ID())
		}
	case client.TooHeavy, client.LimitIsAnother:
		if w.limits == 0 && w.rules == 0 && w.amounts == 0 && w.restarts == 0 && w.forgets == 0 && !k.declares() {
			w.fail("wait: %v ended with %v, and nobody changed the limit", c.Acquisition.ID(), e.Reason)
		}
	case client.Revoked:
		if w.revokes == 0 {
			w.fail("wait: %v was revoked by nobody", c.Acquisition.ID())
		}
	case client.EngineFailed:
		if c.n.faulty < c.came && k.doubt < c.came {
			w.fail("wait: %v failed without a fault: %v", c.Acquisition.ID(), e.Err)
		}
	default:
		w.fail("wait: %v ended with %v", c.Acquisition.ID(), e.Reason)
	}
}

func (k *checker) declares() bool {
	for _, n := range k.w.nodes {
		if n.plan.newest || n.plan.strict {
			return true
		}
	}
	return false
}

// lost looks at a permit that its client gives up.
func (k *checker) lost(c *caller, e client.Event) {
	w, n := k.w, c.n
	excused := n.faulty >= n.truly(c.GrantedAt())-n.plan.lease || w.now < k.calm() || n.plan.noRenewal
	if held := n.clock() - c.GrantedAt() + c.answered; e.Reason == client.HeldTooLong && held < micros(n.plan.maxHold) {
		w.fail("loss: %v was lost as held for too long, after %v of %v", c.Acquisition.ID(), held, micros(n.plan.maxHold))
	}
	switch {
	case e.Reason == client.Revoked && w.revokes > 0, e.Reason == client.HeldTooLong && n.plan.maxHold > 0, excused:
	default:
		w.fail("loss: %v was lost (%v) without a fault", c.Acquisition.ID(), e.Reason)
	}
}

// waits looks whether weight is free beside a waiter for too long. It is called
// every so often.
func (k *checker) waits() {
	w := k.w
	k.held()
	k.strays()
	k.queued()
	k.unheard()
	k.audited()
	k.counted()
	limit, used := w.server.ledger.Limit, w.server.ledger.used
	if w.server.down || w.server.refuse != nil || k.halted() > 0 {
		clear(k.idle)
		return
	}
	for _, n := range w.nodes {
		var waiting *caller
		for _, c := range n.callers {
			if w.hasRoom(c) && !c.try && !n.served(c) && (waiting == nil || c.weight < waiting.weight) {
				waiting = c
			}
		}
		if waiting == nil || !n.alive || n.paused || n.cut || limit == 0 || n.unreachable { // that one hears of what it was granted when it asks again
			delete(k.idle, n)
			continue
		}
		if k.idle[n] == 0 {
			k.idle[n] = w.now
		}
		if since := max(k.idle[n], k.lately, waiting.came); w.now-since > k.patience(n) {
			w.fail("wake-up: %v has waited beside free weight for %v (%d of %d held)", waiting.Acquisition.ID(), micros(w.now-since), used, limit)
		}
	}
}

// revive notes a late copy of a call that the server does not know to be late. Nobody gives back
// what it asks for: that ends with its lease.
func (k *checker) revive(c protocol.Call) {
	for _, r := range c.Requests {
		if r.Kind == protocol.Ask {
			k.ghosts[r.ID] = true
		}
	}
}

// strays looks for permits and tickets of a process that does not know of them,
// and is not about to give anything back: they would stay until they lapse.
func (k *checker) strays() {
	w := k.w
	w.server.ledger.Each(func(id engine.ID, end int64, detached bool) {
		if detached || k.ghosts[id] || end <= w.server.now() || w.server.now()-k.given[id] <= k.messages() {
			return // its client may have to hear of it yet
		}
		for _, n := range w.nodes {
			if n.client == id.Client && n.alive && !n.paused && n.machine.Idle() && !n.machine.Knows(id) && w.now > k.calm() {
				w.fail("leak: nobody has %v, or gives it back", id)
			}
		}
	})
}

// queued checks that each waiter has its place at the server all the time. With
// faults a waiter may lose its place, and gets it back when it asks again.
func (k *checker) queued() {
	if !k.faultless {
		return
	}
	w, gone := k.w, map[engine.ID]int64{}
	for _, n := range w.nodes {
		for _, c := range n.callers {
			id := c.Acquisition.ID()
			if c.State() != client.Waiting || !n.machine.Knows(id) || w.server.ledger.Queues(w.server.now(), id) {
				continue
			}
			if _, granted := w.server.ledger.LeaseEnd(id); granted {
				continue
			}
			gone[id] = min(w.now, k.gone[id])
			if k.gone[id] == 0 {
				gone[id] = w.now
			}
			if w.now-gone[id] > k.messages() {
				w.fail("queue: %v waits, and has had no ticket for %v", id, micros(w.now-gone[id]))
			}
		}
	}
	k.gone = gone
}

// unheard looks for callers whose permit was granted before a call failed whose reply
// may have told of it: nothing else would, and since then all has been asked for again.
func (k *checker) unheard() {
	w := k.w
	for _, n := range w.nodes {
		if !n.alive || n.paused || !n.machine.Idle() {
			continue
		}
		for _, c := range n.callers {
			id := c.Acquisition.ID()
			if end, granted := w.server.ledger.LeaseEnd(id); granted && end > w.server.now() && c.State() == client.Waiting && k.when[id] < n.doubtful {
				w.fail("wake-up: %v was granted at %v, a call failed at %v, and its caller waits", id, micros(k.when[id]), micros(n.doubtful))
			}
		}
	}
}

// audited looks whether what the server and each process keep twice is the same.
func (k *checker) audited() {
	if err := k.w.server.ledger.Audit(); err != nil {
		k.w.fail("count: the server: %v", err)
	}
	for _, n := range k.w.nodes {
		if err := n.machine.Audit(); err != nil {
			k.w.fail("count: %s: %v", n.client, err)
		}
	}
}

// counted compares how many callers the server counts, of each process in which the
// same ones have waited undisturbed since its tickets were to be asked for again, with how many there are.
func (k *checker) counted() {
	w := k.w
	for _, n := range w.nodes {
		wait := 0
		for _, c := range n.callers {
			if c.State() == client.Waiting {
				wait++
			}
		}
		if n.unreachable { // its ticket may have gone when its turn came, until it asks again
			n.changed = w.now
		}
		said := max(n.changed, n.faulty) + 2*n.plan.lease/asksPerLease + k.messages()
		if !n.alive || n.paused || n.cut || n.plan.lasting || w.server.down || w.now < said || k.calm() > n.changed || n.awaits() {
			continue
		}
		if counted := w.server.ledger.Callers(n.client); counted != wait {
			w.fail("count: %d callers of %s wait, and the server counts %d", wait, n.client, counted)
		}
	}
}

// patience is how long weight may be free beside a waiter. Without faults that
// is a matter of messages. With faults it also depends on the next ask: its
// own, or that of a ticket in front of it whose process has a fault.
func (k *checker) patience(n *node) int64 {
	w := k.w
	if k.faultless && k.rated() {
		return k.messages() + n.plan.lease/100 + 5*millisecond // so often somebody looks what time has brought
	}
	if k.faultless {
		return k.messages() + n.plan.lease/100
	}
	longest := int64(0)
	for _, other := range w.nodes {
		longest = max(longest, other.plan.lease)
	}
	return 2*longest + 6*second
}

// left looks what remains when everybody has gone.
func (k *checker) left() {
	w := k.w
	for pool, b := range k.begun {
		k.keepsTo(pool, b)
	}
	for _, n := range w.nodes {
		if len(n.callers) > 0 {
			c := n.callers[0]
			w.fail("leak: %v has not ended (state %d)", c.Acquisition.ID(), c.State())
		}
		if n.alive && !n.machine.Idle() {
			w.fail("leak: %s still wants to send something", n.client)
		}
	}
	w.server.ledger.Each(func(id engine.ID, end int64, _ bool) {
		if end > w.server.now() {
			w.fail("leak: the server still has %v", id)
		}
	})
	for _, p := range w.server.ledger.ledger.State(w.server.now()).Pools {
		if p.Used > 0 && p.Per == 0 || p.Waiting > 0 {
			w.fail("leak: the server still counts %+v", p)
		}
	}
}

// hasRoom reports whether so much is free that all of it cannot be kept free for others: with pools, as much as all want
// that wait.
func (w *world) hasRoom(c *caller) bool {
	l, most, wanted := w.server.ledger, w.heaviest(), map[string]int{}
	if w.pools != "" {
		most = 0
		add := func(weight int, takes engine.Pools) {
			most += weight
			for pool, n := range takes.All() {
				wanted[pool] += n
			}
		}
		for _, n := range w.nodes {
			for _, o := range n.callers {
				if !o.held {
					add(o.weight, o.Takes)
				}
			}
		}
		for _, u := range w.users {
			if !u.holds {
				add(u.weight, u.target.Takes)
			}
		}
	}
	for pool := range c.Takes.All() {
		taken := l.taken[pool]
		if l.rate(pool) {
			taken = l.missing(pool, w.server.now())
		}
		if taken+wanted[pool] > l.Pools.Of(pool) {
			return false
		}
	}
	room, _ := l.PathLoad(c.Key)
	return most <= min(room, l.Limit-l.used)
}

// heaviest is the largest weight that somebody waits for: less than that may be
// kept free for it.
func (w *world) heaviest() int {
	most := 0
	for _, n := range w.nodes {
		for _, c := range n.callers {
			if !c.held {
				most = max(most, c.weight)
			}
		}
	}
	for _, u := range w.users {
		if !u.holds {
			most = max(most, u.weight)
		}
	}
	return most
}

// recipient is the caller who will get what is granted under an id: the oldest
// one that nothing else is coming to, if the one who asked waits.
func (w *world) recipient(id engine.ID) *caller {
	for _, n := range w.nodes {
		if n.client != id.Client || !n.machine.Knows(id) {
			continue
		}
		target := w.server.ledger.TargetOf(id)
		var oldest *caller
		for _, c := range n.callers {
			switch {
			case c.Acquisition.ID() == id && (c.try || c.held):
				return c
			case !c.try && c.Target == target && c.weight == id.Weight && !n.served(c) && (oldest == nil || c.order() < oldest.order()):
				oldest = c
			}
		}
		return oldest
	}
	return nil
}

// served reports whether a caller has a permit, or one is on its way to it: what
// the server granted goes to the oldest callers.
func (n *node) served(c *caller) bool {
	if c.held {
		return true
	}
	before, coming := 0, 0
	for _, other := range n.callers {
		if !other.held && !other.try && other.Target == c.Target && other.weight == c.weight && other.order() < c.order() {
			before++
		}
	}
	for id := range n.coming {
		switch _, granted := n.w.server.ledger.LeaseEnd(id); {
		case !granted || !n.machine.Knows(id):
			delete(n.coming, id)
		case id.Weight == c.weight && n.w.server.ledger.TargetOf(id) == c.Target:
			coming++
		}
	}
	return before < coming
}

func calls(c protocol.Call) string {
	var b strings.Builder
	for _, r := range c.Requests {
		fmt.Fprintf(&b, " %v %v", r.Kind, r.ID)
		if r.Kind == protocol.Ask {
			fmt.Fprintf(&b, " waited %v", r.Waited)
			if r.Anew {
				b.WriteString(" anew")
			}
		}
	}
	return b.String()
}

func answers(reply protocol.Reply) string {
	var b strings.Builder
	for _, a := range reply.Answers {
		fmt.Fprintf(&b, " %v", a.Status)
	}
	if reply.Keep {
		b.WriteString(" may keep")
	}
	if !reply.Notification.Empty() {
		fmt.Fprintf(&b, " %+v", reply.Notification)
	}
	return b.String()
}
