package simulate

// planted are bugs of one line, each in the client or the ledger, that the
// simulator must find. The text old must stand in the file once, within a function.
// Those that take many seeds, seldom, are left to make planted.
var planted = []struct {
	what, file, old, new string
	seldom               bool
}{
	{"grants one more than the limit", blockedFile, "return !l.halted() && d.weight <= l.free()", "return !l.halted() && d.weight <= l.free()+1", false},
	{"a renewal revives", ledgerFile, "\tcase h == nil:\n\t\treturn protocol.Answer{Status: protocol.Gone}\n\tcase h.revoked:\n\t\treturn protocol.Answer{Status: protocol.Revoked}\n\t}\n\tl.untell", "\tcase h == nil:\n\t\treturn l.ask(now, &engine.Client{}, r)\n\tcase h.revoked:\n\t\treturn protocol.Answer{Status: protocol.Revoked}\n\t}\n\tl.untell", false},
	{"a counter as token", ledgerFile, "l.token = max(l.token+1, now)", "l.token++", false},
	{"a grant is not told", serveFile, "n.Grants = append(n.Grants, protocol.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})", "_, _ = n, h", false},
	{"free weight is not handed over", ledgerFile, "\tl.grantAndWatch(now, asker)", "\tl.watch(now, asker)", false},
	{"the queue is last in, first out", askFile, "place: now - r.Waited.Microseconds()}", "place: -now}", false},
	{"newcomers pass the queue", askFile, "(r.Unfair || backfills || l.noneAhead(a))", "(true || backfills || l.noneAhead(a))", false},
	{"a heavy ticket is passed over", serveFile, "\t\tcase blockedByLimit:\n\t\t\tl.reserve(t)\n", "\t\tcase blockedByLimit:\n\t\t\tl.drop(t.id)\n\t\t\treturn nil, 0\n\t\t\tl.reserve(t)\n", false},
	{"leases end early", ledgerFile, "for len(l.ends) > 0 && l.ends[0].end <= now {", "for len(l.ends) > 0 && l.ends[0].end <= now+50_000 {", false},
	{"a slot is given twice", ledgerFile, "for h.slot = 0; l.slots[h.slot] != nil; h.slot++ {", "for h.slot = 0; h.slot > 0 && l.slots[h.slot] != nil; h.slot++ {", false},
	{"weights are counted as one when they come back", ledgerFile, "l.used -= h.weight", "l.used--", false},
	{"late copies of calls count", ledgerFile, "if f := l.fences[client]; c.Number < f.number", "if f := l.fences[client]; false && c.Number < f.number", false},
	{"a revoked ticket is granted", serveFile, "h.revoked = t.revoked; h.revoked {", "h.revoked = false; t.insist && t.revoked {", false},
	{"a revoked ticket waits on", askFile, "t != nil && t.revoked {", "t != nil && t.revoked && !r.Wait {", false},
	{"a repeated ask forgets that its ticket was revoked", askFile, "t != nil && t.revoked {", "t != nil && t.revoked {\n\t\tt.revoked = false", false},
	{"a hand-off lasts a moment, and the client does not know", serveFile, "e.end = t.leaseEnd(now)", "e.end = now + 1", false},
	{"a lease counts from the answer", answerFile, "m.grant(now, c, answer.Token, answer.Slot, sent, lease,", "m.grant(now, c, answer.Token, answer.Slot, now+m.cfg.Margin, lease,", false},
	{"a renewal counts beyond its lease", renewFile, "m.validUntil(c, sent+answer.Lease-m.terms(c).Margin)\n\t\tif c.stage == held", "m.validUntil(c, now+answer.Lease)\n\t\tif c.stage == held", false},
	{"a cancelled wait is not given back", senderFile, "\tif touched {\n\t\ts.giveBack(c)", "\tif touched && false {\n\t\ts.giveBack(c)", false},
	{"a retry asks under another name", claimFile, "\t\tcs.fresh = append(cs.fresh, c)\n\t} else {", "\t\tif a := c.holder; a != nil {\n\t\t\tcs.end(c)\n\t\t\tc = cs.claim(a)\n\t\t}\n\t\tcs.fresh = append(cs.fresh, c)\n\t} else {", false},
	{"the grant of an older ticket counts", timeFile, "|| g.Ticket < c.ticket {", "{", true},
	{"a hand-off that lapsed is given to its caller", answerFile, "if now >= c.valid || brief && (", "if brief && (", false},
	{"the longest hold counts from the last ask", timeFile, "c.ticket, c.began = g.Ticket, now", "c.ticket, c.began = g.Ticket, sent", false},
	{"a waiter that may hold for a moment leaves the queue between its asks", callFile, "Ticket: s.ticketLife(c),", "Ticket: min(s.ticketLife(c), lease),", false},
	{"a waiter asks once and never again", answerFile, "c.due = c.sent + every\n", "c.due = never\n", false},
	{"a slot of a grant that lapsed is kept", answerFile, "\tcase c.stage != held:\n", "\tcase c.stage <= queued:\n", false},
	{"what waits for the call in flight is forgotten", answerFile, "\t\tif c.stage == unproven { // and its renewal waited for this call\n\t\t\ts.claims.push(c)\n\t\t}\n", "", false},
	{"nobody is told that another client waits", ledgerKeepFile, "if told < maxTold {", "if told < maxTold && (l.stopped() || l.limited) {", false},
	{"everybody may keep, though others wait", ledgerKeepFile, "|| l.othersWait() {\n\t\treturn false", "{\n\t\treturn false", false},
	{"a pause is told to nobody", ledgerKeepFile, "if told < maxTold {", "if told < maxTold && !l.stopped() && !l.limited {", true},
	{"what may be kept during a pause", ledgerKeepFile, "keep <= 0 || l.stopped() ||", "keep <= 0 ||", true},
	{"a key over its cap keeps nobody from passing on", ledgerKeepFile, "l.keys.over > 0 || ", "", false},
	{"a pause grants all the same", serveFile, "for !l.halted() {", "for {", false},
	{"a cooldown becomes shorter", ledgerFile, "end > max(now, l.cooldown)", "end > now", false},
	{"an observed permit is held after observing has ended", ledgerFile, "\tl.used -= h.weight\n", "\tif h.slot != protocol.WouldWait || l.observed != nil {\n\t\tl.used -= h.weight\n\t}\n", false},
	{"an observed permit spends of rates", ledgerFile, "\tif h.slot != protocol.WouldWait {\n\t\tl.spend(now, h)\n\t}", "\tl.spend(now, h)", false},
	{"a limit that is set again is only watched", ledgerFile, "l.observe(r.Observe || r.Limit == 0 && l.observed != nil, true)", "l.observe(r.Observe || l.observed != nil, true)", false},
	{"what a cap blocks waits on though it is only watched", observeFile, "\t\tl.keys.epoch += bit(l.keys.on) // what caps block has changed\n", "", false},
	{"a permit that would have waited passes on when the limit holds again", keepFile, " && c.slot != protocol.WouldWait &&", " && (c.slot != protocol.WouldWait || c.slot < 0) &&", false},
	{"what is only watched is kept", ledgerKeepFile, "l.limit == 0 || l.observed != nil ||", "l.limit == 0 ||", false},
	{"rates come back in a cooldown", ledgerFile, "l.delay(now, end-max(now, l.cooldown))", "_ = end", false},
	{"nobody is told of the end of a cooldown", ledgerFile, "end = earlier(l.cooldown, l.due)", "end = l.due", false},
	{"permits pass on in a cooldown", "internal/ledger/keep.go", "l.observed != nil || l.halted()", "l.observed != nil || l.paused", false},
	{"all that was not used of a rate comes back", ratesFile, "more = -max(0, min(-more, spent[i]-p.given-l.resumes(now)))", "_ = now", false},
	{"a release gives back what it took of a rate", poolsFile, "l.keys.pool(name).used += sign * n", "if p := l.keys.pool(name); sign < 0 {\n\t\t\tp.full -= float64(n) * p.unit\n\t\t}\n\t\tl.keys.pool(name).used += sign * n", false},
	{"nobody is told when a rate has come back", serveFile, "l.round.due > 0 {", "false {", false},
	{"permits that take of a rate pass on", keepFile, "(c.target.Takes == \"\" || !k.rated(c.target.Takes))", "true", false},
	{"weight is kept free for one that lacks a rate", reserveFile, "\tif !timed {\n", "\tif true {\n", false},
	{"a key's places are not kept free for its caller that lacks a rate", reserveFile, "\tfor k := range leaf.path() {\n", "\tfor k := range leaf.path() {\n\t\tif timed {\n\t\t\tbreak\n\t\t}\n", false},
	{"a permit passes on beside those who wait for its key", keepFile, " || m.lines.waitBeside(c.target)", "", false},
	{"nobody is told before all rates are back that a ticket lacks", ratesFile, "due == 0 || p.when(n) < due:", "due == 0 || p.when(n) > due:", true},
	{"a change of one pool makes another no rate any more", "engine/pools.go", "\tall := p.amounts()\n", "\tall := map[string]Amount{}\n\tfor name, n := range p.All() {\n\t\tall[name] = Amount{N: n}\n\t}\n", false},
	{"a recall is forgotten when an older reply comes", answerFile, "m.keeping.allow(reply.Keep && !m.keeping.overruled, f.sent+m.contact())", "m.keeping.allow(reply.Keep, f.sent+m.contact())", false},
	{"permits are passed on for as long as they last", keepFile, "k.may && now < k.until && !k.closed", "k.may && !k.closed", true},
	{"a passed permit keeps its token", keepFile, "c.last = max(c.last+1, c.token+(now-c.received).Microseconds())", "_ = now", false},
	{"nobody reports the tokens of passed permits", claimFile, "\tif c.last > c.token {\n\t\treturn c.last", "\tif false && c.last > c.token {\n\t\treturn c.last", true},
	{"a permit goes to the caller that asked, not to the oldest", assignFile, "mine, first := c.holder, l.oldest(c.id.Weight)", "mine, first := c.holder, c.holder", false},
	{"moved tickets are never corrected", claimFile, "\t\tcs.lines.queued(a, l.ahead)\n\t}\n\tc.moved, cs.moved = true, true\n", "\t\tcs.lines.queued(a, l.ahead)\n\t}\n", true},
	{"what is kept is kept for good", keepFile, "m.claims.putAside(c, min(now+m.cfg.Keep, m.keeping.until))", "m.claims.putAside(c, never)", false},
	{"whom no notification reaches never gets a turn", askFile, "t.insist = t.insist || r.Again && !l.hears(l.caller)", "t.insist = false", true},
	{"a hand-off counts before a replica has it", timeFile, "if g.Unsure {", "if false && g.Unsure {", true},
	{"a fence is forgotten", failureFile, "f.flying, f.fence = false, f.fence || !failure.NotExecuted", "f.flying, f.fence = false, false", false},
	{"a machine wakes in the past", keepFile, "\t\tif now < c.keepUntil {\n\t\t\tk.schedule(c.keepUntil)\n\t\t}\n\t\treturn now >= c.keepUntil", "\t\tk.schedule(c.keepUntil)\n\t\treturn false", false},
	{"who looks again while its call travels does so all the time", timeFile, "m.sender.recheck.at = now + m.cfg.Lease/(asksPerLease*looksPerAsk)", "m.sender.recheck.at = now + time.Microsecond", false},
	{"a release is repeated though it was answered", orderFile, "\tm.sender.answer(o, Event{Answer: answer})", "\tif o.owed && len(m.sender.orders) == 0 {\n\t\tm.sender.orders = append(m.sender.orders, o)\n\t}\n\tm.sender.answer(o, Event{Answer: answer})", false},
	{"a permit whose time is up is held until the next tick", renewFile, "if c := a.claim; c != nil && c.issued() && now >= c.valid {", "if c := a.claim; c != nil && c.issued() && now > c.valid && m.wake > now {", false},
	{"a hand-off to a ticket that lasts counts from its message", timeFile, "sent = min(now, g.Until.Sub(m.cfg.Base)-lease)", "sent = now", false},
	{"a ticket that lasts lapses", queueFile, "return t.lease == 0 && t.end <= now", "return t.end <= now", false},
	{"what is handed to a ticket that lasts is over at once", ledgerFile, "if t.lease > 0 {\n\t\treturn now + t.lease", "if false && t.lease > 0 {\n\t\treturn now + t.lease", false},
	{"what the dead leave is handed to nobody", ledgerFile, "\tl.grantAndWatch(now, engine.ID{})", "\tl.watch(now, engine.ID{})", false},
	{"what a lost reply told of grants nobody asks for", failureFile, "if !failure.NotExecuted {", "if m.cfg.Lasting && !failure.NotExecuted {", true},
	{"two tickets of a line say how many have none", callFile, "if !l.tells() {", "if true {", false},
	{"a ticket whose grant lapsed counts for nothing in its line", claimFile, "now-weight, queues-tickets)", "min(0, now-weight), queues-tickets)", false},
	{"a server lets go of a permit that its caller has from another", orderFile, "mine: c.id.Client != s.cfg.Client && !c.resumed", "mine: false", true},
	{"what its caller was told of is given back with the connection", namesFile, "p.Told = p.Told || told", "_ = told", false},
	{"the first connection that breaks ends the wait of all", namesFile, "if p.Users == 0 && !p.Over", "if p.Users >= 0 && !p.Over", false},
	{"a ticket keeps the priority of its last caller", claimFile, "(c.label != a.Label || c.priority != a.Priority)", "c.label != a.Label", false},
	{"who passes others by priority gets no ticket", claimFile, "l.next != nil && l.next.since() <= a.since()", "true", false},
	// Of keys.
	{"a cap is compared without the new weight", blockedFile, "weight > l.room(k)-reserved", "0 >= l.room(k)-reserved", false},
	{"a level counts weight, not shares", ledgerOrder, "return held * engine.DefaultShare / k.shares()", "return held", false},
	{"a rule forgets what it does not name", keysFile, "cmp.Or(r.Cap, k.cap)", "r.Cap", true},
	{"a key that was served keeps its tag", ledgerOrder, "if c.waiting > 0 {", "if false {", false},
	{"virtual time goes back", ledgerOrder, "k.up.time = max(k.up.time, c.start+k.cost(t.weight))", "k.up.time = c.start + k.cost(t.weight)", false},
	{"ties go by the name", ledgerOrder, "cmp.Or(cmp.Compare(c.level, o.level), cmp.Compare(c.finish, o.finish), cmp.Compare(c.seq, o.seq))", "cmp.Or(cmp.Compare(c.level, o.level), cmp.Compare(c.finish, o.finish), strings.Compare(c.key.name, o.key.name))", false},
	{"a key that was full begins anew", ledgerOrder, "\tcase blocked:\n\t\ti := ks.indexBlocked(c)", "\tcase blocked:\n\t\tc.seq = 0\n\t\ti := ks.indexBlocked(c)", false},
	{"nobody looks at a raised cap", serveFile, "\tleft = l.sweep()\n", "", false},
	{"a smaller cap goes unseen", serveFile, "at != nil && !impossible {", "at != nil && at.reserved > 0 && !impossible {", false},
	{"a rule does not move its key", keysFile, "\tl.reschedule(k)\n\tl.remember", "\tl.remember", false},
	{"what a key held stays counted", ledgerFile, "\tl.hold(&h.demand, -1)\n", "\tl.usePools(h.takes, -1)\n", false},
	{"a caller that does not wait passes keys in turn", blockedFile, "up != nil && slices.ContainsFunc(up.runnable, func(c *class) bool { return c.key != k })", "up != nil && a.r.Wait && slices.ContainsFunc(up.runnable, func(c *class) bool { return c.key != k })", true},
	{"permits pass on beside another key in turn", keepFile, "if others > 0 && (first == nil || !m.keeping.room || m.lines.waitBeside(c.target)) {", "if false {", false},
	{"a kept permit goes to another key", keepFile, "isPermit(c) && c.target == a.Target &&", "isPermit(c) &&", false},
	{"a spare ticket goes to another key", claimFile, "isTicket(c) && c.target == l.target &&", "isTicket(c) &&", false},
	{"there is always room", answerFile, "m.keeping.room = reply.Room", "m.keeping.room = true", false},
	// Of keys below others.
	{"a key above others keeps its tag", ledgerOrder, "if c.waiting > 0 {", "if c.waiting > 0 && c.key.own == nil {", false},
	{"what comes back below a full key leaves it full", ledgerOrder, "\t\t\tl.unlist(c)\n\t\t}\n\t\tl.schedule(k)\n", "\t\t\tl.unlist(c)\n\t\t}\n\t\tl.schedule(k)\n\t\tif slices.ContainsFunc(k.up.classes, func(c *class) bool { return c.state == blocked }) {\n\t\t\treturn\n\t\t}\n", false},
	{"the cap of a key above others is compared without the new weight", blockedFile, "return weight <= l.capOf(k) && weight > l.room(k)-reserved", "return weight <= l.capOf(k) && (k.own == nil && weight > l.room(k)-reserved || 0 >= l.room(k)-reserved)", false},
	{"only keys of one name have a cap", blockedFile, "case k.depth > 0 && l.keys.caps[k.depth-1] > 0:", "case k.depth == 1 && l.keys.caps[0] > 0:", false},
	{"a key's own callers have the cap of the keys below it", keysFile, "own := &key{name: k.name + engine.KeySeparator, up: k,", "own := &key{name: k.name + engine.KeySeparator, up: k, depth: k.depth + 1,", false},
	{"there is room while somebody is in turn below a full key", blockedFile, "return l.keys.runnable == 0", "return len(l.keys.root.classes) == 0 || len(l.keys.root.classes[0].runnable) == 0", false},
	{"a key that gets the first below it begins anew", keysFile, "\t\tl.unlist(c)\n\t\town.classes", "\t\tl.unlist(c)\n\t\tc.seq = 0\n\t\town.classes", false},
	{"a key that gets the first below it forgets what its callers hold", keysFile, "held: k.held, heldWith:", "heldWith:", false},
	{"what comes back is not counted above its key", ledgerOrder, "\t\tk.held += sign * d.weight\n", "\t\tif k.held += sign * d.weight; sign < 0 && k.depth > 0 {\n\t\t\tl.usePools(d.takes, sign)\n\t\t\treturn\n\t\t}\n", false},
	{"names with a separator are one", keysFile, "engine.KeySeparator); i >= 0 {", "engine.KeySeparator); i >= 0 && i == len(name)-1 {", false},
	// Of pools.
	{"a pool is not given back", poolsFile, "l.keys.pool(name).used += sign * n", "l.keys.pool(name).used += max(0, sign) * n", false},
	{"what comes back to a pool counts as one", poolsFile, "l.keys.pool(name).used += sign * n", "l.keys.pool(name).used += max(sign, sign*n)", false},
	{"a pool is compared without the new amount", blockedFile, "p == nil || n > p.free(l.now) {", "p == nil || n > p.limit || 0 >= p.free(l.now) {", false},
	{"less than nothing of a pool is lacked by all", blockedFile, "\tfor name, n := range takes.All() {\n\t\tif p := l.keys.pools[name]; p == nil || n > p.free(l.now) {", "\tfor _, p := range l.keys.pools {\n\t\tif !l.keys.rated && p.used > p.limit {\n\t\t\treturn false\n\t\t}\n\t}\n\tfor name, n := range takes.All() {\n\t\tif p := l.keys.pools[name]; p == nil || n > p.free(l.now) {", false},
	{"nothing of a pool is kept free", reserveFile, "p.reserved += n", "_ = n", false},
	{"no weight is kept free for who waits for a pool", reserveFile, "k.reserved += t.weight", "_ = k", false},
	{"who waits for a pool leaves it to those behind", reserveFile, "p.awaited = p.awaited || n > p.free(l.now)", "p.awaited = p.awaited || p.unit > 0 && n > p.free(l.now)", false},
	{"a pool that was awaited stays so", reserveFile, "p.reserved, p.awaited = 0, false", "p.reserved = 0", false},
	{"what is kept free of a pool is not given up", reserveFile, "p.reserved, p.awaited = 0, false", "p.awaited = false", false},
	{"weight that is kept free is not given up", reserveFile, "\t\t\tk.reserved = 0\n", "\t\t\t_ = k\n", false},
	{"a key that a reservation blocked stays blocked", reserveFile, "\t\tl.reschedule(k)\n", "\t\t_ = k\n", false},
	{"an ask takes what is kept free", reserveFile, "|| !l.round.complete || !l.fits(d) {", "|| !l.round.complete {", false},
	{"a level counts what a key holds without the pool", ledgerOrder, "c.key.level(c.pools())", "c.key.level(nil)", false},
	{"between sets of pools all counts that a key holds", ledgerOrder, "cmp.Compare(c.key.level(both), o.key.level(both))", "cmp.Compare(c.key.level(both[:0]), o.key.level(both[:0]))", false},
	{"sets of pools share a seat", ledgerOrder, "\t\tif c.waiting > 0 {\n\t\t\tl.stamp(c)\n\t\t}\n", "\t\tfor _, c := range k.classes {\n\t\t\tif l.unlist(c); c.waiting > 0 {\n\t\t\t\tl.stamp(c)\n\t\t\t}\n\t\t}\n", false},
	{"a wide ticket of a key is passed by those who want other pools", ledgerOrder, "all := len(k.classes) > 1 && l.blocksAll(k)", "all := false", true},
	{"a key that gets the first below it forgets what its callers hold of pools", keysFile, "held: k.held, heldWith: maps.Clone(k.heldWith)", "held: k.held", false},
	{"an ended pool leaves its waiters", poolsFile, "\t\treturn p.limit\n", "\t\treturn max(p.limit, p.used)\n", false},
	{"a kept permit goes to a caller that wants other pools", keepFile, "isPermit(c) && c.target == a.Target &&", "isPermit(c) && c.target.Key == a.Key &&", false},
	// Of reports.
	{"a controller's limit counts though another is pinned", reportFile, "case l.pinned:", "case false:", false},
	{"reports are added up", reportFile, "Good: max(was.Good, t.Good)", "Good: was.Good + t.Good", false},
	{"the first report counts", reportFile, "Bad: max(was.Bad, t.Bad)", "Bad: max(was.Bad, min(was.Bad+1, t.Bad))", false},
	{"all clients report as one", reportFile, "l.reports[l.caller] = Reported", "l.reports[\"\"] = Reported", false},
	{"a ticket of a caller that is refused at once stays", answerFile, "s.refuse(c, e, true)\n\t\t\treturn", "s.refuse(c, e, false)\n\t\t\treturn", false},
	{"a caller without a deadline is refused at once", tooManyFile, "late := a.Deadline > 0 && wait > left", "late := wait > left", false},
}

const (
	ledgerFile     = "internal/ledger/ledger.go"
	queueFile      = "internal/ledger/queue.go"
	keysFile       = "internal/ledger/keys.go"
	poolsFile      = "internal/ledger/pools.go"
	askFile        = "internal/ledger/ask.go"
	blockedFile    = "internal/ledger/blocked.go"
	ledgerOrder    = "internal/ledger/order.go"
	serveFile      = "internal/ledger/serve.go"
	renewFile      = "internal/client/renew.go"
	ratesFile      = "internal/ledger/rates.go"
	reserveFile    = "internal/ledger/reserve.go"
	ledgerKeepFile = "internal/ledger/keep.go"
	observeFile    = "internal/ledger/observe.go"
	reportFile     = "internal/ledger/report.go"
	claimFile      = "internal/client/claim.go"
	callFile       = "internal/client/call.go"
	keepFile       = "internal/client/keep.go"
	machineFile    = "internal/client/machine.go"
	answerFile     = "internal/client/answer.go"
	assignFile     = "internal/client/assign.go"
	namesFile      = "internal/client/names.go"
	senderFile     = "internal/client/sender.go"
	tooManyFile    = "internal/client/toomany.go"
	orderFile      = "internal/client/order.go"
	failureFile    = "internal/client/failure.go"
	timeFile       = "internal/client/time.go"
)
