package simulate

import (
	"errors"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// replica is the server's copy, some steps behind. What it has not received a
// failover forgets. Clients wait for it before they trust a grant; see Replicas in
// package redisengine.
type replica struct {
	snapshot ledger.Snapshot
	sent     int // steps that the server has sent to it
	has      int // steps that it has received
	master   int // how often it has become the master
	waiting  []waitingReply
}

// waitingReply is one that counts when the replica has so many steps.
type waitingReply struct {
	steps int
	reply func()
}

var errTooFew = &engine.Error{Op: "step", Temporary: true, Err: errors.New("too few replicas")}

// replicaWait is how long a reply waits for the replica.
const replicaWait = 100 * millisecond

// replicate sends a step to the replica.
func (s *server) replicate() {
	w, r := s.w, &s.replica
	r.sent++
	steps, master, snapshot := r.sent, r.master, s.ledger.Snapshot
	delay := w.between(20, w.delay)
	if w.chance(w.lag) {
		delay = w.between(w.delay, second)
		w.check.upset = max(w.check.upset, w.now+delay+w.check.messages()) // calls stand still
	}
	w.after(delay, func() {
		if r.master == master && steps > r.has {
			s.received(steps, snapshot)
		}
	})
}

func (s *server) received(steps int, snapshot ledger.Snapshot) {
	r := &s.replica
	r.has, r.snapshot = steps, snapshot
	waiting := r.waiting
	r.waiting = nil
	for _, a := range waiting {
		if a.steps <= steps {
			a.reply()
		} else {
			r.waiting = append(r.waiting, a)
		}
	}
}

// settle has the replica receive everything at once.
func (s *server) settle() {
	if r := &s.replica; s.w.failovers > 0 && r.has < r.sent {
		s.received(r.sent, s.ledger.Snapshot)
	}
}

// answer sends the reply to a call: at once, or if it grants something, when the
// replica has it.
func (s *server) answer(n *node, client string, c protocol.Call, reply protocol.Reply) {
	w, r := s.w, &s.replica
	granted := false
	for _, a := range reply.Answers {
		granted = granted || a.Status == protocol.Granted
	}
	if w.failovers == 0 || !granted {
		if w.failovers > 0 {
			markUnsure(reply.Notification.Grants)
		}
		n.reply(client, c.Number, reply, nil)
		return
	}
	done, master := false, r.master
	r.waiting = append(r.waiting, waitingReply{r.sent, func() {
		if !done {
			done = true
			n.reply(client, c.Number, reply, nil)
		}
	}})
	w.after(replicaWait, func() {
		if !done && r.master == master {
			done = true
			n.reply(client, c.Number, protocol.Reply{}, errTooFew)
		}
	})
}

func markUnsure(grants []protocol.Grant) {
	for i := range grants {
		grants[i].Unsure = true
	}
}

// failover lets the replica take the server's place after a while. No permit that
// somebody trusts may be forgotten.
func (s *server) failover() {
	w, r := s.w, &s.replica
	if s.down || r.has == 0 {
		return
	}
	if w.tracing {
		w.trace("server: dies; the replica lacks %d steps", r.sent-r.has)
	}
	s.down = true
	clear(s.reach)
	l := ledger.Load(r.snapshot)
	s.ledger, s.judge, w.check.reports, w.check.begun = newBook(l), judge{}, nil, nil
	l.Reach = func(client string) bool { return s.reach[client] }
	w.check.missesSteps()
	*r = replica{snapshot: r.snapshot, has: 1, sent: 1, master: r.master + 1}
	for _, n := range w.nodes {
		if n.flying > 0 {
			n.blame(0) // its answer waited for the replica, perhaps, and is lost
		}
		for _, c := range n.callers {
			valid := n.truly(c.Valid())
			if !c.held || valid <= w.now || w.now < w.check.doubt {
				continue
			}
			end, ok := s.ledger.LeaseEnd(c.Acquisition.ID())
			if truly := end - s.now() + w.now; !ok || truly < valid {
				w.fail("failover: %v is trusted until %v, and the new master knows of %v (%v)", c.Acquisition.ID(), micros(valid), micros(truly), ok)
			}
		}
	}
	w.check.upset = max(w.check.upset, w.now+3*w.longestLease())
	w.disturbed(0)
	w.after(w.between(millisecond, w.longestLease()/2), func() {
		s.down = false
		w.disturbed(0)
		for _, n := range w.nodes {
			s.reconnect(n)
		}
	})
}
