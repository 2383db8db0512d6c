package register

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

const (
	// maxCalls is the most calls that one step executes.
	maxCalls = 64

	// carefulFor is how many steps lock or read the row first, after another process
	// has written it.
	carefulFor = 8

	// maxPause bounds the pause before the next try, if another process wrote the row
	// between read and swap.
	maxPause = 50 * time.Millisecond
)

// semaphore is the state that the sessions of one process on one semaphore share.
type semaphore struct {
	engine   *Engine
	name     string
	sessions map[string]*session // guarded by the engine's lock

	mu         sync.Mutex
	queue      []*pending // calls that no step has taken
	running    bool
	pollTimer  *time.Timer // fires when the row is due to be read; nil: the row is not polled
	pollSlowly bool        // no ticket waits, so pollTimer may run for pollHeld
	version    int64       // the last one that this process wrote
	atHead     bool        // this process is among the maxHeads that are served next
	moreBehind bool        // more processes waited behind those, since this one began to wait
	ahead      int         // at the last poll: how many processes were before this one; -1: no ticket of it waited
	looked     time.Time   // the time of the last poll
	refused    time.Time   // when the store was last too busy for a step
	keepUntil  time.Time   // until then another process may recall a permit that this one keeps

	// Used by the running step only.
	own     *loaded       // the row as this process wrote it last; nil: another process may have written since
	careful int           // how many more steps lock or read the row first, see carefulFor
	lease   time.Duration // the shortest lease in the last step that requested one; 0: none did
}

// pending is a queued call.
type pending struct {
	session *session
	call    protocol.Call
	reply   protocol.Reply
	err     error
	done    chan struct{} // closed when reply or err is there
}

// ofHolder reports whether a call renews or releases a permit.
func (p *pending) ofHolder() bool {
	return slices.ContainsFunc(p.call.Requests, func(r protocol.Request) bool { return r.Kind == protocol.Renew || r.Kind == protocol.Release })
}

// fences reports whether a copy of an earlier step may still come to the store. A step that
// overtakes it writes the row even if it changes nothing: then the row has another version
// than that copy wants. So the row need not say which calls are late.
func (p *pending) fences() bool { return p.call.Fence }

// loaded is a row with its ledger.
type loaded struct {
	Row
	ledger *ledger.Ledger
}

// add queues a call for the next step.
func (s *semaphore) add(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, p)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// withdraw removes a call from the queue. It reports false if a step has taken the call.
func (s *semaphore) withdraw(p *pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, p)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return i >= 0
}

// run makes steps until the queue is empty.
func (s *semaphore) run() {
	for {
		s.mu.Lock()
		n := min(len(s.queue), maxCalls)
		calls := s.queue[:n:n]
		s.queue = s.queue[n:]
		s.running = n > 0
		s.mu.Unlock()
		if n == 0 {
			return
		}
		s.step(calls)
	}
}

// step executes calls, answers them, and notifies the other sessions of this process.
func (s *semaphore) step(calls []*pending) {
	changes := s.engine.listenerState().changes
	began := time.Now()
	o, err := s.decide(calls)
	if err != nil {
		if failure, ok := errors.AsType[*engine.Error](err); ok && failure.Busy {
			s.mu.Lock()
			s.refused = time.Now()
			s.mu.Unlock()
		}
		for _, p := range calls {
			p.err = err
			close(p.done)
		}
		return
	}
	s.mu.Lock()
	if !o.same {
		s.version = o.next.Version
	}
	s.atHead = o.atHead
	s.mu.Unlock()
	for i, p := range calls {
		p.reply = o.replies[i]
		p.session.note(p.call, p.reply, o.via)
		if p.reply.Keep || p.call.Keep > 0 && p.session.has(isPermit) {
			s.mu.Lock()
			s.keepUntil = began.Add(p.call.Keep)
			s.mu.Unlock()
		}
		close(p.done)
	}
	for client, n := range o.news {
		if to := s.engine.session(client); to != nil {
			to.tell(*n)
		}
	}
	if s.engine.listenerState().changes != changes { // the change found no new ticket yet
		s.lookAgain()
	}
	s.watch()
	s.yieldListener(o.moreBehind)
	if o.created {
		s.engine.sweep()
	}
}

// yieldListener frees this process's place among the listeners for a process further back
// in the queue, as soon as this one has no waiting ticket.
func (s *semaphore) yieldListener(moreBehind bool) {
	waits := s.has(isTicket)
	s.mu.Lock()
	s.moreBehind = moreBehind || s.moreBehind && !waits
	left := s.moreBehind && !waits
	s.mu.Unlock()
	if left {
		s.engine.stopListening()
	}
}

// needsListener reports whether this process needs messages: it is at the head of the
// queue, or keeps a permit that another process may recall.
func (s *semaphore) needsListener() bool {
	s.mu.Lock()
	atHead, recallable := s.atHead, time.Now().Before(s.keepUntil)
	s.mu.Unlock()
	return recallable && s.has(isPermit) || atHead && s.has(isTicket)
}

// has reports whether a session has a ticket or permit for which which is true.
func (s *semaphore) has(which func(fact) bool) bool {
	return slices.ContainsFunc(s.engine.sessionsOf(s), func(of *session) bool { return of.has(which) })
}

// decide executes calls in the cheapest way that is exact enough.
func (s *semaphore) decide(calls []*pending) (*outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.stepTimeout(calls))
	defer cancel()
	o, err := s.swapUnread(ctx, calls)
	for pause := time.Millisecond; o == nil && err == nil; {
		locks := s.engine.updater != nil
		if locks && (s.careful > 0 || !onlyTries(calls)) {
			return s.update(ctx, calls)
		}
		if o, err = s.optimistic(ctx, calls); o == nil && err == nil && !locks {
			time.Sleep(time.Duration(randomBelow(int64(pause))))
			pause = min(2*pause, maxPause)
			if ctx.Err() != nil {
				return nil, &engine.Error{Temporary: true, NotExecuted: true, Busy: true, Err: errBusy, Hint: "fewer processes on this semaphore, or sema serve in front of the store"}
			}
		}
	}
	return o, err
}

var errBusy = errors.New("other processes changed the semaphore before each write of this one")

// onlyTries reports whether all requests are asks that do not wait. On a busy semaphore
// most of them are refused, which needs no lock.
func onlyTries(calls []*pending) bool {
	return !slices.ContainsFunc(calls, func(p *pending) bool {
		return slices.ContainsFunc(p.call.Requests, func(r protocol.Request) bool { return r.Kind != protocol.Ask || r.Wait })
	})
}

// shortest is the shortest requested lease, or an hour.
func shortest(calls []*pending) time.Duration {
	least := time.Hour
	for _, p := range calls {
		for i := range p.call.Requests {
			if lease := p.call.Requests[i].Lease; lease > 0 {
				least = min(least, lease)
			}
		}
	}
	return least
}

// stepTimeout is how long a step may take: half the shortest lease, at least leastTime and
// at most storeTime. Renewals wait behind the step.
func (s *semaphore) stepTimeout(calls []*pending) time.Duration {
	if lease := shortest(calls); lease < time.Hour {
		s.lease = lease
	}
	if s.lease == 0 {
		return storeTime
	}
	return min(storeTime, max(leastTime, s.lease/2))
}

// swapUnread executes calls on the row that this process wrote last, without reading it.
// The outcome is nil if that is not possible, or another process has written since.
func (s *semaphore) swapUnread(ctx context.Context, calls []*pending) (*outcome, error) {
	m := s.own
	s.own = nil
	now, doubt, ok := s.engine.clock.estimate()
	if m == nil || s.careful > 0 || !ok || doubt > shortest(calls)/maxDoubt || m.ledger.Over(now) {
		return nil, nil
	}
	m.Now = now
	o, err := s.carryOut(m, calls, doubt)
	if err != nil || o.exact {
		return nil, err
	}
	if o.same {
		row, err := s.engine.read(ctx, s.name)
		if err != nil || row.Version != m.Version {
			return nil, err
		}
		s.own = m
		return o, nil
	}
	return s.swap(ctx, m, o, now+doubt.Microseconds())
}

// optimistic reads the row and swaps it. The outcome is nil if another process wrote it
// in between.
func (s *semaphore) optimistic(ctx context.Context, calls []*pending) (*outcome, error) {
	before := time.Now()
	row, err := s.engine.read(ctx, s.name)
	if err != nil {
		return nil, err
	}
	m, err := row.load()
	if err != nil {
		return nil, err
	}
	o, err := s.carryOut(m, calls, 0)
	if err != nil || o.same {
		return o, err
	}
	return s.swap(ctx, m, o, row.Now+time.Since(before).Microseconds())
}

// swap writes an outcome that was computed at m.Now, if the row has not changed since.
// upTo is the latest time that the store's clock may show now.
func (s *semaphore) swap(ctx context.Context, m *loaded, o *outcome, upTo int64) (*outcome, error) {
	before := time.Now()
	now, ok, err := s.engine.store.Swap(ctx, s.name, m.Version, o.next, m.Now, upTo+clockStep.Microseconds())
	switch {
	case err != nil:
		return nil, err
	case !ok:
		s.careful = carefulFor
		s.engine.clock.forget()
		return nil, nil
	}
	s.engine.clock.note(now, before)
	// Now is late by the swap's way, or by a step of the clock, after which leases end earlier. A read tells a long way from a step.
	late := time.Duration(now-upTo) * time.Microsecond
	if passed := time.Since(before); late > s.lease/maxDoubt {
		if row, err := s.engine.read(ctx, s.name); err == nil {
			late = min(late, time.Duration(row.Now-upTo)*time.Microsecond-passed+passed/maxDrift)
		}
	}
	o.shorten(max(0, late))
	s.own = o.written(m.ledger)
	return o, nil
}

// update executes calls on the locked row.
func (s *semaphore) update(ctx context.Context, calls []*pending) (o *outcome, err error) {
	before := time.Now()
	var m *loaded
	first := slices.ContainsFunc(calls, (*pending).ofHolder)
	err = s.engine.updater.Update(ctx, s.name, first, func(row Row) (Next, error) {
		s.engine.noteRow(&row, before)
		if s.careful = max(0, s.careful-1); s.version != 0 && row.Version != s.version {
			s.careful = carefulFor
		}
		if m, err = row.load(); err != nil {
			return Next{}, err
		}
		if o, err = s.carryOut(m, calls, 0); err == nil && o.same {
			err = errSame
		}
		if err != nil {
			return Next{}, err
		}
		return o.next, nil
	})
	if err == errSame {
		return o, nil
	}
	if err != nil {
		return nil, err
	}
	s.own = o.written(m.ledger)
	return o, nil
}

func (e *Engine) read(ctx context.Context, name string) (Row, error) {
	before := time.Now()
	row, err := e.store.Read(ctx, name)
	if err == nil {
		e.noteRow(&row, before)
	} else {
		err = fail("", "", err, true) // nothing was written
	}
	return row, err
}

// noteRow records the clock reading in a row, and reconnects the listener if the row says
// that this process does not listen.
func (e *Engine) noteRow(row *Row, before time.Time) {
	e.clock.note(row.Now, before)
	if slices.Contains(row.Dead, e.process) {
		e.reconnect(before)
	}
}
