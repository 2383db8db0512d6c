package register

import (
	"context"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/ledger"
)

const (
	// pollHeld is how often the row of a semaphore is read of which something is held, and
	// nothing is waited for.
	pollHeld = time.Second

	maxPoll = 2 * time.Second
)

// watch has the row read every now and then, if this process is not told of what others
// do, and waits for something or holds something.
func (s *semaphore) watch() {
	if s.engine.hearing().up || !slices.ContainsFunc(s.engine.sessionsOf(s), (*session).concerned) {
		return
	}
	s.mu.Lock()
	begins := !s.polled
	s.polled = true
	s.mu.Unlock()
	if begins {
		s.engine.start(s.poll)
	}
}

// poll reads the row until nothing is waited for or held, or others tell.
func (s *semaphore) poll() {
	timer := time.NewTimer(s.engine.poll)
	defer timer.Stop()
	for {
		select {
		case <-s.engine.ctx.Done():
			return
		case <-timer.C:
		}
		s.mu.Lock()
		if s.engine.hearing().up || !slices.ContainsFunc(s.engine.sessionsOf(s), (*session).concerned) {
			s.polled = false
			s.mu.Unlock()
			return
		}
		version := s.version
		s.mu.Unlock()
		timer.Reset(s.look(version))
	}
}

// look reads the row, and tells the sessions what a message would have told them. It
// returns when to look again. A row older than what this process wrote says nothing.
func (s *semaphore) look(version int64) time.Duration {
	ctx, cancel := context.WithTimeout(s.engine.ctx, storeTime)
	defer cancel()
	row, err := s.engine.read(ctx, s.name)
	if err != nil {
		return maxPoll
	}
	snapshot, err := row.snapshot()
	if err != nil || row.Version < version && row.Version != 0 {
		return s.engine.poll
	}
	v := view{held: map[engine.ID]ledger.Recorded{}, queued: map[engine.ID]ledger.Recorded{}, place: map[engine.ID]int{}}
	for _, h := range snapshot.Holders {
		if h.End > row.time() {
			v.held[h.ID] = h
		} else {
			v.over = true
		}
	}
	for i, t := range snapshot.Waiters {
		v.queued[t.ID], v.place[t.ID] = t, i
	}
	ahead := len(snapshot.Waiters)
	for _, session := range s.engine.sessionsOf(s) {
		n, first := session.compare(v, ahead)
		ahead = min(ahead, first)
		session.tell(n)
	}
	if ahead == len(snapshot.Waiters) { // none of them is ours
		return max(pollHeld, s.engine.poll)
	}
	return min(maxPoll, s.engine.poll*time.Duration(8+ahead)/8)
}

// view is a row as a poll sees it.
type view struct {
	held, queued map[engine.ID]ledger.Recorded
	place        map[engine.ID]int // in the queue
	over         bool              // a lease has ended, and nobody has made a step since
}

// compare is what the session is to be told, and the place of its first ticket, or ahead.
func (s *session) compare(v view, ahead int) (n engine.Notification, first int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.known {
		h, held := v.held[id]
		t, queued := v.queued[id]
		switch {
		case f.ticket > 0 && held && h.Via == s.id:
			// The store may not be sure of it yet: those who are told are told later.
			n.Grants = append(n.Grants, engine.Grant{ID: id, Token: h.Token, Slot: h.Slot, Ticket: f.ticket, Unsure: true})
		case f.ticket > 0 && held:
		case f.ticket > 0 && queued:
			ahead = min(ahead, v.place[id])
			if ours := t.Via == s.id; ours && !f.ours {
				n.Ask, s.known[id] = true, fact{ticket: f.ticket, ours: true}
			}
			if v.over {
				n.Recheck = 1
			}
		case f.ticket > 0:
			n.Ask = true
			delete(s.known, id)
		case !held:
			n.Renew = true
			delete(s.known, id)
		case h.Revoked && !f.revoked && h.Via == s.id:
			n.Renew, s.known[id] = true, fact{revoked: true, ours: true}
		}
	}
	return n, ahead
}
