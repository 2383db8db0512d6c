package register

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/pack"
)

// errSame says that a step would change nothing.
var errSame = errors.New("nothing to write")

// maxHeads is how many of the processes that wait listen: those that are served next. What the store
// pays for a message grows with all who listen; the others look now and then.
const maxHeads = 8

// outcome is what a step comes to. It has happened when the store has it.
type outcome struct {
	replies    []engine.Reply
	news       map[string]*engine.Notification // for all clients but their callers
	next       Next
	same       bool // nothing is to be written
	exact      bool // it needs the exact time, or to know who listens
	created    bool
	atHead     bool                   // this process is among those that are served next
	moreBehind bool                   // and there may be others behind those
	via        func(engine.ID) string // see ledger.Ledger
}

// Lease is how much of its lease a permit has left at the time of a row; 0: it is not held. id is the permit's, as engine.ID
// writes it. It is for stores that can do more in a transaction of the row's.
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

// mine is the row that the outcome has become.
func (o *outcome) mine(l *ledger.Ledger) *mine {
	return &mine{Row{Data: o.next.Data, Version: o.next.Version, At: o.next.At, Heads: o.next.Heads}, l}
}

// time is when a step on a row happens. It never falls back.
func (r *Row) time() int64 { return max(r.At, r.Now) }

// snapshot is the semaphore in a row.
func (r *Row) snapshot() (ledger.Snapshot, error) {
	if r.Version == 0 || len(r.Data) == 0 {
		return ledger.Snapshot{}, nil
	}
	s, err := ledger.ReadSnapshot(&pack.Reader{B: string(r.Data)})
	if err != nil {
		later := errors.Is(err, ledger.ErrForm)
		e := &engine.Error{NotExecuted: true, Temporary: later, Err: fmt.Errorf("the semaphore's row: %w", err), Hint: "see what else writes to the store's table"}
		if later {
			e.Hint = "bring all programs that share the store to one release of sema, or wait until those of the other one have let go of the semaphore; what they hold counts, so delete nothing"
		}
		return s, e
	}
	return s, nil
}

func (r *Row) load() (*mine, error) {
	s, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	return &mine{*r, ledger.Load(s)}, nil
}

// carryOut carries out calls on m's ledger, at a time that the store's clock has reached.
// It may be later by doubt: so much less than a lease has its holder. The engine
// minds what may be kept for so much longer.
func (s *semaphore) carryOut(m *mine, calls []*pending, doubt time.Duration) (*outcome, error) {
	e, now, o := s.engine, m.time(), &outcome{created: m.Version == 0, via: m.ledger.Via}
	hears := e.hearing().up
	m.ledger.Reach = func(client string) bool {
		process := processOf(client)
		if process == e.process {
			return e.session(client) != nil
		}
		if !slices.Contains(m.Heads, process) {
			return true // it looks for itself
		}
		o.exact = true
		return !slices.Contains(m.Dead, process)
	}
	for _, p := range calls {
		c := p.call
		if c.Keep += doubt; !hears || p.call.Keep == 0 {
			c.Keep = 0 // nobody could take it back
		}
		reply := m.ledger.Step(now, p.session.id, p.session.who, c)
		for i, a := range reply.Answers {
			switch a.Status {
			case engine.Granted:
				reply.Answers[i].Lease -= doubt
			case engine.Queued:
				o.exact = true
			}
		}
		o.replies = append(o.replies, reply)
	}
	o.news = m.ledger.Notifications()
	snapshot := m.ledger.Save()
	w := pack.Writer{B: make([]byte, 0, len(m.Data)+128)}
	snapshot.Append(&w)
	first := line(m.ledger, maxHeads)
	o.atHead, o.moreBehind = slices.Contains(first, e.process), len(first) == maxHeads
	heads := slices.DeleteFunc(first, func(p string) bool { return p == e.process && !hears || p != e.process && !slices.Contains(m.Heads, p) })
	o.next = Next{
		Data: w.B, Version: after(m.Version, now), At: now, Until: until(snapshot), Heads: heads, Tell: messages(o.news, e.process),
		Lazy: lazy(calls, o), Limit: snapshot.Limit, Waiting: len(snapshot.Waiters),
	}
	for _, h := range snapshot.Holders {
		o.next.Used += h.ID.Weight
	}
	o.exact = o.exact || len(o.next.Tell) > 0
	o.same = o.next.Lazy && len(o.next.Tell) == 0 && (bytes.Equal(w.B, m.Data) && slices.Equal(heads, m.Heads) || m.Version == 0 && snapshot.Limit == 0 && len(snapshot.Fences) == 0)
	return o, nil
}

// after is a version after another one. A crash may forget some, and nobody may take what comes then for what he
// wrote before: so versions go by the time, and by chance where the clock was set back.
func after(version, now int64) int64 {
	if now > version {
		return now
	}
	return version + 1 + rand.Int64N(1<<20)
}

// lazy reports whether a crash may forget a step: nobody was told that it has
// anything, or that anything was changed but by a release, which the lease's end
// makes good.
func lazy(calls []*pending, o *outcome) bool {
	for i, p := range calls {
		for k, a := range o.replies[i].Answers {
			if a.Status == engine.Granted || a.Status == engine.Done && p.call.Requests[k].Kind != engine.Release {
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

// until is when a semaphore is over, so that its row may go.
func until(s ledger.Snapshot) int64 {
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

// line lists processes that wait, in the order in which they are served, at most so many of them.
func line(l *ledger.Ledger, most int) (list []string) {
	seen := map[string]bool{}
	l.InService(func(client string) bool {
		if process := processOf(client); !seen[process] {
			seen[process], list = true, append(list, process)
		}
		return len(list) < most
	})
	return list
}
