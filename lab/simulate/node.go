package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// node is one process: a client machine, its network and its callers.
type node struct {
	w                *world
	plan             clientPlan
	number           int
	born             int // how often it was started
	client           string
	machine          *client.Machine
	alive            bool
	paused           bool
	waiting          []func() // what happens to it when it goes on
	unreachable      bool     // notifications do not reach it, and the server knows
	unreachableSince int64
	cut              bool          // nothing it sends arrives, and nothing reaches it
	offset           int64         // its clock's start
	flying           uint64        // the call in flight; 0: none
	sent             time.Duration // when it left
	took             time.Duration // how long the call took whose answer is being taken in; else 0
	timer            int64         // when it ticks; 0: not set
	ticks            int           // in a row, and nothing else happened
	callers          []*caller
	coming           map[engine.ID]int64 // what the server has granted when, and no caller has yet
	totals           protocol.Totals     // of its holds, as it has said last
	overtaken        int64               // when a caller with priority last came: it may get what was granted for another
	changed          int64               // when a caller last came, went, or was granted a permit
	doubtful         int64               // when a call last ended whose outcome is unknown
	faulty           int64               // until when something that went wrong may be felt

	// Of a server of the JSON API.
	names    *client.Names
	requests []*request
	renewals []renewal // that take up what another server gave
}

// caller is one acquisition, from its wish to its end.
type caller struct {
	client.Acquisition
	n      *node
	weight int
	came   int64
	try    bool
	held   bool
	token  int64
	over   bool

	answered time.Duration // how long the call took that granted its permit; 0: it was told
	behind   int           // how many were served before it that came later
	ticket   int64         // when it first had one of its own; 0: not yet
	starts   int           // how many callers with priority had come when it did
}

// since is from when on it counts as waiting.
func (c *caller) since() int64 { return c.came - c.Priority.Microseconds() }

// order is the same by the clock of its process, where no two came at once.
func (c *caller) order() time.Duration { return c.Came() - c.Priority }

func (w *world) newNode(i int, p clientPlan) *node {
	n := &node{w: w, plan: p, number: i}
	n.start()
	return n
}

// start starts the process.
func (n *node) start() {
	n.born++
	n.client = fmt.Sprintf("n%d.%d", n.number, n.born)
	n.alive, n.paused, n.cut, n.unreachable, n.waiting, n.callers, n.flying, n.timer, n.ticks, n.coming = true, false, false, false, nil, nil, 0, 0, 0, map[engine.ID]int64{}
	n.totals = protocol.Totals{}
	n.offset = n.w.between(1, 1000*second)
	lease := micros(n.plan.lease)
	cfg := client.Config{
		Client: n.client, Terms: client.Terms{Limit: n.w.limit, Caps: n.w.caps, Pools: n.w.pools, Lease: lease, Margin: lease / 10, Renew: (lease - lease/10) / 3},
		Slots: n.plan.slots, Strict: n.plan.strict, Newest: n.plan.newest, Unfair: n.plan.unfair, Detached: n.plan.detached,
		MaxHold: micros(n.plan.maxHold), Lasting: n.plan.lasting, Base: base, Keep: micros(n.plan.keep),
		Patient: n.number%2 == 1 && !n.plan.serves, // it draws nothing, so seeds stay what they were
	}
	if n.refuses() && n.plan.patience == 0 {
		cfg.MaxWaiting = 2
	}
	if n.plan.noRenewal {
		cfg.Renew = 0
	}
	if n.plan.serves {
		cfg.Renew, cfg.Margin = 0, 0
	}
	n.machine = client.New(cfg)
	n.names, n.requests, n.renewals = client.NewNames(n.machine), nil, nil
	born := n.born
	for range n.plan.callers {
		n.w.after(n.w.between(0, 2*millisecond), func() { n.next(born) })
	}
}

// refuses reports whether the process refuses callers at once if too many wait: those that
// would give up before their turn, or more than two. It draws nothing.
func (n *node) refuses() bool { return n.number >= 2 }

// base is when the processes' clocks began.
var base = time.Unix(0, 0)

// clock is the process's own time.
func (n *node) clock() time.Duration { return micros(n.w.now + n.offset) }

// truly is the true time of a moment on the process's clock, rounded down.
func (n *node) truly(t time.Duration) int64 { return t.Microseconds() - n.offset }

// does has something happen to the process.
func (n *node) does(born int, f func()) { n.runs(born, func() { n.ticks = 0; f() }) }

// runs has f done by the process, when it is not standing still.
func (n *node) runs(born int, f func()) {
	switch {
	case n.born != born || !n.alive:
	case n.paused:
		n.waiting = append(n.waiting, func() { n.runs(born, f) })
	default:
		f()
		n.pump()
	}
}

// awaits reports whether something was granted to the process that no caller has yet.
func (n *node) awaits() bool {
	for id := range n.coming {
		if _, granted := n.w.server.ledger.LeaseEnd(id); granted {
			return true
		}
	}
	return false
}

// next has a caller come.
func (n *node) next(born int) {
	n.does(born, func() {
		w := n.w
		if w.ending {
			return
		}
		c := &caller{n: n, weight: 1 + w.rng.IntN(n.plan.maxWeight), came: w.now, try: w.chance(n.plan.try)}
		c.Owner, c.Target = c, w.target()
		if n.plan.priority > 0 && w.chance(3) {
			c.Priority = micros(w.between(0, n.plan.priority))
			n.overtaken = w.now
			w.starts++
		}
		if n.refuses() && n.plan.patience > 0 {
			c.Deadline = n.clock() + micros(n.plan.patience)
		}
		c.starts = w.starts
		n.callers, n.changed = append(n.callers, c), w.now
		n.machine.Acquire(n.clock(), &c.Acquisition, c.weight, !c.try)
		if w.tracing {
			w.trace("%s: wants weight %d (%v) %s", n.client, c.weight, c.Came(), c.Key)
		}
		if n.plan.patience > 0 && w.chance(3) {
			w.after(w.between(0, n.plan.patience), func() { n.does(born, func() { n.giveUp(c) }) })
		}
	})
}

func (n *node) giveUp(c *caller) {
	if c.over || c.held {
		return
	}
	if n.w.tracing {
		n.w.trace("%s: gives up on %v", n.client, c.Acquisition.ID())
	}
	n.machine.Cancel(n.clock(), &c.Acquisition)
	n.done(c)
}

// done ends a caller; another one comes after a while.
func (n *node) done(c *caller) {
	c.over, c.held = true, false
	i := slices.Index(n.callers, c)
	n.callers, n.changed = slices.Delete(n.callers, i, i+1), n.w.now
	born := n.born
	n.w.after(n.w.between(1, n.plan.think), func() { n.next(born) })
}

// pump takes in what the machine says, and sends its next call.
func (n *node) pump() {
	n.events()
	now := n.clock()
	if call, ok := n.machine.Next(now); ok {
		n.send(call)
	}
	n.events()
	if at, ok := n.machine.Wake(); ok {
		if t := max(n.truly(at)+1, n.w.now+1); n.timer == 0 || t < n.timer {
			n.timer = t
			born := n.born
			n.w.after(t-n.w.now, func() { n.tick(born, t) })
		}
	}
}

func (n *node) tick(born int, t int64) {
	if n.born != born || n.timer != t {
		return
	}
	n.timer = 0
	n.runs(born, func() {
		n.ticks++
		n.machine.Tick(n.clock())
		n.w.check.ticked(n)
		n.machine.EachPermit(func(a *client.Acquisition) {
			if a.Valid() <= n.clock() {
				n.w.fail("loss: %v is held, and its time is up", a.ID())
			}
		})
	})
}

// send has a call travel. The machine gives it up after a while.
func (n *node) send(call protocol.Call) {
	w := n.w
	call.Requests = slices.Clone(call.Requests)
	n.flying, n.sent, n.ticks = call.Number, n.clock(), 0
	born, number := n.born, call.Number
	if w.tracing {
		w.trace("%s: sends #%d fence=%v %s", n.client, number, call.Fence, calls(call))
	}
	w.after(n.callTime(), func() {
		n.does(born, func() {
			if n.flying == number {
				n.failed(errTimeout)
			}
		})
	})
	if d, ok := n.travel(w.loseCall, w.lateCall); ok {
		client := n.client
		w.after(d, func() { w.server.take(n, client, call) })
	}
}

// callTime is how long a call is waited for.
func (n *node) callTime() int64 { return max(250*millisecond, min(5*second, n.plan.lease/3)) }

// blame notes that something goes wrong for the process, for some time from now
// on. It is felt until a call has been given up and made again, and everything
// asked for again.
func (n *node) blame(us int64) {
	n.faulty = max(n.faulty, n.w.now+us+n.callTime()+second/2+n.plan.lease/asksPerLease+4*n.w.delay)
}

// asksPerLease is how often a waiter asks again.
const asksPerLease = 6

// travel is how long a message takes, and whether it arrives.
func (n *node) travel(lose, late int) (delay int64, ok bool) {
	w := n.w
	switch {
	case n.cut || w.chance(lose):
		n.blame(0)
		return 0, false
	case w.chance(late):
		n.blame(2 * n.plan.lease)
		return w.between(w.delay, 2*n.plan.lease), true
	}
	return w.between(20, w.delay), true
}

func (n *node) failed(err error) {
	if n.w.tracing {
		n.w.trace("%s: #%d failed: %v", n.client, n.flying, err)
	}
	n.flying = 0
	n.blame(0)
	if failure, ok := errors.AsType[*engine.Error](err); !ok || !failure.NotExecuted {
		n.doubtful = n.w.now
	}
	n.machine.Failed(n.clock(), err)
}

// reply has the server's reply travel.
func (n *node) reply(client string, number uint64, reply protocol.Reply, err error) {
	w := n.w
	if n.client != client {
		return
	}
	born := n.born
	d, ok := n.travel(w.loseReply, w.lateReply)
	if !ok {
		return
	}
	w.after(d, func() {
		n.does(born, func() {
			switch {
			case n.flying != number:
			case err != nil:
				n.failed(err)
			default:
				n.flying, n.took = 0, n.clock()-n.sent
				n.machine.Answer(n.clock(), reply)
				n.events()
				n.took = 0
			}
		})
	})
}

// news has a notification travel.
func (n *node) news(told protocol.Notification) {
	w, born := n.w, n.born
	if d, ok := n.travel(w.loseNews, w.lateNews); ok {
		w.after(d, func() { n.hears(born, told) })
	} else if w.watched {
		w.server.reconnect(n) // what it did not hear of it finds when it looks
	}
}

// hears passes a notification to the process.
func (n *node) hears(born int, told protocol.Notification) {
	n.does(born, func() { n.machine.Notify(n.clock(), told) })
}

// events takes in what happened to callers.
func (n *node) events() {
	w := n.w
	for _, e := range slices.Clone(n.machine.Events()) {
		n.ticks = 0
		if e.A == nil {
			n.answered(e)
			continue
		}
		c, ok := e.A.Owner.(*caller)
		if !ok {
			n.named(e, e.A.Owner.(*client.Named))
			continue
		}
		if w.tracing {
			w.trace("%s: %v (%v, token %d) %v %v", n.client, c.Acquisition.ID(), c.Came(), c.Token()%1_000_000_000, e.Kind, e.Reason)
		}
		switch e.Kind {
		case client.Queued:
			if c.ticket == 0 && c.Acquisition.ID().Number > 0 {
				c.ticket = w.now
			}
		case client.Granted:
			w.grants++
			w.longest = max(w.longest, w.now-c.came)
			c.held, c.token, c.answered, n.changed = true, c.Token(), n.took, w.now
			w.check.granted(c)
			n.hold(c)
		case client.Denied:
			w.check.denied(c, e)
			n.done(c)
		case client.Lost:
			w.check.lost(c, e)
			if c.held {
				c.held = false
				n.letGo(c)
			}
		}
	}
}

// hold has the caller work, look at its permit perhaps, and then release.
func (n *node) hold(c *caller) {
	w, born := n.w, n.born
	long := w.between(min(1, n.plan.hold), n.plan.hold)
	if w.chance(n.plan.look) {
		w.after(w.between(0, long), func() {
			n.does(born, func() {
				if n.look(c) && w.chance(2) {
					n.machine.Renew(n.clock(), &client.Order{}, &c.Acquisition)
				}
			})
		})
	}
	w.after(long, func() {
		n.does(born, func() {
			if n.look(c) {
				c.held = false
				n.letGo(c)
			}
		})
	})
}

// look reports whether a caller has its permit, by the clock: the tick that
// should have ended it may be late.
func (n *node) look(c *caller) (held bool) {
	if c.held {
		n.machine.Overdue(n.clock(), &c.Acquisition)
		n.events()
	}
	if c.held {
		n.w.check.looked(c)
	}
	return c.held
}

// letGo releases a permit, lost or not.
func (n *node) letGo(c *caller) {
	if n.w.tracing {
		n.w.trace("%s: releases %v", n.client, c.Acquisition.ID())
	}
	o := n.machine.Release(n.clock(), &c.Acquisition)
	if w := n.w; w.check.rated() && w.chance(2) {
		used := c.Takes.Map()
		for pool, n := range c.Takes.All() {
			used[pool] = w.rng.IntN(n + 2)
		}
		o.Uses(newPools(used))
	}
	o.Abandon()
	n.done(c)
}

// retryAfter says for a holder that nobody is to begin for a while.
func (n *node) retryAfter(c *caller, us int64) {
	if !c.held {
		return
	}
	if n.w.tracing {
		n.w.trace("%s: %v says that nobody is to begin for %v", n.client, c.Acquisition.ID(), micros(us))
	}
	n.machine.Cool(n.clock(), micros(us), n.machine.Self(&c.Acquisition))
	n.pump()
}

// crash ends the process, and starts it again after a while.
func (n *node) crash() {
	w := n.w
	if w.tracing {
		w.trace("%s: dies", n.client)
	}
	n.alive, n.callers = false, nil
	n.serverDied()
	n.blame(0)
	w.server.died(n.client)
	w.after(w.between(1, n.plan.lease), func() {
		n.start()
		n.blame(0)
	})
}

// pause stops the process for a while.
func (n *node) pause(us int64) {
	w, born := n.w, n.born
	if !n.alive || n.paused {
		return
	}
	if w.tracing {
		w.trace("%s: stands still for %v", n.client, micros(us))
	}
	n.paused = true
	n.blame(us)
	w.after(us, func() {
		if n.born != born {
			return
		}
		n.paused = false
		late := n.waiting
		n.waiting = nil
		for _, f := range late {
			f()
		}
	})
}
