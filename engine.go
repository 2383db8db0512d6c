package sema

import (
	"context"
	"time"
)

// Engine is where semaphores live. Implementations are safe for concurrent
// use. Package engine/enginetest holds the promises every engine has to keep.
//
// An engine stores and decides; it does not wait. Waiting, renewing and
// noticing loss are done once, by Semaphore, on top of it.
type Engine interface {
	// Open prepares the use of one semaphore by one client. It does no I/O.
	// wake is called, from any goroutine and possibly before Acquire has
	// returned, when the engine has news for tickets of this session. It does
	// not block.
	Open(name string, client Client, wake func(Wake)) (Session, error)

	// List returns the names of all semaphores that exist, sorted.
	List(ctx context.Context) ([]string, error)

	// Close tells every session so and frees what the engine itself opened.
	// Permits that are still held are lost. What was handed to the engine, such
	// as a Redis client, stays open.
	Close() error
}

// Session is one client's access to one semaphore.
//
// Each method is one step, atomic towards all other clients. At the start of
// every step the permits whose lease has ended are gone; at its end free weight
// has been handed to the head of the queue. All errors but those named in the
// answers are of type *EngineError. When ctx ends first, the step may still
// happen.
type Session interface {
	// Client is the prefix of the ids this session gives its permits; unique
	// among all sessions, of lower-case letters, digits and dots.
	Client() string

	// Acquire asks for a permit. Asking again with the same ID gives the same
	// permit, or keeps the ticket alive, or takes up the place in the queue
	// that Arrival names. An engine that did not record the permit's token
	// gives a newer one; nobody has seen the first.
	Acquire(ctx context.Context, r Request) (Answer, error)

	// Renew asks again for each request: one with a token is a permit to be
	// renewed (never granted), one without is a ticket, treated as Acquire does.
	Renew(ctx context.Context, rs []Request) ([]Answer, error)

	// Release gives back the permit, or leaves the queue. It reports whether
	// there was anything to give back.
	Release(ctx context.Context, id string) (bool, error)

	// Revoke makes the next renewal of the permit fail. Its weight stays taken
	// until the holder, which learns of it then, releases it, or its lease
	// ends. It reports whether there was such a permit.
	Revoke(ctx context.Context, id string) (bool, error)

	// SetLimit stores the limit. A pinned one outlives an idle semaphore; once
	// pinned, it stays pinned. Permits held beyond a smaller limit stay.
	SetLimit(ctx context.Context, limit int, pin bool) error

	// State is a snapshot. A semaphore nobody has used has limit 0.
	State(ctx context.Context) (State, error)

	// Close frees what the session holds locally. It gives nothing back.
	Close() error
}

// Client describes who asks, for the eyes of operators.
type Client struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label,omitempty"`
}

// Request asks for one permit, or renews it.
type Request struct {
	ID       string        // made by NewID, before the first attempt
	Token    int64         // 0: not granted yet, as far as the client knows
	Weight   int           // 1 … limit
	Limit    int           // stored if the semaphore has none
	Strict   bool          // answer LimitDiffers when the stored limit is another
	Lease    time.Duration // life of the permit from the step that grants or renews it
	Ticket   time.Duration // life of the ticket from the step that queues it; at most Lease
	Arrival  int64         // place in the queue as the last answer gave it; 0: none yet
	Wait     bool          // queue if it cannot be granted now
	Unfair   bool          // take free weight although others wait
	Detached bool          // outlives the process: only the lease ends it
}

// Status is the outcome of a Request.
type Status int

// The outcomes of a Request. All but Granted and Queued take nothing.
const (
	Granted      Status = iota + 1 // the permit is held
	Queued                         // a ticket waits in the queue
	Refused                        // nothing free, and the request does not wait
	Gone                           // the permit to be renewed does not exist any more
	Revoked                        // an operator wants the permit back
	TooHeavy                       // the weight is above the stored limit; its ticket is gone
	LimitDiffers                   // Strict, and the stored limit is another; its ticket is gone
)

// Answer is what the engine says to a Request.
type Answer struct {
	Status  Status
	Limit   int           // as stored
	Token   int64         // Granted: the fencing token
	Slot    int           // Granted: the slot, or -1
	Lease   time.Duration // Granted: what is left of the lease at this step
	Arrival int64         // Queued: the place in the queue; smaller is earlier
	Ahead   int           // Queued: how many tickets are before this one
	Ticket  int64         // Queued: names this life of the ticket; grows with each
	Look    time.Duration // Queued: until the first lease ends; the client asks again then
}

// Wake is news for the tickets of a session. It may be lost; a client that asks
// again finds out all the same.
type Wake struct {
	Grants []Grant
	Ask    bool          // ask again now for every ticket
	Look   time.Duration // if above 0: ask again for a ticket after that long
	Closed bool          // the engine was closed: nothing can be renewed or granted any more
}

// Grant tells that a ticket has become a permit.
type Grant struct {
	ID     string
	Token  int64
	Slot   int
	Ticket int64 // the life of the ticket that was granted; the permit's first lease ends with it
}

// State is a snapshot of a semaphore.
type State struct {
	Limit   int
	Pinned  bool // an operator set the limit; it outlives idleness
	Used    int  // weight held
	Holders []Holder
	Waiters []Waiter // in the order they will be served
}

// Holder is a client with a permit.
type Holder struct {
	ID      string        `json:"id"`
	Weight  int           `json:"weight"`
	Slot    int           `json:"slot"`            // -1: none
	Token   int64         `json:"token,omitempty"` // 0: the engine did not record it
	Age     time.Duration `json:"age,omitempty"`   // since the grant; 0: the engine did not record it
	Left    time.Duration `json:"left"`            // of the lease
	Revoked bool          `json:"revoked,omitempty"`
	Client  Client        `json:"client"`
}

// Waiter is a client with a ticket in the queue.
type Waiter struct {
	ID      string        `json:"id"`
	Weight  int           `json:"weight"`
	Waiting time.Duration `json:"waiting"` // since it joined
	Client  Client        `json:"client"`
}
