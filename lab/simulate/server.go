package simulate

import (
	"errors"
	"maps"
	"slices"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// server is the engine: a ledger behind a network.
type server struct {
	w      *world
	ledger *book
	offset int64 // of its clock
	down   bool
	acts   uint64          // of operators
	paused int64           // since when an operator has stopped all grants; 0: not
	cooled int64           // since when a cooldown has; 0: none was there at the last step
	refuse *engine.Error   // what it answers instead of a step
	reach  map[string]bool // the clients that its notifications reach

	fenced    map[string]uint64 // the first call of a client that is not late
	forgotten map[string]uint64 // what of that it has forgotten

	replica replica
	watch   watch
	judge   judge
}

func newServer(w *world) *server {
	s := &server{w: w, reach: map[string]bool{}, fenced: map[string]uint64{}}
	s.forget()
	return s
}

// forget loses all data.
func (s *server) forget() {
	s.paused, s.cooled, s.judge, s.w.check.reports, s.w.check.begun = 0, 0, judge{}, nil, nil
	s.forgotten = maps.Clone(s.fenced)
	s.ledger = newBook(&ledger.Ledger{Reach: func(client string) bool { return s.reach[client] }, Watched: s.w.watched})
}

func (s *server) now() int64 { return 1_800_000_000_000_000 + s.w.now + s.offset }

var (
	errRefused = &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("connection refused")}
	errTimeout = &engine.Error{Op: "step", Temporary: true, Err: errors.New("no answer in time")}
	errFull    = &engine.Error{Op: "step", NotExecuted: true, Err: errors.New("out of memory")}
)

// take carries out a call that has arrived, and sends the reply.
func (s *server) take(n *node, client string, c protocol.Call) {
	switch {
	case s.w.watched && (n.client != client || !n.alive):
		return // on one host nothing comes from the dead
	case s.w.watched && c.Number < s.forgotten[client]:
		return // nor what a living process has given up: it leaves the line for the lock
	case s.down:
		n.reply(client, c.Number, protocol.Reply{}, errRefused)
		return
	case s.refuse != nil:
		n.reply(client, c.Number, protocol.Reply{}, s.refuse)
		return
	}
	if c.Fence {
		s.fenced[client] = c.Number
	}
	if n.client == client && !n.unreachable {
		s.reach[client] = true // it subscribes before it asks
	}
	if !s.w.watched {
		s.answer(n, client, c, s.step(client, c))
		return
	}
	n.makeLast(c)
	reply := s.step(client, c)
	s.date(n, reply.Notification.Grants)
	reply.Recheck = 0 // the engine itself watches leases
	n.reply(client, c.Number, reply, nil)
}

// step carries out a call, and sends the notifications.
func (s *server) step(client string, c protocol.Call) protocol.Reply {
	w := s.w
	if w.classes() {
		s.ledger.Expire(s.now()) // the judge expects it
	}
	before, gone := s.ledger.view, s.gone(c)
	reply, news := s.ledger.Step(s.now(), client, c)
	if c.Number < s.forgotten[client] {
		w.check.revive(c)
	}
	if w.tracing {
		w.trace("server: %s #%d%s ->%s", client, c.Number, calls(c), answers(reply))
	}
	w.check.stepped(before, c, reply, news)
	w.check.revived(gone, c, reply)
	w.check.reported(client, c, reply)
	if w.failovers > 0 {
		s.replicate()
	}
	s.send(news)
	s.attend()
	return reply
}

// send has notifications travel to their clients.
func (s *server) send(news map[string]*protocol.Notification) {
	w := s.w
	for _, n := range w.nodes { // not in the order of the map
		sent := news[n.client]
		if sent == nil || sent.Empty() {
			continue
		}
		told := *sent
		told.Grants = slices.Clone(told.Grants)
		if w.failovers > 0 {
			markUnsure(told.Grants)
		}
		s.date(n, told.Grants)
		if w.tracing {
			w.trace("server: tells %s %+v", n.client, told)
		}
		for range 1 + bit(w.chance(w.doubleNews)) {
			if !n.unreachable {
				n.news(told)
			}
		}
	}
}

// gone is which renewals of a call are of permits that do not exist. A ticket is
// none: after a failover it may become one in the very step.
func (s *server) gone(c protocol.Call) (gone []int) {
	for i, r := range c.Requests {
		if end, ok := s.ledger.LeaseEnd(r.ID); r.Kind == protocol.Renew && (!ok || end <= s.now()) && !s.ledger.Waits(r.ID) {
			gone = append(gone, i)
		}
	}
	return gone
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
