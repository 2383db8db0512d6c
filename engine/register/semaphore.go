package register

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/ledger"
)

const (
	// maxCalls is how many calls are one step at the most.
	maxCalls = 64

	// carefulFor is for how many steps a process locks the row at once, or reads it,
	// after another one has written in between.
	carefulFor = 8

	// maxPause bounds the pause before a row is read again that others wrote
	// meanwhile.
	maxPause = 50 * time.Millisecond
)

// semaphore is what the sessions of one process on one name share.
type semaphore struct {
	engine   *Engine
	name     string
	sessions map[string]*session // guarded by the engine's lock

	mu         sync.Mutex
	queue      []*pending // calls that no step has taken
	running    bool
	looks      *time.Timer // when the row is read again; nil: it is not read by itself
	seldom     bool        // nothing is waited for, so that this may take a while
	version    int64       // the last one that this process wrote
	atHead     bool        // this process is among those that are served next
	moreBehind bool        // and there were others behind those when it waited
	ahead      int         // at the last look: how many processes were to be served before; -1: it waited for nothing
	looked     time.Time   // when that was
	keeps      time.Time   // until when others may have to be told of it that it is to give something back

	// Of the step, of which there is one at a time.
	mine    *mine         // nil: somebody else may have written since
	careful int           // see carefulFor
	lease   time.Duration // the shortest that the last step with one had; 0: none had
}

// pending is a call that waits for its step.
type pending struct {
	session *session
	call    engine.Call
	reply   engine.Reply
	err     error
	done    chan struct{} // closed when reply or err is there
}

// ofHolder reports whether a call gives back a permit or keeps one.
func (p *pending) ofHolder() bool {
	return slices.ContainsFunc(p.call.Requests, func(r engine.Request) bool { return r.Kind == engine.Renew || r.Kind == engine.Release })
}

// mine is the row as this process wrote it.
type mine struct {
	Row
	ledger *ledger.Ledger
}

// add has a call carried out with the next step.
func (s *semaphore) add(p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, p)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// withdraw takes a call back, and reports whether no step has it.
func (s *semaphore) withdraw(p *pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, p)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return i >= 0
}

// run makes steps of the calls until there are none.
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

// step carries out calls, and tells everybody concerned.
func (s *semaphore) step(calls []*pending) {
	turns := s.engine.hearing().turns
	began := time.Now()
	o, err := s.decide(calls)
	if err != nil {
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
		if p.reply.Leave != engine.GiveBack || p.call.Keep > 0 && p.session.has(isPermit) {
			s.mu.Lock()
			s.keeps = began.Add(p.call.Keep)
			s.mu.Unlock()
		}
		close(p.done)
	}
	for client, n := range o.news {
		if to := s.engine.session(client); to != nil {
			to.tell(*n)
		}
	}
	if s.engine.hearing().turns != turns { // before it was known what waits
		s.turn()
	}
	s.watch()
	s.leave(o.moreBehind)
	if o.created {
		s.engine.sweep()
	}
}

// leave has others be told in this process's place, at once, if it does not wait any more where many did.
func (s *semaphore) leave(moreBehind bool) {
	waits := s.has(isTicket)
	s.mu.Lock()
	s.moreBehind = moreBehind || s.moreBehind && !waits
	left := s.moreBehind && !waits
	s.mu.Unlock()
	if left {
		s.engine.stopListening()
	}
}

// needsEar reports whether this process has to be told at once of what others do: it is going to be served soon,
// or keeps what others may need.
func (s *semaphore) needsEar() bool {
	s.mu.Lock()
	atHead, keeps := s.atHead, time.Now().Before(s.keeps)
	s.mu.Unlock()
	return keeps && s.has(isPermit) || atHead && s.has(isTicket)
}

// has reports whether one of the sessions knows of such a ticket or permit.
func (s *semaphore) has(which func(fact) bool) bool {
	return slices.ContainsFunc(s.engine.sessionsOf(s), func(of *session) bool { return of.has(which) })
}

// decide carries out calls in the cheapest way that is exact enough.
func (s *semaphore) decide(calls []*pending) (*outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience(calls))
	defer cancel()
	o, err := s.blind(ctx, calls)
	for pause := time.Millisecond; o == nil && err == nil; {
		locks := s.engine.updater != nil
		if locks && (s.careful > 0 || !tries(calls)) {
			return s.update(ctx, calls)
		}
		if o, err = s.optimistic(ctx, calls); o == nil && err == nil && !locks {
			time.Sleep(rand.N(pause))
			pause = min(2*pause, maxPause)
			if ctx.Err() != nil {
				return nil, &engine.Error{Temporary: true, NotExecuted: true, Err: errBusy, Hint: "fewer processes on this semaphore, or sema serve in front of the store"}
			}
		}
	}
	return o, err
}

var errBusy = errors.New("others wrote the semaphore each time this process was about to")

// tries reports whether nothing is asked for but what is granted at once or refused:
// most of that is refused where much is asked for, and then nothing is locked.
func tries(calls []*pending) bool {
	return !slices.ContainsFunc(calls, func(p *pending) bool {
		return slices.ContainsFunc(p.call.Requests, func(r engine.Request) bool { return r.Kind != engine.Ask || r.Wait })
	})
}

// shortest is the shortest lease that is asked for.
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

// patience is how long a step may take. Renewals wait behind it, so short leases do not wait for the whole storeTime.
func (s *semaphore) patience(calls []*pending) time.Duration {
	if lease := shortest(calls); lease < time.Hour {
		s.lease = lease
	}
	if s.lease == 0 {
		return storeTime
	}
	return min(storeTime, max(leastTime, s.lease/2))
}

// blind carries out calls on what this process wrote last, without reading anything.
// The outcome is nil if that is not possible, or others have written since.
func (s *semaphore) blind(ctx context.Context, calls []*pending) (*outcome, error) {
	m := s.mine
	s.mine = nil
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
		s.mine = m
		return o, nil
	}
	return s.swap(ctx, m, o, now+doubt.Microseconds())
}

// optimistic reads the row and swaps it. The outcome is nil if others wrote it
// meanwhile.
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

// swap writes an outcome that was computed at m.Now, if the row is as it was then. upTo is what the clock may
// show now.
func (s *semaphore) swap(ctx context.Context, m *mine, o *outcome, upTo int64) (*outcome, error) {
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
	s.mine = o.mine(m.ledger)
	return o, nil
}

// update carries out calls on a row that nobody else writes meanwhile.
func (s *semaphore) update(ctx context.Context, calls []*pending) (o *outcome, err error) {
	before := time.Now()
	var m *mine
	first := slices.ContainsFunc(calls, (*pending).ofHolder)
	err = s.engine.updater.Update(ctx, s.name, first, func(row Row) (Next, error) {
		s.engine.seen(&row, before)
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
	s.mine = o.mine(m.ledger)
	return o, nil
}

// read reads a row, and the clock with it.
func (e *Engine) read(ctx context.Context, name string) (Row, error) {
	before := time.Now()
	row, err := e.store.Read(ctx, name)
	if err == nil {
		e.seen(&row, before)
	} else {
		err = fail("", "", err, true) // nothing was written
	}
	return row, err
}

// seen takes in what a row says of the store, and of this process.
func (e *Engine) seen(row *Row, before time.Time) {
	e.clock.note(row.Now, before)
	if slices.Contains(row.Dead, e.process) {
		e.reconnect(before)
	}
}
