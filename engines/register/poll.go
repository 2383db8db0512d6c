package register

import (
	"context"
	"math"
	"slices"
	"time"

	"sema/internal/ledger"
	"sema/internal/protocol"
)

const (
	// pollHeld is the time between two polls of a process that holds a permit and has
	// no waiting ticket.
	pollHeld = time.Second

	// maxPoll is the longest time between two polls of a waiting process. stalledFactor
	// multiplies that time while no process before it is served.
	maxPoll       = 5 * time.Second
	stalledFactor = 4
)

// This file decides when a process looks at its row again: by polls, and by a listener if the store has one.

// pause is the time to the next poll. ahead is how many processes are before this one,
// gone how many of them left since the last poll (below 0: unknown), and since the time
// from the last poll. A process far back polls when it expects to have moved half its way
// to the head. So the number of polls grows with the processes served, not with those
// that wait.
func pause(poll time.Duration, ahead, gone int, since time.Duration) time.Duration {
	least := min(maxPoll, poll*time.Duration(8+ahead)/8)
	if ahead < maxHeads || gone < 0 {
		return least
	}
	most := min(maxPoll, stalledFactor*least)
	if gone == 0 {
		return most
	}
	return min(most, max(least, since*time.Duration(ahead+1-maxHeads)/time.Duration(2*gone)))
}

// watch starts to listen or to poll if this process has a ticket or a permit.
func (s *semaphore) watch() {
	if s.needsListener() {
		s.engine.listen()
	}
	if s.engine.listenerState().up || !s.has(isAny) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pollTimer == nil:
		s.pollTimer, s.ahead = time.NewTimer(s.engine.poll), -1
		s.engine.start(s.poll)
	case s.pollSlowly && s.has(isTicket): // a ticket began to wait
		s.pollTimer.Reset(s.engine.poll)
		s.pollSlowly = false
	}
}

// poll reads the row from time to time, until this process listens, or has no ticket and
// no permit.
func (s *semaphore) poll() {
	s.mu.Lock()
	timer := s.pollTimer
	s.mu.Unlock()
	defer timer.Stop()
	for {
		select {
		case <-s.engine.ctx.Done():
			return
		case <-timer.C:
		}
		s.mu.Lock()
		if s.engine.listenerState().up || !s.has(isAny) {
			s.pollTimer = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		next := s.look()
		s.mu.Lock()
		if s.pollSlowly = !s.has(isTicket); s.pollSlowly {
			next = max(pollHeld, s.engine.poll)
		}
		timer.Reset(next)
		s.mu.Unlock()
		s.watch()
	}
}

// lookAgain reads the row after the process began or ceased to listen.
func (s *semaphore) lookAgain() {
	if s.has(isAny) {
		s.engine.start(func() { s.look(); s.watch() })
	}
}

// look reads the row and notifies the sessions of changes, as messages would have done. It
// returns the time to the next look for a waiting process. It ignores a row older than
// this process's last write.
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
	ahead := slices.Index(processesInOrder(m.ledger, math.MaxInt), s.engine.process)
	atHead, listed := ahead >= 0 && ahead < maxHeads, slices.Contains(row.Heads, s.engine.process)
	s.mu.Lock()
	next := pause(s.engine.poll, max(0, ahead), s.ahead-ahead, time.Since(s.looked))
	s.atHead, s.ahead, s.looked = atHead, ahead, time.Now()
	s.mu.Unlock()
	recheck := time.Duration(0)
	if end, held := m.ledger.NextEnd(); held && (atHead || end <= now) {
		recheck = max(1, time.Duration(end-now)*time.Microsecond)
	}
	if m.ledger.Unfinished() {
		recheck = protocol.AtOnce
	}
	for _, session := range s.engine.sessionsOf(s) {
		session.tell(session.compare(m.ledger, now, recheck))
	}
	if listed != (atHead && s.engine.listenerState().up) { // a step without requests corrects Row.Heads
		stepper := &session{engine: s.engine, semaphore: s, id: s.engine.process + ".0", notify: func(protocol.Notification) {}}
		p := &pending{session: stepper, done: make(chan struct{})}
		s.add(p)
		<-p.done
	}
	return next
}

// compare returns the notification of the changes by other processes in the ledger. Waiting clients ask
// again after the time recheck: a lease ends then, or a step has left something to the next one.
func (s *session) compare(l *ledger.Ledger, now int64, recheck time.Duration) (n protocol.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.known {
		g, _, held := l.Permit(now, id)
		ours := l.Via(id) == s.id
		switch {
		case isTicket(f) && l.Revoked(id):
			if !f.revoked {
				n.Ask, s.known[id] = true, fact{ticket: f.ticket, ours: ours, revoked: true}
			}
		case isTicket(f) && held:
			if ours { // a crash may still undo this grant; a message would come only after that
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
