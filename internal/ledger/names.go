package ledger

import (
	"sema/engine"
	"sema/internal/protocol"
)

// Permits that their callers named. A caller of the JSON API may ask for one permit at several servers, one after the
// other or at once, when it does not know whether the first has heard it. So such a permit and its ticket
// belong to the session that asked last, and remember one that asked before.

// owner is the client that a permit or a ticket belongs to.
type owner struct {
	via   string        // the session that receives its notifications
	rival string        // of a named one: another that has asked for it, and may have told its caller
	who   engine.Client // the client, as operators see it
}

// give makes a named permit or ticket that of a session. The session before becomes the rival if it can be reached. The
// holder of a permit may live though nobody reaches it: it becomes the rival, too, unless there is another one.
func (l *Ledger) give(o *owner, session string, permit bool) {
	was := o.via
	o.via = session
	if was != session && (l.reach(was) || permit && (o.rival == "" || o.rival == session)) {
		o.rival = was
	} else if o.rival == session {
		o.rival = ""
	}
}

// claim is the owner of the permit or ticket that is asked for. A named ticket moves to
// the asking session, unless its current session is reachable and this ask is a repeat, or
// older than the ticket. Then the asking session is its rival: its caller may still
// listen there.
func (l *Ledger) claim(now int64, who *engine.Client, r *protocol.Request) (is owner, early bool) {
	e := l.entry(r.ID)
	switch {
	case e == nil && r.Who == nil:
		return owner{via: r.ID.Client, who: *who}, false
	case e == nil:
		return owner{via: l.caller, who: *r.Who}, false
	case r.Who != nil:
		of := &e.owner
		of.who = *r.Who
		t := l.tickets[r.ID]
		early = t != nil && now-r.Waited.Microseconds() < t.place
		if !r.Again && !early || !l.reach(of.via) {
			l.give(of, l.caller, l.holders[r.ID] != nil)
		} else if of.via != l.caller {
			of.rival = l.caller
		}
	}
	return e.owner, early
}

// entry is the permit or the ticket of an id, nil if there is neither.
func (l *Ledger) entry(id engine.ID) *entry {
	if h := l.holders[id]; h != nil {
		return &h.entry
	}
	if t := l.tickets[id]; t != nil {
		return &t.entry
	}
	return nil
}

// Via is the session that receives the notifications of a permit or a ticket; "" if
// there is none.
func (l *Ledger) Via(id engine.ID) string {
	if e := l.entry(id); e != nil {
		return e.via
	}
	return ""
}

// keptFor reports whether a permit or ticket stays although a session releases it: for its rival, if the
// session gives back its own because its caller has gone; or for its caller, if it was given back
// and asked for anew since.
func (l *Ledger) keptFor(of *owner, r *protocol.Request, h *holder) bool {
	switch {
	case r.Mine && of.via == l.caller && of.rival != "":
		of.via, of.rival = of.rival, ""
		l.tell(of.via).Ask = true
		return true
	case r.Mine && of.via != l.caller, of.via != r.ID.Client && r.Token > 0 && (h == nil || h.token != r.Token):
		if of.rival == l.caller {
			of.rival = ""
		}
		return true
	}
	return false
}

// named reports whether its caller named a permit.
func (h *holder) named() bool { return h.via != h.id.Client }
