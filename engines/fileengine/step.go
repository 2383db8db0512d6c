package fileengine

import (
	"context"
	"errors"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// step is one locked use of a log. It appends some records, often one.
type step struct {
	moment
	log  *log
	text []byte                            // records to append
	news map[string]*protocol.Notification // by client
	look map[string]bool                   // clients whose processes should look at the log
	out  map[string]outbox                 // open pipes of other processes
}

// step calls f with the locked log, and notifies the clients concerned.
func (l *log) step(ctx context.Context, create, passive bool, f func(s *step)) error {
	if err := l.lockForStep(ctx, create, passive); err != nil {
		return err
	}
	s := &step{
		moment: l.goOn(l.engine.moment()), log: l,
		news: map[string]*protocol.Notification{}, look: map[string]bool{}, out: map[string]outbox{},
	}
	for client, n := range l.ledger.Notifications() { // about the records of other processes
		if l.isOwn(client) {
			s.tell(client, n)
		}
	}
	if slices.Contains(l.reaped, l.engine.process) || l.fresh && (l.changed || l.engine.inboxRemoved()) {
		s.recheckAll()
	} else if l.fresh {
		s.compare()
	}
	changed := l.changed && !(passive && l.fresh) // a step that wakeAll caused must not call it again
	l.fresh, l.changed, l.reaped = false, false, nil
	f(s)
	err := s.write()
	l.unlock()
	if err == nil {
		l.updateWatchers()
	} else {
		clear(s.news) // nothing was written
		clear(s.look)
	}
	<-l.stepLock
	s.deliver()
	if changed {
		l.engine.wakeAll() // waiters of the old log may be missing in this one without knowing
	}
	return err
}

// write appends the step's records, or removes the log if the semaphore has ended.
func (s *step) write() error {
	if len(s.text) == 0 {
		return nil
	}
	if s.log.ledger.Over(s.At) {
		return s.log.remove()
	}
	return s.log.append(s.text)
}

// carryOut applies a record to the ledger and collects notifications.
func (s *step) carryOut(rec record) protocol.Reply {
	l := s.log
	rec.moment = s.moment
	head, _ := l.ledger.Head()
	end, held := l.ledger.NextEnd()
	var behind []engine.ID
	for _, r := range rec.Call.Requests {
		if next, ok := l.ledger.Behind(r.ID); ok && r.Kind == protocol.Release {
			behind = append(behind, next)
		}
	}
	reply := l.apply(&rec, func(client string) bool {
		ok := s.reach(client)
		if !ok {
			rec.Lost = append(rec.Lost, client)
		}
		return ok
	})
	s.text, l.sum = frame(s.text, l.sum, pack.Append(make([]byte, 0, 256), rec.code))
	for client, n := range l.ledger.Notifications() {
		s.tell(client, n)
	}
	// The head of the queue watches the holders and the first end of a lease. Every
	// other ticket watches the one before it. Clients with something new to watch look.
	for _, id := range behind {
		if l.ledger.Waits(id) {
			s.look[l.ledger.Via(id)] = true
		}
	}
	next, waits := l.ledger.Head()
	sooner, ends := l.ledger.NextEnd()
	if waits && (next != head || ends && (!held || sooner < end) || grantsAny(rec, reply)) {
		s.look[l.ledger.Via(next)] = true
	}
	return reply
}

// grantsAny reports whether a call acquired a permit.
func grantsAny(rec record, reply protocol.Reply) bool {
	for i, a := range reply.Answers {
		if a.Status == protocol.Granted && rec.Call.Requests[i].Kind == protocol.Ask {
			return true
		}
	}
	return false
}

// reapBlockers removes dead processes that block the queue: those that this process watches, and
// a new head of the queue. It also ends leases whose time is over.
func (s *step) reapBlockers() {
	l := s.log
	var reaped []string
	for {
		suspects := l.inFront()
		head, waits := l.ledger.Head()
		if client := l.ledger.Via(head); waits && s.look[client] {
			suspects = append(suspects, processOf(client))
		}
		dead := s.reapDead(slices.DeleteFunc(suspects, func(process string) bool {
			return l.watched(process) || slices.Contains(reaped, process)
		}))
		reaped = append(reaped, dead...)
		if end, held := l.ledger.NextEnd(); waits && held && end <= s.At {
			s.carryOut(record{}) // ends leases
		} else if len(dead) == 0 {
			return
		}
	}
}

// reapDead removes those of the given processes that are dead, and returns them.
func (s *step) reapDead(processes []string) (dead []string) {
	for _, process := range processes {
		if !slices.Contains(dead, process) && !s.alive(process) {
			dead = append(dead, process)
		}
	}
	if len(dead) > 0 {
		s.carryOut(record{Reap: dead})
	}
	return dead
}

// reach reports whether a client's process is alive, and keeps its pipe open for messages.
func (s *step) reach(client string) bool {
	e, process := s.log.engine, processOf(client)
	if process == e.process {
		return e.session(client) != nil
	}
	if _, ok := s.out[process]; ok {
		return true
	}
	out, alive := openOutbox(e.pipePath(process))
	if alive {
		s.out[process] = out
	}
	return alive
}

// alive reports whether a process is alive.
func (s *step) alive(process string) bool {
	_, reached := s.out[process]
	return reached || process == s.log.engine.process || isAlive(s.log.engine.pipePath(process))
}

func (s *step) tell(client string, n *protocol.Notification) {
	s.setUntil(n)
	to := s.news[client]
	if to == nil {
		s.news[client] = n
		return
	}
	to.Merge(*n)
}

// setUntil sets Until of the grants. It replaces a grant whose lease has ended by a request to
// ask again.
func (s *step) setUntil(n *protocol.Notification) {
	for i, g := range slices.Backward(n.Grants) {
		if _, end, ok := s.log.ledger.Permit(s.At, g.ID); ok {
			n.Grants[i].Until = s.log.localTime(end)
		} else {
			n.Grants, n.Ask = slices.Delete(n.Grants, i, i+1), true
		}
	}
}

// recheckAll tells all sessions to check their permits and tickets, because some may be lost:
// the log was replaced, or this process's pipe was removed and others took it for dead.
func (s *step) recheckAll() {
	_ = s.log.engine.ensureInbox(true) // the next step reports the error
	s.compare()
	for _, session := range s.log.engine.sessionsOf(s.log) {
		s.tell(session.id, &protocol.Notification{Ask: true, Renew: true})
	}
}

// compare finds out what happened to this process's tickets in records that it did not
// read.
func (s *step) compare() {
	l := s.log
	for _, session := range l.engine.sessionsOf(l) {
		session.mu.Lock()
		for id, life := range session.waiting {
			if g, _, ok := l.ledger.Permit(s.At, id); ok {
				g.Ticket = life
				s.tell(session.id, &protocol.Notification{Grants: []protocol.Grant{g}})
			} else if !l.ledger.Waits(id) {
				delete(session.waiting, id)
				s.tell(session.id, &protocol.Notification{Ask: true})
			}
		}
		session.mu.Unlock()
	}
}

// deliver sends the step's notifications, and asks processes to look.
func (s *step) deliver() {
	e := s.log.engine
	for client, n := range s.news {
		if s.log.isOwn(client) {
			if session := e.session(client); session != nil {
				session.deliver(*n)
			}
		} else if !n.Empty() && s.reach(client) {
			s.out[processOf(client)].send(s.message(client, n))
			if (n.Ask || n.Recheck > 0) && len(n.Grants) == 0 {
				delete(s.look, client) // the client's next ask reads the log anyway
			}
		}
	}
	for client := range s.look {
		if !s.log.isOwn(client) && s.reach(client) {
			s.out[processOf(client)].send(s.message(client, nil))
		}
	}
	for _, out := range s.out {
		out.close()
	}
}

// lookEvery is how often a process looks at its logs without a message.
const lookEvery = 2 * time.Minute

// look reads the log and removes dead processes that block the queue, in the background.
func (l *log) look() {
	if !l.lookPending.CompareAndSwap(false, true) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := l.step(ctx, false, true, (*step).reapBlockers)
		if err == nil {
			return
		}
		l.lookPending.Store(false)
		if !errors.Is(err, errNoLog) && !errors.Is(err, errDamaged) && !errors.Is(err, engine.ErrClosed) {
			time.AfterFunc(time.Second, l.look) // the error may pass, such as that of a full disk
		}
	}()
}

// inFront lists the processes that this one has to watch: the process of the ticket before
// its first one, or all holders if its first ticket is the head of the queue.
func (l *log) inFront() []string {
	ahead, waits := l.ledger.InFront(l.isOwn)
	switch {
	case !waits:
		return nil
	case ahead == "":
		return l.holders()
	}
	return []string{processOf(ahead)}
}

// holders lists the other processes that hold permits. It ignores detached permits, which
// outlive their process.
func (l *log) holders() []string {
	var list []string
	l.ledger.Holders(func(_ engine.ID, client string, detached bool) {
		process := processOf(client)
		if !detached && process != l.engine.process && !slices.Contains(list, process) {
			list = append(list, process)
		}
	})
	return list
}

// watcher waits for the death of a process.
type watcher struct{ stop func() }

// updateWatchers starts and stops watchers, and sets the timer for the next end of a lease.
func (l *log) updateWatchers() {
	if l.ledger == nil {
		return
	}
	l.watchOnly(l.inFront())
	if l.timer != nil {
		l.timer.Stop()
	}
	head, _ := l.ledger.Head()
	if end, held := l.ledger.NextEnd(); held && l.isOwn(l.ledger.Via(head)) {
		in := time.Duration(end-l.now(l.engine.moment()))*time.Microsecond + time.Millisecond
		l.timer = time.AfterFunc(in, l.look)
	}
}

func (l *log) watched(process string) bool {
	l.watching.Lock()
	defer l.watching.Unlock()
	return l.watches[process] != nil
}

// watchOnly watches these processes, and no others.
func (l *log) watchOnly(watched []string) {
	l.watching.Lock()
	defer l.watching.Unlock()
	for process, w := range l.watches {
		if !slices.Contains(watched, process) {
			w.stop()
			delete(l.watches, process)
		}
	}
	for _, process := range watched {
		if l.watches[process] != nil {
			continue
		}
		w := &watcher{}
		stop, alive := watch(l.engine.pipePath(process), func() { l.died(process, w) })
		if !alive {
			l.look()
			continue
		}
		if stop == nil {
			time.AfterFunc(time.Second, l.look)
			continue
		}
		w.stop, l.watches[process] = stop, w
	}
}

// died looks at the log after the end of a watched process's pipe. The process may be
// alive with a new pipe, because all files were removed. So this process creates its own
// pipe again if necessary, which in turn wakes the process that watches it.
func (l *log) died(process string, w *watcher) {
	_ = l.engine.ensureInbox(true)
	l.watching.Lock()
	if l.watches[process] == w {
		delete(l.watches, process)
	}
	l.watching.Unlock()
	l.look()
}
