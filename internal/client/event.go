package client

import (
	"time"

	"sema/engine"
	"sema/internal/enum"
	"sema/internal/protocol"
)

// EventKind is what happened.
type EventKind uint8

// The kinds of events.
const (
	Granted      EventKind = iota + 1 // A has a permit
	Denied                            // A ends without a permit, for Reason
	Queued                            // A's position in the queue is Ahead
	Lost                              // A's permit is lost, for Reason
	Answered                          // Order has Answer, or failed with Err
	AskFailed                         // renewing A, or asking again for it, failed with Err; it will be repeated
	LimitDiffers                      // what the engine has is Limit, Caps and Pools, and not the configured ones
)

// String names the kind.
func (k EventKind) String() string {
	return enum.Name("EventKind", k, "", "granted", "denied", "queued", "lost", "answered", "ask failed", "limit differs")
}

// Reason is why an acquisition ended.
type Reason uint8

// The reasons.
const (
	Refused         Reason = iota + 1 // nothing is free
	Busy                              // too many wait before it; Wait estimates for how long it would
	TooHeavy                          // its weight is above Limit, or above a cap of its key or an amount of a pool, which Limit is then
	LimitIsAnother                    // Strict, and what is stored is Limit, Caps and Pools
	TooManySets                       // of pools are waited for
	NamedForAnother                   // the id has a permit or a ticket of another key, or of other pools
	Gone                              // the engine has no such permit any more
	Revoked                           // an operator wanted it back
	NotRenewed                        // its time is up
	HeldTooLong                       // longer than MaxHold
	EngineFailed                      // with Err
	Closed                            // the machine, or the engine, was closed
)

// String names the reason.
func (r Reason) String() string {
	return enum.Name("Reason", r, "none", "refused", "busy", "too heavy", "limit differs", "too many sets", "named for another", "gone", "revoked", "not renewed", "held too long", "engine failed", "closed")
}

// Event tells the owner what happened. What does not apply is zero.
type Event struct {
	Kind   EventKind
	A      *Acquisition
	Order  *Order
	Reason Reason
	Ahead  int
	Limit  int
	Caps   engine.Caps
	Pools  engine.Pools
	Used   int           // Refused: of Limit; 0: not known
	Depth  int           // TooHeavy: how many names of the key have the cap; 0: it is the limit
	Pool   int           // TooHeavy: the pool that has too little, counted among those in A.Takes from 1 on; 0: it is not about a pool
	Wait   time.Duration // 0: not known
	Answer protocol.Answer
	Err    error
}
