package watch

import (
	"time"

	"sema/engine"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	// Began is the first event of every stream. The stream has all later changes. For one
	// semaphore it has the Limit, or 0 if the semaphore does not exist.
	Began Kind = "began"

	// Of permits and tickets.
	Queued   Kind = "queued"   // a ticket joined the queue
	Granted  Kind = "granted"  // a permit is held. Waited is known if a look saw the ticket
	Released Kind = "released" // a permit ended before its lease could have ended: its holder or an operator released it
	Ended    Kind = "ended"    // a permit ended, and its lease may have ended: it was lost, or released late
	Left     Kind = "left"     // a ticket ended: its caller gave up, its life ended, or it was granted and released since the last look
	Revoked  Kind = "revoked"  // an operator revoked a permit; it is still held

	// Of the semaphore.
	Limit    Kind = "limit"    // the semaphore is new, or its limit or pinning changed
	Paused   Kind = "paused"   // grants are stopped
	Unpaused Kind = "unpaused" // grants continue
	Removed  Kind = "removed"  // the semaphore ended: an operator removed it, or it was idle

	// Of the stream.
	Unreachable Kind = "unreachable" // a look failed, see Err; sent once
	Reachable   Kind = "reachable"   // a look succeeded again; events of the changes in between follow
	Missed      Kind = "missed"      // the listener was too slow, and older events were dropped
)

// Event is a change of a semaphore between two looks.
type Event struct {
	Time      time.Time // of the look that found the change
	Semaphore string
	Kind      Kind

	// Of permits and tickets.
	Permit string // its id, the same from queued to released
	Key    string // the key of a semaphore with keys; "": none
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
		add(Event{Kind: Limit, Limit: now.Limit, Pinned: now.Pinned})
	}
	if now.Paused != old.Paused && now.Limit != 0 {
		kind := Unpaused
		if now.Paused {
			kind = Paused
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
		e := Event{Kind: Released, Permit: h.ID, Key: h.Key, Client: h.Client, Weight: h.Weight, Token: h.Token, Held: h.Age}
		if h.Left <= between {
			e.Kind = Ended
		}
		add(e)
	}
	for _, w := range old.Waiters {
		if !here[w.ID] {
			add(Event{Kind: Left, Permit: w.ID, Key: w.Key, Client: w.Client, Weight: w.Weight, Waited: w.Waiting})
		}
	}
	for _, h := range now.Holders {
		e := Event{Permit: h.ID, Key: h.Key, Client: h.Client, Weight: h.Weight, Token: h.Token}
		before := held[h.ID]
		if before == nil {
			e.Kind, e.Held = Granted, h.Age
			if ticket := waited[h.ID]; ticket != nil {
				e.Waited = ticket.Waiting
				if h.Token != 0 { // the engine knows the permit's age
					e.Waited += max(0, between-h.Age)
				}
			}
			add(e)
		}
		if h.Revoked && (before == nil || !before.Revoked) {
			e.Kind, e.Waited, e.Held = Revoked, 0, h.Age
			add(e)
		}
	}
	for _, w := range now.Waiters {
		if waited[w.ID] == nil && held[w.ID] == nil {
			add(Event{Kind: Queued, Permit: w.ID, Key: w.Key, Client: w.Client, Weight: w.Weight})
		}
	}
	if now.Limit == 0 && old.Limit != 0 {
		add(Event{Kind: Removed, Limit: old.Limit})
	}
	return list
}
