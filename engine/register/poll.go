package register

import (
	"context"
	"math"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/ledger"
)

const (
	// pollHeld is how often the row of a semaphore is read of which something is held, and
	// nothing is waited for.
	pollHeld = time.Second

	// maxPoll is the longest pause between two looks of one that waits, and standing is by how much pauses grow
	// beside a queue in which nobody is served.
	maxPoll  = 5 * time.Second
	standing = 4
)

// pause is when one looks again that has so many processes before it, of which some have gone since its last look; fewer than
// none: it was not behind them. Those far behind look when they will have half of the way behind them, so that the
// reads of all grow with how many are served, and hardly with how many wait.
func pause(poll time.Duration, ahead, gone int, since time.Duration) time.Duration {
	least := min(maxPoll, poll*time.Duration(8+ahead)/8)
	if ahead < maxHeads || gone < 0 {
		return least
	}
	most := min(maxPoll, standing*least)
	if gone == 0 {
		return most
	}
	return min(most, max(least, since*time.Duration(ahead+1-maxHeads)/time.Duration(2*gone)))
}

// watch has this process told of what others do, or the row read every now and then, while it waits for
// something or holds something.
func (s *semaphore) watch() {
	if s.needsEar() {
		s.engine.listen()
	}
	if s.engine.hearing().up || !s.has(isAny) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.looks == nil:
		s.looks, s.ahead = time.NewTimer(s.engine.poll), -1
		s.engine.start(s.poll)
	case s.seldom && s.has(isTicket): // it has begun to wait
		s.looks.Reset(s.engine.poll)
		s.seldom = false
	}
}

// poll reads the row until nothing is waited for or held, or others tell.
func (s *semaphore) poll() {
	s.mu.Lock()
	looks := s.looks
	s.mu.Unlock()
	defer looks.Stop()
	for {
		select {
		case <-s.engine.ctx.Done():
			return
		case <-looks.C:
		}
		s.mu.Lock()
		if s.engine.hearing().up || !s.has(isAny) {
			s.looks = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		next := s.look()
		s.mu.Lock()
		if s.seldom = !s.has(isTicket); s.seldom {
			next = max(pollHeld, s.engine.poll)
		}
		looks.Reset(next)
		s.mu.Unlock()
		s.watch()
	}
}

// turn looks at the row, because this process has begun to hear, or does not hear any more.
func (s *semaphore) turn() {
	if s.has(isAny) {
		s.engine.start(func() { s.look(); s.watch() })
	}
}

// look reads the row, and tells the sessions what a message would have told them. It
// returns when to look again, if something is waited for. A row older than what this process wrote says nothing.
func (s *semaphore) look() time.Duration {
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.engine.ctx, storeTime)
	defer cancel()
	row, err := s.engine.read(ctx, s.name)
	if err != nil {
		return max(pollHeld, s.engine.poll)
	}
	m, err := row.load()
	if err != nil || row.Version < version && row.Version != 0 {
		return s.engine.poll
	}
	now := row.time()
	ahead := slices.Index(line(m.ledger, math.MaxInt), s.engine.process)
	atHead, told := ahead >= 0 && ahead < maxHeads, slices.Contains(row.Heads, s.engine.process)
	s.mu.Lock()
	next := pause(s.engine.poll, max(0, ahead), s.ahead-ahead, time.Since(s.looked))
	s.atHead, s.ahead, s.looked = atHead, ahead, time.Now()
	s.mu.Unlock()
	recheck := time.Duration(0)
	if end, held := m.ledger.NextEnd(); held && (atHead || end <= now) {
		recheck = max(1, time.Duration(end-now)*time.Microsecond)
	}
	for _, session := range s.engine.sessionsOf(s) {
		session.tell(session.compare(m.ledger, now, recheck))
	}
	if told != (atHead && s.engine.hearing().up) { // a step that asks for nothing says so
		nobody := &session{engine: s.engine, semaphore: s, id: s.engine.process + ".0", notify: func(engine.Notification) {}}
		p := &pending{session: nobody, call: engine.Call{Number: math.MaxUint64}, done: make(chan struct{})}
		s.add(p)
		<-p.done
	}
	return next
}

// compare is what the session is to be told of a ledger that others have changed. recheck is
// when those that wait ask again, for a lease ends then.
func (s *session) compare(l *ledger.Ledger, now int64, recheck time.Duration) (n engine.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.known {
		g, _, held := l.Permit(now, id)
		ours := l.Via(id) == s.id
		switch {
		case isTicket(f) && held:
			if ours { // the store may not be sure of it yet: those who are told are told later
				g.Ticket, g.Unsure = f.ticket, true
				n.Grants = append(n.Grants, g)
			}
		case isTicket(f) && l.Waits(id):
			if ours && !f.ours {
				n.Ask, s.known[id] = true, fact{ticket: f.ticket, ours: true}
			}
			n.Recheck = recheck
		case isTicket(f):
			n.Ask = true
			delete(s.known, id)
		case !held:
			n.Renew = true
			delete(s.known, id)
		case ours && l.Revoked(id) && !f.revoked:
			n.Renew, s.known[id] = true, fact{revoked: true, ours: true}
		}
	}
	return n
}
