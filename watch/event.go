package watch

import (
	"time"

	"sema/engine"
)

// The values of Event.Kind.
const (
	kindBegan       = "began"
	kindQueued      = "queued"
	kindGranted     = "granted"
	kindReleased    = "released"
	kindEnded       = "ended"
	kindLeft        = "left"
	kindRevoked     = "revoked"
	kindLimit       = "limit"
	kindPaused      = "paused"
	kindUnpaused    = "unpaused"
	kindRemoved     = "removed"
	kindUnreachable = "unreachable"
	kindReachable   = "reachable"
	kindMissed      = "missed"
)

// Event is a change of a semaphore between two looks.
type Event struct {
	Time      time.Time // of the look that found the change
	Semaphore string

	// Kind is the kind of the change. Of permits and tickets:
	//
	//	queued       a ticket joined the queue
	//	granted      a permit is held. Waited is known if a look saw the ticket
	//	released     a permit ended before its lease could have ended: its holder or an operator released it
	//	ended        a permit ended, and its lease may have ended: it was lost, or released late
	//	left         a ticket ended: its caller gave up, its life ended, or it was granted and released since the last look
	//	revoked      an operator revoked a permit; it is still held
	//
	// Of the semaphore:
	//
	//	limit        the semaphore is new, or its limit or pinning changed
	//	paused       grants are stopped
	//	unpaused     grants continue
	//	removed      the semaphore ended: an operator removed it, or it was idle
	//
	// Of the stream:
	//
	//	began        the first event: the stream has all later changes. For one semaphore it
	//	             has the Limit, or 0 if the semaphore does not exist
	//	unreachable  a look failed, see Err; sent once
	//	reachable    a look succeeded again; events of the changes in between follow
	//	missed       the listener was too slow, and older events were dropped
	Kind string

	// Of permits and tickets.
	Permit string       // its id, the same from queued to released
	Key    engine.Key   // the key of a semaphore with keys; "": none
	Takes  engine.Pools // of pools
	Client engine.Client
	Weight int
	Token  int64         // of a permit
	Waited time.Duration // granted, left: the time in the queue; left: at the last look that saw it
	Held   time.Duration // granted, released, ended, revoked: the time since the grant, at the last look that saw it

	// Of the semaphore.
	Limit  int  // limit, began, paused, unpaused: the current limit; removed: the last limit
	Pinned bool // limit: an operator set it

	Missed int   // missed: the number of dropped events
	Err    error // unreachable: the error of the look
}

// changes returns the events between two snapshots. between is the time from the beginning
// of the first look to the second snapshot.
func changes(name string, old, now engine.State, at time.Time, between time.Duration) []Event {
	var list []Event
	add := func(e Event) {
		e.Time, e.Semaphore = at, name
		list = append(list, e)
	}
	if now.Limit != old.Limit && now.Limit != 0 || now.Pinned != old.Pinned && now.Limit != 0 {
		add(Event{Kind: kindLimit, Limit: now.Limit, Pinned: now.Pinned})
	}
	if now.Paused != old.Paused && now.Limit != 0 {
		kind := kindUnpaused
		if now.Paused {
			kind = kindPaused
		}
		add(Event{Kind: kind, Limit: now.Limit})
	}
	held, waited := make(map[string]*engine.Holder, len(old.Holders)), make(map[string]*engine.Waiter, len(old.Waiters))
	for i := range old.Holders {
		held[old.Holders[i].ID] = &old.Holders[i]
	}
	for i := range old.Waiters {
		waited[old.Waiters[i].ID] = &old.Waiters[i]
	}
	here := make(map[string]bool, len(now.Holders)+len(now.Waiters))
	for _, h := range now.Holders {
		here[h.ID] = true
	}
	for _, w := range now.Waiters {
		here[w.ID] = true
	}
	// The end of a permit comes before the grant of the freed weight.
	for _, h := range old.Holders {
		if here[h.ID] {
			continue
		}
		e := Event{Kind: kindReleased, Permit: h.ID, Key: h.Key, Takes: h.Takes, Client: h.Client, Weight: h.Weight, Token: h.Token, Held: h.Age}
		if h.Left <= between {
			e.Kind = kindEnded
		}
		add(e)
	}
	for _, w := range old.Waiters {
		if !here[w.ID] {
			add(Event{Kind: kindLeft, Permit: w.ID, Key: w.Key, Takes: w.Takes, Client: w.Client, Weight: w.Weight, Waited: w.Waiting})
		}
	}
	for _, h := range now.Holders {
		e := Event{Permit: h.ID, Key: h.Key, Takes: h.Takes, Client: h.Client, Weight: h.Weight, Token: h.Token}
		before := held[h.ID]
		if before == nil {
			e.Kind, e.Held = kindGranted, h.Age
			if ticket := waited[h.ID]; ticket != nil {
				e.Waited = ticket.Waiting
				if h.Token != 0 { // the engine knows the permit's age
					e.Waited += max(0, between-h.Age)
				}
			}
			add(e)
		}
		if h.Revoked && (before == nil || !before.Revoked) {
			e.Kind, e.Waited, e.Held = kindRevoked, 0, h.Age
			add(e)
		}
	}
	for _, w := range now.Waiters {
		if waited[w.ID] == nil && held[w.ID] == nil {
			add(Event{Kind: kindQueued, Permit: w.ID, Key: w.Key, Takes: w.Takes, Client: w.Client, Weight: w.Weight})
		}
	}
	if now.Limit == 0 && old.Limit != 0 {
		add(Event{Kind: kindRemoved, Limit: old.Limit})
	}
	return list
}
