package watch

import (
	"time"

	"sema/engine"
)

// Kind is what happened.
type Kind string

// The kinds of events.
const (
	// Began is the first event of every stream: changes from here on are
	// seen. Of one semaphore it has the Limit, or 0 if there is none.
	Began Kind = "began"

	// Of permits and tickets.
	Queued   Kind = "queued"   // a ticket joined the queue
	Granted  Kind = "granted"  // a permit is held. Waited is known if its ticket was seen
	Released Kind = "released" // a permit is gone before its lease could have ended: given back, or taken
	Ended    Kind = "ended"    // a permit is gone, and its lease may have ended: lost, or released late
	Left     Kind = "left"     // a ticket is gone: given up, ended, or granted and released since the last look
	Revoked  Kind = "revoked"  // an operator wants a permit back; it is still held

	// Of the semaphore.
	Limit    Kind = "limit"    // it is new, or its limit or pinning changed
	Paused   Kind = "paused"   // nobody is granted any more
	Unpaused Kind = "unpaused" // that is over
	Removed  Kind = "removed"  // it is gone: removed, or forgotten because it was idle

	// Of the stream.
	Unreachable Kind = "unreachable" // a look failed, see Err; it is told once
	Reachable   Kind = "reachable"   // a look succeeded again; what changed meanwhile follows
	Missed      Kind = "missed"      // the listener was slow and lost so many older events
)

// Event is something that happened to a semaphore between two looks.
type Event struct {
	Time      time.Time // of the look that saw it
	Semaphore string
	Kind      Kind

	// Of permits and tickets.
	Permit string // its id, the same from queued to released
	Key    string // whose it is, of those that share the semaphore; "": nobody's
	Client engine.Client
	Weight int
	Token  int64         // of a permit
	Waited time.Duration // granted, left: how long it was in the queue; left: as last seen
	Held   time.Duration // granted, released, ended, revoked: since the grant, as last seen

	// Of the semaphore.
	Limit  int  // limit, began, paused, unpaused: what it is now; removed: what it was
	Pinned bool // limit: an operator set it

	Missed int   // missed: how many
	Err    error // unreachable: why
}

// changes are what happened between two snapshots, the second taken so long
// after the first began.
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
	// A permit that made room comes before the one that took it.
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
				if h.Token != 0 { // its age is known
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
