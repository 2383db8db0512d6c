package fileengine

import (
	"context"
	"errors"
	"slices"
	"time"

	"sema/engine"
)

// step is one turn at a log, of one record or a few.
type step struct {
	log  *log
	at   int64
	text []byte                          // records to append
	news map[string]*engine.Notification // for clients, by name
	look map[string]bool                 // clients whose process is to look at the log
	out  map[string]outbox               // of living processes reached so far
}

// step carries out f on the log and tells the clients concerned.
func (l *log) step(ctx context.Context, create, passive bool, f func(s *step)) error {
	if err := l.take(ctx, create, passive); err != nil {
		return err
	}
	s := &step{
		log: l, at: l.now(),
		news: map[string]*engine.Notification{}, look: map[string]bool{}, out: map[string]outbox{},
	}
	for client, n := range l.ledger.Notifications() { // of what others did since
		if processOf(client) == l.engine.process {
			s.tell(client, n)
		}
	}
	if slices.Contains(l.buried, l.engine.process) || l.fresh && (l.changed || l.engine.unnamed()) {
		s.rise()
	} else if l.fresh {
		s.compare()
	}
	changed := l.changed && !(passive && l.fresh) // a step that rally caused does not rally again
	l.fresh, l.changed, l.buried = false, false, nil
	f(s)
	err := s.write()
	if err == nil && passive && l.file != nil && l.form != l.engine.form() {
		_ = l.rewrite() // an older release has gone, or has come
	}
	l.leave()
	if err == nil {
		l.attend()
	} else {
		clear(s.news) // it did not happen
		clear(s.look)
	}
	<-l.mine
	s.deliver()
	if changed {
		l.engine.rally() // waiters of the old log may be missing in this one, and asleep
	}
	return err
}

// write appends what the step did. A semaphore that is no more leaves no file.
func (s *step) write() error {
	if len(s.text) == 0 {
		return nil
	}
	if s.log.ledger.Over(s.at) {
		return s.log.remove()
	}
	return s.log.append(s.text)
}

// carryOut applies a record to the ledger and notes which clients to tell.
func (s *step) carryOut(rec record) engine.Reply {
	l := s.log
	rec.At = s.at
	head, _ := l.ledger.Head()
	end, held := l.ledger.NextEnd()
	var behind []engine.ID
	for _, r := range rec.Call.Requests {
		if next, ok := l.ledger.Behind(r.ID); ok && r.Kind == engine.Release {
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
	s.text, l.sum = frame(s.text, l.sum, rec.encode())
	for client, n := range l.ledger.Notifications() {
		s.tell(client, n)
	}
	// The head of the queue watches the holders and the first lease end, each
	// other ticket the one in front of it. Clients whose part has changed look.
	for _, id := range behind {
		if l.ledger.Waits(id) {
			s.look[l.ledger.Via(id)] = true
		}
	}
	next, waits := l.ledger.Head()
	sooner, _ := l.ledger.NextEnd()
	if waits && (next != head || held && sooner < end || taken(rec, reply)) {
		s.look[l.ledger.Via(next)] = true
	}
	return reply
}

// taken reports whether a call took a permit.
func taken(rec record, reply engine.Reply) bool {
	for i, a := range reply.Answers {
		if a.Status == engine.Granted && rec.Call.Requests[i].Kind == engine.Ask {
			return true
		}
	}
	return false
}

// settle buries the dead that stand in the way: those that this process has to
// watch, and a new head of the queue. It ends leases that are over.
func (s *step) settle() {
	l := s.log
	buried := map[string]bool{l.engine.process: true}
	for {
		suspects := l.inFront()
		head, waits := l.ledger.Head()
		if client := l.ledger.Via(head); waits && s.look[client] {
			suspects = append(suspects, processOf(client))
		}
		var dead []string
		for _, process := range suspects {
			if l.watches[process] == nil && !buried[process] && !s.lives(process) {
				dead, buried[process] = append(dead, process), true
			}
		}
		end, held := l.ledger.NextEnd()
		if len(dead) == 0 && (!waits || !held || end > s.at) {
			return
		}
		s.carryOut(record{Reap: dead})
	}
}

// buryHolders buries all dead holders, and reports whether there were any.
func (s *step) buryHolders() bool {
	var dead []string
	for _, process := range s.log.holders() {
		if !s.lives(process) {
			dead = append(dead, process)
		}
	}
	if len(dead) > 0 {
		s.carryOut(record{Reap: dead})
	}
	return len(dead) > 0
}

// reach reports whether a client lives, and keeps its pipe open for what it is
// to be told.
func (s *step) reach(client string) bool {
	e, process := s.log.engine, processOf(client)
	if process == e.process {
		return e.session(client) != nil
	}
	if _, ok := s.out[process]; ok {
		return true
	}
	out, alive := openOutbox(e.life(process))
	if alive {
		s.out[process] = out
	}
	return alive
}

// lives reports whether a process lives.
func (s *step) lives(process string) bool {
	if _, reached := s.out[process]; reached || process == s.log.engine.process {
		return true
	}
	out, alive := openOutbox(s.log.engine.life(process))
	out.close()
	return alive
}

func (s *step) tell(client string, n *engine.Notification) {
	s.date(n)
	to := s.news[client]
	if to == nil {
		s.news[client] = n
		return
	}
	to.Merge(*n)
}

// date says until when the permits of grants last. One that is over already is
// to be asked for again.
func (s *step) date(n *engine.Notification) {
	for i, g := range slices.Backward(n.Grants) {
		if _, end, ok := s.log.ledger.Permit(s.at, g.ID); ok {
			n.Grants[i].Until = s.log.until(end)
		} else {
			n.Grants, n.Ask = slices.Delete(n.Grants, i, i+1), true
		}
	}
}

// rise has all permits and tickets of this process looked after, some of which may
// be gone: somebody removed its pipe, and others took it for dead; or the log.
func (s *step) rise() {
	_ = s.log.engine.revive(true) // the next step says what is wrong
	s.compare()
	for _, session := range s.log.engine.sessionsOf(s.log) {
		s.tell(session.id, &engine.Notification{Ask: true, Renew: true})
	}
}

// compare finds what became of the tickets of this process in a log of which
// it did not see all records.
func (s *step) compare() {
	l := s.log
	for _, session := range l.engine.sessionsOf(l) {
		for id, life := range session.tickets() {
			if g, _, ok := l.ledger.Permit(s.at, id); ok {
				g.Ticket = life
				s.tell(session.id, &engine.Notification{Grants: []engine.Grant{g}})
			} else if !l.ledger.Waits(id) {
				session.forget(id)
				s.tell(session.id, &engine.Notification{Ask: true})
			}
		}
	}
}

// deliver tells those concerned what they are to know.
func (s *step) deliver() {
	e := s.log.engine
	for client, n := range s.news {
		if process := processOf(client); process == e.process {
			if session := e.session(client); session != nil {
				session.deliver(*n)
			}
		} else if !n.Empty() && s.reach(client) {
			s.out[process].send(s.message(client, n))
			if (n.Ask || n.Recheck > 0) && len(n.Grants) == 0 {
				delete(s.look, client) // asking is looking
			}
		}
	}
	for client := range s.look {
		if processOf(client) != e.process && s.reach(client) {
			s.out[processOf(client)].send(s.message(client, nil))
		}
	}
	for _, out := range s.out {
		out.close()
	}
}

// lookEvery is how often a process looks at its logs though nobody told it to.
const lookEvery = 2 * time.Minute

// look has the log read, and what stands in the way buried, in the background.
func (l *log) look() {
	if !l.pending.CompareAndSwap(false, true) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := l.step(ctx, false, true, (*step).settle)
		if err == nil {
			return
		}
		l.pending.Store(false)
		if !errors.Is(err, errNoLog) && !errors.Is(err, errDamaged) && !errors.Is(err, engine.ErrClosed) {
			time.AfterFunc(time.Second, l.look) // such as a full disk
		}
	}()
}

// inFront lists the processes that this one has to watch: of the ticket in
// front of its first one, or of all holders if that is the head of the queue.
func (l *log) inFront() []string {
	ahead, waits := l.ledger.InFront(l.isMine)
	switch {
	case !waits:
		return nil
	case ahead == "":
		return l.holders()
	}
	return []string{processOf(ahead)}
}

// holders lists the other processes with permits that end with them.
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

// watcher is a process whose death will be told.
type watcher struct{ stop func() }

// attend watches the processes that this one has to watch now.
func (l *log) attend() {
	if l.ledger == nil {
		return
	}
	watched := l.inFront()
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
		stop, alive := watch(l.engine.life(process), func() { l.died(process, w) })
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
	if l.timer != nil {
		l.timer.Stop()
	}
	head, _ := l.ledger.Head()
	if end, held := l.ledger.NextEnd(); held && processOf(l.ledger.Via(head)) == l.engine.process {
		in := time.Duration(end-l.now())*time.Microsecond + time.Millisecond
		l.timer = time.AfterFunc(in, l.look)
	}
}

// died looks after the end of a watched process's pipe. It may have made a new
// one, because somebody removed all files: then this process makes its own, so
// that the next one is told in turn.
func (l *log) died(process string, w *watcher) {
	_ = l.engine.revive(true)
	l.mine <- struct{}{}
	if l.watches[process] == w {
		delete(l.watches, process)
	}
	<-l.mine
	l.look()
}
