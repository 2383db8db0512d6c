package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
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
	k.revoked(before, c, reply)
	k.observed(before, c, reply)
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

// revoked looks at tickets that were revoked before: a client that asks hears so, and what becomes of them is revoked. A ticket
// whose client did not ask in time, or cannot be told, may be gone, and with it that it was revoked.
func (k *checker) revoked(before *view, c protocol.Call, reply protocol.Reply) {
	gone, now := map[engine.ID]bool{}, k.w.server.now()
	still := func(t *ledger.Recorded) bool {
		return t != nil && t.Revoked && !gone[t.ID] && (t.Lease > 0 || t.End > now) && k.w.server.reach[t.Via]
	}
	for i, a := range reply.Answers {
		r := &c.Requests[i]
		gone[r.ID] = gone[r.ID] || r.Kind == protocol.Release
		if still(recorded(before.Waiters, r.ID)) && r.Kind == protocol.Ask && (a.Status == protocol.Granted || a.Status == protocol.Queued) {
			k.w.fail("revoke: the ticket of %v is revoked, and its ask was answered with %v", r.ID, a.Status)
		}
	}
	for i := range before.Waiters {
		t := &before.Waiters[i]
		if e := k.w.server.ledger.entry(t.ID); still(t) && e != nil && !e.Revoked {
			k.w.fail("revoke: the ticket of %v was revoked, and is not any more", t.ID)
		}
	}
}

// observed looks at a limit that is only watched. A permit that would not have waited keeps to the limit. The others have spent
// nothing of rates.
func (k *checker) observed(before *view, c protocol.Call, reply protocol.Reply) {
	l := k.w.server.ledger
	if l.Observed != nil && reply.Keep {
		k.w.fail("observe: permits may pass on, and nobody counts them")
	}
	for i := range l.Holders {
		h := &l.Holders[i]
		switch would := h.Slot == protocol.WouldWait; {
		case recorded(before.Holders, h.ID) != nil:
		case would && l.Observed == nil && before.Observed == nil:
			k.w.fail("observe: %v would have waited, and the limit is enforced", h.ID)
		case would && len(l.Spent[h.ID]) > 0:
			k.w.fail("observe: %v would have waited, and has spent %v", h.ID, l.Spent[h.ID])
		case !would && l.Observed != nil && h.ID.Weight > l.enforced:
			k.w.fail("observe: %v would not have waited for %d", h.ID, l.enforced)
		}
	}
	if n := len(c.Requests); n == 1 && c.Requests[0].Kind == protocol.SetLimit && c.Requests[0].Limit > 0 && c.Requests[0].Auto == nil && (l.Observed != nil) != c.Requests[0].Observe {
		k.w.fail("observe: a limit was set with %v, and is watched: %v", c.Requests[0].Observe, l.Observed != nil)
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
		most := max(l.amountOf(pool), min(k.byPool[pool], used))
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
	for client, n := range news { // beside pools it may be another one that goes on, with a ticket that was looked at before; or the first in line is silent
		if (k.w.pools != "" || l.ledger.Unfinished()) && asks(n) && k.w.server.reach[client] {
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
	c.n.coming[id] = w.now
	if c.n.plan.unfair || c.n.faulty > c.came {
		return
	}
	if other := k.passedOver(c); other != nil {
		w.fail("order: %v came %v before %v and still waits", other.Came(), micros(c.since()-other.since()), id)
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

func (k *checker) declares() bool {
	for _, n := range k.w.nodes {
		if n.plan.newest || n.plan.strict {
			return true
		}
	}
	return false
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
