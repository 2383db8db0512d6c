package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// Result is what a run came to.
type Result struct {
	Events  int
	Grants  int
	Virtual time.Duration
	Longest time.Duration // that somebody waited
	Err     error         // the promise that was broken
	Trace   string        // the last events, if asked for
}

// Run carries out the run of a seed. With trace it keeps its last events, which
// changes nothing else.
func Run(seed uint64, trace bool) Result {
	p, rng := draw(seed)
	return carryOut(p, rng, trace)
}

// Alternate simulates two processes that share a semaphore for a time. One has
// callers all the time, the other only now and then, so the first one is mostly
// alone. There are no faults except the delay of messages.
func Alternate(seed uint64, long time.Duration) Result {
	rng := rand.New(rand.NewPCG(seed, 0x5e3a))
	one := clientPlan{callers: 5, lease: 3 * second, maxWeight: 1, hold: 20 * millisecond, think: millisecond, keep: 5 * millisecond}
	other := one
	other.callers, other.think = 3, 3*second
	p := plan{seed: seed, limit: 2, delay: 500, length: long.Microseconds(), clients: []clientPlan{one, other}, enough: math.MaxInt}
	return carryOut(p, rng, false)
}

func carryOut(p plan, rng *rand.Rand, trace bool) Result {
	w := &world{plan: p, rng: rng, tracing: trace, now: 1}
	w.check = checker{w: w, allowed: p.limit, bySlot: map[int]int64{}, given: map[engine.ID]int64{}, when: map[engine.ID]int64{}, grants: map[int64]engine.ID{}, idle: map[*node]int64{}, gone: map[engine.ID]int64{}, ghosts: map[engine.ID]bool{}}
	w.server = newServer(w)
	for i, c := range p.clients {
		w.nodes = append(w.nodes, w.newNode(i, c))
	}
	w.newUsers()
	w.check.faultless = w.faultless()
	w.faults()
	every := max(millisecond, w.nodes[0].plan.lease/50)
	var look func()
	look = func() {
		w.check.waits()
		if !w.ending {
			w.after(every, look)
		}
	}
	w.after(every, look)
	w.run(p.length)
	w.windUp()
	return Result{Events: w.steps, Grants: w.grants, Virtual: w.time(), Longest: micros(w.longest), Err: w.failure, Trace: strings.Join(w.lines, "\n")}
}

// mostToWindUp is how many events the winding up of a run may take. The most
// that any of 100,000 seeds took is less than a tenth of it.
const mostToWindUp = 500_000

// windUp ends the faults, lets everybody finish, and looks what is left.
func (w *world) windUp() {
	w.ending = true
	w.enough = w.steps + mostToWindUp
	w.server.down, w.server.refuse = false, nil
	w.server.operate(protocol.Request{Kind: protocol.Unpause})
	w.loseCall, w.loseReply, w.loseNews, w.lateCall, w.lateReply, w.lateNews = 0, 0, 0, 0, 0, 0
	longest := int64(0)
	for _, n := range w.nodes {
		n.cut, n.unreachable = false, false
		longest = max(longest, n.plan.lease, n.plan.hold)
	}
	longest = max(longest, w.plan.userLease, w.plan.userHold)
	w.breaks = 0
	for range 60 { // as long as somebody queues, and all that is late is over
		for pool := range w.server.ledger.Pools.All() { // nobody waits for time; callers may have begun the semaphore anew
			if a := w.server.ledger.Pools.Amount(pool); a.Per > time.Millisecond {
				a.Per = time.Millisecond
				w.server.operate(protocol.Request{Kind: protocol.SetLimit, Pools: engine.Pools(pool + "=" + a.String())})
			}
		}
		w.run(w.now + longest)
		busy := len(w.queue) > 0
		for _, n := range w.nodes {
			busy = busy || len(n.callers) > 0
		}
		for _, u := range w.users {
			busy = busy || u.came > 0 || u.holds
		}
		if !busy || w.failure != nil {
			break
		}
	}
	w.run(w.now + 4*longest + w.back)
	if w.steps >= w.enough {
		w.fail("end: its winding up takes more than %d events", mostToWindUp)
	}
	if w.failure == nil {
		w.check.left()
	}
}

// faultless reports whether nothing is planned to go wrong.
func (w *world) faultless() bool {
	p := w.plan
	return p.loseCall|p.loseReply|p.loseNews|p.lateCall|p.lateReply|p.lateNews|p.breaks == 0 &&
		p.pauses|p.crashes|p.cuts|p.restarts|p.forgets|p.steps|p.refusals|p.limits|p.revokes|p.unsets|p.stops|p.lostSubscriptions|p.failovers|p.rules|p.amounts == 0 && !w.someStrict()
}

func (w *world) someStrict() bool {
	for _, n := range w.nodes {
		if n.plan.strict || n.plan.newest || n.plan.noRenewal || n.plan.maxHold > 0 {
			return true
		}
	}
	return false
}

// faults plans what goes wrong beside the messages.
func (w *world) faults() {
	s := w.server
	some := func() *node { return w.nodes[w.rng.IntN(len(w.nodes))] }
	w.every(w.pauses, func() {
		n := some()
		n.pause(w.between(millisecond, 2*n.plan.lease))
	})
	w.every(w.crashes, func() {
		if n := some(); n.alive {
			n.crash()
		}
	})
	w.every(w.cuts, func() {
		n := some()
		born := n.born
		n.cut = true
		n.blame(0)
		s.reach[n.client] = w.chance(2) // or the server does not know yet
		w.after(w.between(millisecond, 3*n.plan.lease), func() {
			if n.born == born {
				n.cut = false
				n.blame(0)
				s.reconnect(n)
			}
		})
	})
	w.every(w.lostSubscriptions, func() {
		n := some()
		if born := n.born; !n.unreachable && n.alive {
			if w.tracing {
				w.trace("%s: cannot be notified", n.client)
			}
			n.unreachable, n.unreachableSince, s.reach[n.client] = true, w.now, false
			w.after(w.between(millisecond, 6*n.plan.lease), func() {
				if n.born == born {
					n.unreachable = false
					n.blame(0)
					s.reconnect(n)
				}
			})
		}
	})
	w.every(w.refusals, func() {
		s.refuse = errRefused
		if w.chance(2) {
			s.refuse = errFull
		}
		w.disturbed(0)
		w.after(w.between(millisecond, w.nodes[0].plan.lease/2), func() { s.refuse = nil; w.disturbed(0) })
	})
	w.every(w.restarts, func() { s.restart(false) })
	w.every(w.forgets, func() { s.restart(true) })
	w.every(w.failovers, s.failover)
	w.every(w.steps64(), func() {
		step := w.between(-2*second, 2*second)
		if w.forgets > 0 || w.unsets > 0 || w.failovers > 0 {
			step = max(step, -step) // a server that forgets, and goes back, may give a token twice
		}
		if w.tracing {
			w.trace("server: its clock steps by %v", micros(step))
		}
		s.offset += step
		w.check.begun = nil
		w.back += max(0, -step)
		w.disturbed(max(step, 0) + 2*w.longestLease())
	})
	w.every(w.reports, func() {
		if n := some(); n.alive {
			n.report()
		}
	})
	w.every(w.limits, func() {
		if w.controller && w.chance(2) {
			s.operate(w.auto())
			return
		}
		s.operate(protocol.Request{Kind: protocol.SetLimit, Limit: 1 + w.rng.IntN(6), Pin: w.chance(2), Observe: w.chance(3)})
	})
	w.every(w.rules, func() {
		r := protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: w.ruled()}, Cap: w.rng.IntN(4), Share: []int{0, 50, 100, 300}[w.rng.IntN(4)]}
		switch l := s.ledger; w.rng.IntN(5) {
		case 2: // all that is too much now is held on when caps count again
			if w.limit == 1 {
				return // its tokens fence, see tokens
			}
			r = protocol.Request{Kind: protocol.SetLimit, Limit: l.enforced}
			if l.Observed == nil {
				r = protocol.Request{Kind: protocol.SetLimit, Observe: true}
			}
		case 0:
			r = protocol.Request{Kind: protocol.UnsetKey, Target: protocol.Target{Key: r.Key}}
		case 1:
			r = protocol.Request{Kind: protocol.SetLimit, Caps: engine.Caps{w.rng.IntN(4) - 1}}
			if w.deep() {
				r.Caps[w.rng.IntN(len(r.Caps))] = w.rng.IntN(4) - 1
			}
		}
		s.operate(r)
	})
	w.every(w.amounts, func() {
		var some []string
		for name := range w.pools.All() {
			if w.chance(2) {
				a := w.pools.Amount(name)
				if a.N = w.rng.IntN(5); a.N == 0 {
					a.Per = 0
				}
				some = append(some, name+"="+a.String())
			}
		}
		s.operate(protocol.Request{Kind: protocol.SetLimit, Pools: engine.Pools(strings.Join(some, ","))})
	})
	w.every(w.stops, func() {
		s.operate(protocol.Request{Kind: protocol.Pause})
		w.after(w.between(millisecond, w.nodes[0].plan.lease), func() { s.operate(protocol.Request{Kind: protocol.Unpause}) })
	})
	w.every(w.cools, func() {
		if n := some(); n.alive && !n.paused && len(n.callers) > 0 {
			n.retryAfter(n.callers[w.rng.IntN(len(n.callers))], w.between(millisecond, n.plan.lease))
		}
	})
	w.every(w.unsets, func() {
		s.operate(protocol.Request{Kind: protocol.UnsetLimit})
		s.operate(protocol.Request{Kind: protocol.Remove})
	})
	w.every(w.revokes, func() {
		if n := some(); len(n.callers) > 0 {
			c := n.callers[w.rng.IntN(len(n.callers))]
			s.operate(protocol.Request{Kind: protocol.Revoke, ID: c.Acquisition.ID()})
		} else if n.plan.serves {
			s.operate(protocol.Request{Kind: protocol.Revoke, ID: w.users[w.rng.IntN(len(w.users))].id()})
		}
	})
}

func (w *world) steps64() int64 { return w.plan.steps }

// every has f done again and again, with a mean time between.
func (w *world) every(mean int64, f func()) {
	if mean == 0 {
		return
	}
	var again func()
	again = func() {
		if w.ending {
			return
		}
		f()
		w.after(w.between(1, 2*mean), again)
	}
	w.after(w.between(1, 2*mean), again)
}

func (w *world) longestLease() int64 {
	longest := int64(0)
	for _, n := range w.nodes {
		longest = max(longest, n.plan.lease)
	}
	return max(longest, w.plan.userLease)
}

// disturbed notes that the server did something because of which clients may
// trust what it does not know, for some time from now on.
func (w *world) disturbed(us int64) { w.check.doubt = max(w.check.doubt, w.now+us) }

// operate carries out an operator's request.
func (s *server) operate(r protocol.Request) {
	if s.down {
		return
	}
	if r.Kind == protocol.Unpause {
		s.paused = 0
	}
	// A larger limit serves more than the tickets that a process has queued, and
	// may so serve somebody else first.
	s.w.disturbed(0)
	defer s.settle() // an operator is told when the replica has it
	s.acts++
	s.ledger.Expire(s.now())
	before := s.ledger.view
	reply := s.step("operator", protocol.Call{Number: s.acts, Requests: []protocol.Request{r}})
	s.w.check.pins(r, reply, before)
	switch done := reply.Answers[0].Status == protocol.Done; {
	case done && r.Kind == protocol.Pause && s.paused == 0:
		s.paused = s.w.now
	case done && r.Kind == protocol.Remove:
		s.paused = 0
	}
}

// restart stops the server and starts it again after a while.
func (s *server) restart(forgets bool) {
	w := s.w
	if s.down {
		return
	}
	if w.tracing {
		w.trace("server: goes down, forgets %v", forgets)
	}
	s.down = true
	clear(s.reach)
	w.disturbed(0)
	w.after(w.between(millisecond, w.longestLease()/2), func() {
		s.down = false
		if forgets {
			s.forget()
			w.disturbed(2 * w.longestLease())
			w.check.allowed = 1 << 30 // judged again when the doubt is over
		}
		w.disturbed(0)
		for _, n := range w.nodes {
			s.reconnect(n)
		}
		s.bury()
	})
}

// reconnect restores a client's subscription; then the client asks again.
func (s *server) reconnect(n *node) {
	w, client, d := s.w, n.client, s.w.between(millisecond, 100*millisecond)
	if w.watched { // until then callers may queue behind tickets that are gone
		n.faulty = max(n.faulty, w.now+d+w.check.messages())
	}
	w.after(d, func() {
		if n.client != client || s.down || n.cut || n.unreachable {
			return
		}
		s.reach[client] = true
		if again := (protocol.Notification{Ask: true}); w.watched {
			n.hears(n.born, again) // it says so itself
		} else {
			n.news(again)
		}
	})
}

// Replay runs a seed again and returns its last events, and the command that
// does so.
func Replay(seed uint64) string {
	r := Run(seed, true)
	return fmt.Sprintf("%s\n%v\nreplay: go -C lab run ./simulate/run -seed %d -seeds 1 -trace", r.Trace, r.Err, seed)
}
