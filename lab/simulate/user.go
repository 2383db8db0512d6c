package simulate

import (
	"slices"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// user is a program that uses the JSON API: it names its permit, asks any of the
// servers, asks again when a connection breaks, renews by itself, and gives back.
// What a server does with that is Names and a Machine, as in package server; the
// connections are the simulation's.
type user struct {
	w      *world
	number uint64
	target protocol.Target
	weight int
	lease  int64
	hold   int64

	came  int64 // when it began to ask; 0: it does not
	asked int   // how often it has asked; answers to earlier attempts reach nobody
	node  *node // the one that it asked last
	sure  int64 // since when nothing has gone wrong for it
	broke int64 // when a connection of it last broke: a server may still wait on its behalf

	holds bool
	token int64
	until int64 // so long it trusts what it was told
	ends  int64 // when it will have done its work
	gives bool  // it is giving back
}

// request is one of a user, at a server.
type request struct {
	u       *user
	attempt int
	p       *client.Named
}

func (u *user) id() engine.ID { return engine.ID{Client: "api", Number: u.number, Weight: u.weight} }

// newUsers are the users of a plan.
func (w *world) newUsers() {
	for i := range w.plan.users {
		u := &user{w: w, number: uint64(i + 1), target: w.target(), weight: 1 + w.rng.IntN(w.plan.userWeight), lease: w.plan.userLease, hold: w.plan.userHold}
		w.users = append(w.users, u)
		w.after(w.between(0, 2*millisecond), u.come)
	}
}

// come has the user want a permit.
func (u *user) come() {
	if u.w.ending {
		return
	}
	u.came, u.sure = u.w.now, u.w.now
	u.ask()
}

// server is one that the user asks: any.
func (u *user) server() *node {
	var servers []*node
	for _, n := range u.w.nodes {
		if n.plan.serves {
			servers = append(servers, n)
		}
	}
	return servers[u.w.rng.IntN(len(servers))]
}

// reaches has f done at a server, after a message's delay; or lost, if the server is
// not there when it comes.
func (u *user) reaches(n *node, f func(), lost func()) {
	w, born := u.w, n.born
	w.after(w.between(20, w.delay), func() {
		if n.born != born || !n.alive {
			lost()
			return
		}
		n.does(born, f)
	})
}

// ask sends a request for the permit.
func (u *user) ask() {
	w := u.w
	u.asked++
	attempt := u.asked
	n := u.server()
	u.node = n
	if w.tracing {
		w.trace("user %d: asks %s", u.number, n.client)
	}
	again := func() { u.breaks(attempt) }
	u.reaches(n, func() {
		p := &client.Named{Wish: client.Wish{
			Terms: client.Terms{Limit: w.limit, Caps: w.caps, Pools: w.pools, Lease: micros(u.lease)}, ID: u.id(), Target: u.target, Who: engine.Client{Host: n.client}, Wait: true,
		}}
		p.Owner = p
		r := &request{u: u, attempt: attempt, p: n.names.Ask(n.clock(), p)}
		if w.tracing && r.p != p {
			w.trace("%s: user %d joins a request for %v, which is %v (%d users, told %v)", n.client, u.number, r.p.Wish.ID, r.p.State(), r.p.Users, r.p.Told)
		}
		n.requests = append(n.requests, r)
		n.answer()
	}, again)
	if w.plan.breaks > 0 && w.chance(w.plan.breaks) { // the connection breaks at some time
		w.after(w.between(0, 2*u.lease), again)
	}
}

// breaks has the connection of an attempt break, for the user at once. The server
// finds out later.
func (u *user) breaks(attempt int) {
	w := u.w
	if u.asked != attempt || u.came == 0 {
		return
	}
	if w.tracing {
		w.trace("user %d: its connection to %s broke", u.number, u.node.client)
	}
	u.sure, u.broke = w.now, w.now
	n, born := u.node, u.node.born
	w.after(w.between(0, u.lease/2), func() {
		n.does(born, func() { n.hangUp(u, attempt) })
	})
	u.asked++ // no answer reaches it any more
	w.after(w.between(20, u.lease/20), func() {
		if u.asked == attempt+1 && u.came > 0 {
			u.ask()
		}
	})
}

// hangUp ends the request of an attempt whose connection is broken.
func (n *node) hangUp(u *user, attempt int) {
	for i, r := range n.requests {
		if r.u == u && r.attempt == attempt {
			n.requests = slices.Delete(n.requests, i, i+1)
			n.names.Leave(n.clock(), r.p, false)
			return
		}
	}
}

// answer answers the requests whose permits are held, or over.
func (n *node) answer() {
	for i := 0; i < len(n.requests); {
		r := n.requests[i]
		r.p = r.p.Latest()
		if !r.p.Over && r.p.State() != client.Held {
			i++
			continue
		}
		n.requests = slices.Delete(n.requests, i, i+1)
		got, token, until, came := !r.p.Over, r.p.Token(), n.truly(r.p.Valid()), n.truly(r.p.Came())
		n.names.Leave(n.clock(), r.p, got)
		n.w.after(n.w.between(20, n.w.delay), func() { r.u.told(r.attempt, got, token, until, came) })
	}
}

// told is the server's answer to a request for the permit. The request may have
// joined an earlier one of the user's, that came before.
func (u *user) told(attempt int, got bool, token, until, before int64) {
	w := u.w
	if u.asked != attempt || u.came == 0 {
		return
	}
	if !got { // refused: the engine was away for too long, or somebody revoked it
		w.check.userDenied(u)
		u.sure = w.now
		u.asked++
		if w.server.ledger.TooHeavy(u.target, u.weight) { // it could never be granted
			u.came = 0
			w.after(w.between(1, u.lease), u.come)
			return
		}
		again := u.asked
		w.after(w.between(millisecond, u.lease/4), func() {
			if u.asked == again && u.came > 0 {
				u.ask()
			}
		})
		return
	}
	if w.tracing {
		w.trace("user %d: has %v, token %d", u.number, u.id(), token)
	}
	came := min(u.came, before)
	u.asked++
	u.came, u.holds, u.token, u.until, u.gives = 0, true, token, until, false
	u.ends = w.now + w.between(min(1, u.hold), u.hold)
	w.grants++
	w.check.userGranted(u, came)
	u.renew(token)
	if w.plan.breaks > 0 && w.chance(2*w.plan.breaks) { // it asks once more for what it has, as if it did not know
		w.after(w.between(0, u.hold), func() { u.askForHeld(token) })
	}
	w.after(u.ends-w.now, func() { u.release(token) })
}

// askForHeld makes a user ask again under the id of the permit that it holds; its
// connection breaks before the answer.
func (u *user) askForHeld(token int64) {
	w := u.w
	if !u.holds || u.token != token || u.gives || w.now >= u.until {
		return
	}
	n := u.server()
	u.reaches(n, func() {
		if !u.holds || u.token != token || u.gives {
			return
		}
		p := &client.Named{Wish: client.Wish{
			Terms: client.Terms{Limit: w.limit, Caps: w.caps, Pools: w.pools, Lease: micros(u.lease)}, ID: u.id(), Target: u.target, Who: engine.Client{Host: n.client}, Wait: true,
		}}
		p.Owner = p
		r := &request{u: u, attempt: -1, p: n.names.Ask(n.clock(), p)}
		born := n.born
		w.after(w.between(0, 2*w.delay), func() {
			u.broke = w.now
			n.does(born, func() { n.names.Leave(n.clock(), r.p, false) })
		})
	}, func() {})
}

// renew renews the permit at any server, a third of the lease after the last
// answer. A server that does not have the permit finds it in the engine.
func (u *user) renew(token int64) {
	w := u.w
	w.after(u.lease/3, func() {
		if !u.holds || u.token != token || u.gives {
			return
		}
		n := u.server()
		u.reaches(n, func() { n.renewFor(u, token) }, func() {})
		u.renew(token)
	})
}

// renewFor renews the permit of a user, who handles a lost answer.
func (n *node) renewFor(u *user, token int64) {
	p := n.names.Find(u.number)
	switch {
	case p == nil: // the server finds it in the engine
		if _, ok := n.w.server.ledger.LeaseEnd(u.id()); !ok || n.w.server.down {
			return
		}
		p = &client.Named{Wish: client.Wish{Terms: client.Terms{Limit: n.w.limit, Pools: n.w.pools, Lease: micros(u.lease)}, ID: u.id()}}
		p.Owner = p
		n.names.Resume(n.clock(), p)
		n.renewals = append(n.renewals, renewal{u: u, token: token, p: p})
	case p.State() == client.Held:
		o := &client.Order{}
		o.Owner = renewal{u: u, token: token, p: p}
		n.machine.Renew(n.clock(), o, &p.Acquisition)
	}
}

// renewal is one that a user waits for.
type renewal struct {
	u     *user
	token int64
	p     *client.Named
}

// renewed tells a user of a new lease.
func (r renewal) renewed(n *node) {
	u, until, token := r.u, n.truly(r.p.Valid()), r.p.Token()
	u.w.after(u.w.between(20, u.w.delay), func() {
		if u.holds && u.token == r.token && !u.gives {
			if token != u.token {
				if u.w.now < u.until && u.w.now >= u.w.check.calm() {
					u.w.fail("once: user %d holds token %d, and its renewal says %d", u.number, u.token, token)
				}
				u.token = token // what it had is lost, and this is another grant, which it does not want
				u.release(token)
				return
			}
			u.until = max(u.until, until)
			u.w.check.userTrusts(u)
		}
	})
}

// release gives the permit back, at any server, again and again until one has said
// that it is gone.
func (u *user) release(token int64) {
	w := u.w
	if !u.holds || u.token != token {
		return
	}
	unsure := u.gives // an attempt may have done it
	u.gives = true
	n := u.server()
	again := func() { w.after(w.between(w.delay, u.lease/10), func() { u.release(token) }) }
	answered := func(status protocol.Status) {
		if status == protocol.Gone && unsure {
			status = protocol.Done
		}
		w.after(w.between(20, w.delay), func() { u.released(token, status) })
	}
	elsewhere := func() { // what State shows
		if _, ok := w.server.ledger.LeaseEnd(u.id()); !ok && !w.server.down {
			answered(protocol.Gone)
			return
		}
		o := &client.Order{}
		o.Owner = func(status protocol.Status, failed bool) {
			if failed {
				again()
				return
			}
			unsure = unsure || o.Unsure()
			answered(status)
		}
		n.machine.Do(n.clock(), o, protocol.Request{Kind: protocol.Release, ID: u.id(), Token: w.check.given[u.id()]})
	}
	u.reaches(n, func() {
		if p := n.names.Find(u.number); p != nil && p.State() == client.Held {
			o := n.machine.Release(n.clock(), &p.Acquisition)
			n.names.End(p)
			o.Owner = func(status protocol.Status, failed bool) {
				switch {
				case failed:
					again()
				case status == protocol.Gone: // another server may have granted it anew
					unsure = unsure || o.Unsure()
					elsewhere()
				default:
					answered(status)
				}
			}
		} else {
			elsewhere()
		}
		born := n.born
		w.after(u.lease, func() { // the answer may have been lost with the server
			if n.born != born && u.holds && u.token == token {
				u.release(token)
			}
		})
	}, again)
}

func (u *user) released(token int64, status protocol.Status) {
	w := u.w
	if !u.holds || u.token != token {
		return
	}
	if status == protocol.Gone {
		w.check.userLost(u)
	}
	if w.tracing {
		w.trace("user %d: has given back %v (%v)", u.number, u.id(), status)
	}
	u.holds, u.gives = false, false
	w.after(w.between(1, w.plan.userThink), u.come)
}

// serverDied has the users of a server that died notice.
func (n *node) serverDied() {
	requests := n.requests
	n.requests, n.renewals = nil, nil
	for _, r := range requests {
		if r.attempt >= 0 {
			n.w.after(n.w.between(20, n.w.delay), func() { r.u.breaks(r.attempt) })
		}
	}
}

// answered takes in the answer to a user's request about its permit; other orders
// are nobody's.
func (n *node) answered(e client.Event) {
	if e.Order == nil {
		return
	}
	switch owner := e.Order.Owner.(type) {
	case func(protocol.Status, bool):
		owner(e.Answer.Status, e.Err != nil)
	case renewal:
		switch {
		case e.Err != nil || e.Answer.Status != protocol.Granted:
		case owner.p.Over: // another grant than this server knew of, and its own had ended by then
			n.renewFor(owner.u, owner.token)
		default:
			owner.renewed(n)
		}
	}
}

// named takes in what happened to a permit that a user named.
func (n *node) named(e client.Event, p *client.Named) {
	if n.w.tracing {
		n.w.trace("%s: %v (token %d) %v %v", n.client, p.Wish.ID, p.Token(), e.Kind, e.Reason)
	}
	switch e.Kind {
	case client.Denied, client.Lost:
		n.names.End(p)
	case client.Granted, client.Queued:
		n.names.DropUnwanted(n.clock(), p)
	}
	for i := 0; i < len(n.renewals); {
		r := n.renewals[i]
		if r.p != p || !p.Over && p.State() != client.Held {
			i++
			continue
		}
		n.renewals = slices.Delete(n.renewals, i, i+1)
		if !p.Over {
			r.renewed(n)
		}
	}
	n.answer()
}

// userTime is how long a user's request takes to its server and back.
func (w *world) userTime() int64 { return 4 * w.delay }

// undisturbed reports whether nothing has gone wrong for a user since it came: it
// asked once, at a server that has had no trouble since.
func (u *user) undisturbed() bool {
	n := u.node
	return n != nil && n.alive && !n.paused && !n.unreachable && n.faulty < u.came
}
