package ledger

import (
	"container/heap"
	"slices"

	"sema"
)

// Snapshot is a ledger as plain data, for engines that keep it outside of
// memory. Times are microseconds of the engine's clock.
type Snapshot struct {
	Limit   int        `json:"limit"`
	Pinned  bool       `json:"pinned,omitempty"`
	Token   int64      `json:"token"`
	Arrival int64      `json:"arrival"`
	Keep    int64      `json:"keep"`
	Alarm   int64      `json:"alarm,omitempty"`
	Watcher string     `json:"watcher,omitempty"`
	Holders []Recorded `json:"holders,omitempty"`
	Waiters []Recorded `json:"waiters,omitempty"`
}

// Recorded is a permit or a ticket.
type Recorded struct {
	ID       string      `json:"id"`
	Weight   int         `json:"weight"`
	End      int64       `json:"end"`             // of the lease, or of the ticket
	Since    int64       `json:"since,omitempty"` // holders: the grant
	Token    int64       `json:"token,omitempty"`
	Slot     int         `json:"slot,omitempty"` // holders: -1 for none
	Revoked  bool        `json:"revoked,omitempty"`
	Arrival  int64       `json:"arrival,omitempty"` // waiters
	Detached bool        `json:"detached,omitempty"`
	Client   sema.Client `json:"client"`
}

// Save is the ledger as data.
func (l *Ledger) Save() Snapshot {
	s := Snapshot{Limit: l.limit, Pinned: l.pinned, Token: l.token, Arrival: l.arrival, Keep: l.keep, Alarm: l.alarm, Watcher: l.watcher}
	for _, h := range l.ends {
		s.Holders = append(s.Holders, Recorded{
			ID: h.id, Weight: h.weight, End: h.end, Since: h.since, Token: h.token, Slot: h.slot,
			Revoked: h.revoked, Detached: h.detached, Client: h.client,
		})
	}
	for _, t := range l.queue {
		s.Waiters = append(s.Waiters, Recorded{
			ID: t.id, Weight: t.weight, End: t.end, Arrival: t.arrival, Detached: t.detached, Client: t.client,
		})
	}
	return s
}

// Load makes a ledger of data that Save returned.
func Load(s Snapshot) *Ledger {
	l := &Ledger{
		limit: s.Limit, pinned: s.Pinned, token: s.Token, arrival: s.Arrival, keep: s.Keep, alarm: s.Alarm, watcher: s.Watcher,
		holders: map[string]*holder{}, tickets: map[string]*ticket{}, slots: map[int]*holder{},
	}
	for _, r := range s.Holders {
		h := &holder{
			id: r.ID, weight: r.Weight, end: r.End, since: r.Since, token: r.Token, slot: r.Slot,
			revoked: r.Revoked, detached: r.Detached, client: r.Client,
		}
		l.used += h.weight
		l.holders[h.id] = h
		if h.slot >= 0 {
			l.slots[h.slot] = h
		}
		heap.Push(&l.ends, h)
	}
	for _, r := range s.Waiters {
		l.enqueue(&ticket{
			id: r.ID, weight: r.Weight, end: r.End, arrival: r.Arrival, slot: wantsSlot(r.ID), detached: r.Detached, client: r.Client,
		})
	}
	return l
}

// Clients lists the clients that have a permit or a ticket which ends with
// them, sorted.
func (l *Ledger) Clients() []string {
	var clients []string
	for id, h := range l.holders {
		if !h.detached {
			clients = append(clients, sema.ClientOf(id))
		}
	}
	for id, t := range l.tickets {
		if !t.detached {
			clients = append(clients, sema.ClientOf(id))
		}
	}
	slices.Sort(clients)
	return slices.Compact(clients)
}
