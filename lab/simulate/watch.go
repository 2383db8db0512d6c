package simulate

import "sema/internal/protocol"

// watch is what an engine of one host does by itself: it notices when leases end
// and when processes die. Tickets live as long as their processes, which ask again
// only when they are told to, and one clock is everybody's. Package fileengine
// is one.
type watch struct {
	alarm int64    // when it looks at the first lease's end; 0: not set
	dead  []string // clients whose end the ledger does not know of yet
}

// makeLast makes the tickets of a call those of a process that has been told that
// they live as long as it does.
func (n *node) makeLast(c protocol.Call) {
	for i := range c.Requests {
		if n.plan.lasting && c.Requests[i].Kind == protocol.Ask {
			c.Requests[i].Ticket = 0
		}
	}
}

// date says until when the permits of grants last, by the process's own clock.
func (s *server) date(n *node, grants []protocol.Grant) {
	for i, g := range grants {
		if end, ok := s.ledger.LeaseEnd(g.ID); ok && s.w.watched {
			grants[i].Until = base.Add(micros(end - s.now() + s.w.now + n.offset))
		}
	}
}

// attend makes the engine look when the first lease ends, if somebody waits.
func (s *server) attend() {
	w := s.w
	end, held := s.ledger.NextEnd()
	if !w.watched || !held || len(s.ledger.Waiters) == 0 {
		return
	}
	at := end - s.now() + w.now + millisecond
	if s.watch.alarm > 0 && s.watch.alarm <= at {
		return
	}
	s.watch.alarm = at
	w.after(at-w.now, func() {
		if s.watch.alarm == at {
			s.watch.alarm = 0
			s.bury()
		}
	})
}

// died has the engine notice, after a while, that a process has died.
func (s *server) died(client string) {
	w := s.w
	s.reach[client] = false
	if w.watched {
		s.watch.dead = append(s.watch.dead, client)
		w.after(w.between(20, w.delay), s.bury)
	}
}

// bury ends what the dead had, and leases that are over, and hands on what that
// frees.
func (s *server) bury() {
	w := s.w
	if !w.watched || s.down {
		return
	}
	dead := s.watch.dead
	s.watch.dead = nil
	if w.tracing {
		w.trace("server: looks, and finds %v dead", dead)
	}
	before := s.ledger.view
	news := s.ledger.Reap(s.now(), dead)
	w.check.stepped(before, protocol.Call{}, protocol.Reply{}, news)
	s.send(news)
	s.attend()
}
