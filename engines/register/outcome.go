package register

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// errSame ends an update that would change nothing.
var errSame = errors.New("nothing to write")

// maxHeads is how many waiting processes listen: those at the head of the queue. The
// others poll, because the store's cost of a message grows with all listeners.
const maxHeads = 8

// outcome is the result of a step. It counts once the store has written next.
type outcome struct {
	replies    []protocol.Reply
	news       map[string]*protocol.Notification // for clients other than the callers
	next       Next
	same       bool // there is nothing to write
	exact      bool // the step needs the exact time, or the list of listeners
	created    bool
	atHead     bool                   // this process is among the maxHeads that are served next
	moreBehind bool                   // more processes may wait behind those
	via        func(engine.ID) string // see ledger.Ledger
}

// Lease returns the rest of a permit's lease at the time of the row; 0: the permit is
// not held. id is the text of an engine.ID. Lease serves stores that check a permit
// within a transaction on its row.
func (r Row) Lease(id string) (time.Duration, error) {
	m, err := r.load()
	if err != nil {
		return 0, err
	}
	for _, h := range m.ledger.State(r.time()).Holders {
		if h.ID == id {
			return h.Left, nil
		}
	}
	return 0, nil
}

// shorten takes by off the leases that the callers learn of.
func (o *outcome) shorten(by time.Duration) {
	for _, reply := range o.replies {
		for i, a := range reply.Answers {
			if a.Status == protocol.Granted {
				reply.Answers[i].Lease -= by
			}
		}
	}
}

// written is the row and ledger after the store has written the outcome.
func (o *outcome) written(l *ledger.Ledger) *loaded {
	return &loaded{Row{Data: o.next.Data, Version: o.next.Version, At: o.next.At, Heads: o.next.Heads}, l}
}

// time is when a step on a row happens. It never goes back.
func (r *Row) time() int64 { return max(r.At, r.Now) }

// load decodes the semaphore in a row.
func (r *Row) load() (*loaded, error) {
	if r.Version == 0 || len(r.Data) == 0 {
		return &loaded{*r, ledger.Load(ledger.Snapshot{})}, nil
	}
	s := ledger.Snapshot{}
	if err := pack.Read(r.Data, s.Code); err != nil {
		later := errors.Is(err, ledger.ErrForm)
		e := &engine.Error{NotExecuted: true, Temporary: later, Err: fmt.Errorf("the semaphore's row: %w", err), Hint: "see what else writes to the store's table"}
		if later {
			e.Hint = "bring all programs that share the store to one release of sema, or wait until the programs of the other release no longer use the semaphore; their permits count, so delete nothing"
		}
		return nil, e
	}
	return &loaded{*r, ledger.Load(s)}, nil
}

// carryOut executes calls on m's ledger, at a time that the store's clock has reached.
// The clock may be later by doubt. So a holder gets its lease less doubt, and the
// ledger counts a permit as kept for doubt longer.
func (s *semaphore) carryOut(m *loaded, calls []*pending, doubt time.Duration) (*outcome, error) {
	e, now, o := s.engine, m.time(), &outcome{created: m.Version == 0, via: m.ledger.Via}
	listens := e.listenerState().up
	m.ledger.Reach = func(client string) bool {
		process := processOf(client)
		if process == e.process {
			return e.session(client) != nil
		}
		if !slices.Contains(m.Heads, process) {
			return true // that process polls
		}
		o.exact = true
		return !slices.Contains(m.Dead, process)
	}
	for _, p := range calls {
		c := p.call
		if c.Keep += doubt; !listens || p.call.Keep == 0 {
			c.Keep = 0 // no recall would reach this process
		}
		reply := m.ledger.Step(now, p.session.id, p.session.who, c)
		o.exact = o.exact || slices.ContainsFunc(reply.Answers, func(a protocol.Answer) bool { return a.Status == protocol.Queued })
		o.replies = append(o.replies, reply)
	}
	o.shorten(doubt)
	o.news = m.ledger.Notifications()
	snapshot := m.ledger.Save()
	data := pack.Append(make([]byte, 0, len(m.Data)+128), snapshot.Code)
	first := processesInOrder(m.ledger, maxHeads)
	o.atHead, o.moreBehind = slices.Contains(first, e.process), len(first) == maxHeads
	heads := slices.DeleteFunc(first, func(p string) bool {
		return p == e.process && !listens || p != e.process && !slices.Contains(m.Heads, p)
	})
	until, fences := expiry(snapshot), slices.ContainsFunc(calls, (*pending).fences)
	if fences {
		until = max(until, now+2*clockStep.Microseconds()) // when no copy may be written any more, also where there is no row
	}
	o.next = Next{
		Data: data, Version: nextVersion(m.Version, now), At: now, Until: until, Heads: heads, Tell: messages(o.news, e.process),
		Lazy: lazy(calls, o), Limit: snapshot.Limit, Waiting: len(snapshot.Waiters),
	}
	for _, h := range snapshot.Holders {
		o.next.Used += h.ID.Weight
	}
	o.exact = o.exact || len(o.next.Tell) > 0
	o.same = o.next.Lazy && len(o.next.Tell) == 0 && !fences && (bytes.Equal(data, m.Data) && slices.Equal(heads, m.Heads) || m.Version == 0 && snapshot.Limit == 0)
	return o, nil
}

// nextVersion returns a larger version. A crash of the store can lose committed versions,
// and a new version must not repeat a lost one. So versions are timestamps, with a random
// step if the clock was set back.
func nextVersion(version, now int64) int64 {
	if now > version {
		return now
	}
	return version + 1 + randomBelow(1<<20)
}

// lazy reports whether a crash may lose a step: it granted nothing and changed nothing
// except by releases. The end of the lease repairs a lost release.
func lazy(calls []*pending, o *outcome) bool {
	for i, p := range calls {
		for k, a := range o.replies[i].Answers {
			if a.Status == protocol.Granted || a.Status == protocol.Done && p.call.Requests[k].Kind != protocol.Release {
				return false
			}
		}
		if len(o.replies[i].Notification.Grants) > 0 {
			return false
		}
	}
	for _, n := range o.news {
		if len(n.Grants) > 0 {
			return false
		}
	}
	return true
}

// expiry is when a semaphore ends, so that Sweep may remove its row.
func expiry(s ledger.Snapshot) int64 {
	if s.Limit == 0 {
		return 0
	}
	if s.Pinned || s.Paused || slices.ContainsFunc(s.Keys, func(k ledger.RecordedKey) bool { return k.Ruled }) {
		return math.MaxInt64
	}
	end := s.Keep
	for _, list := range [][]ledger.Recorded{s.Holders, s.Waiters} {
		for _, r := range list {
			end = max(end, r.End)
		}
	}
	return end
}

// processesInOrder lists the first waiting processes in the order of service, at most most.
func processesInOrder(l *ledger.Ledger, most int) (list []string) {
	seen := map[string]bool{}
	l.InService(func(client string) bool {
		if process := processOf(client); !seen[process] {
			seen[process], list = true, append(list, process)
		}
		return len(list) < most
	})
	return list
}
