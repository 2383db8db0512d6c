package protocol

import (
	"time"

	"sema/engine"
)

// Status is the outcome of a request.
type Status uint8

// The outcomes of a request.
const (
	Granted      Status = iota + 1 // Ask, Renew: the permit is held
	Queued                         // Ask: a ticket waits in the queue
	Refused                        // Ask: not enough is free, and the request does not wait
	Gone                           // Renew, Release, Revoke: there is no such permit. UnsetLimit, Remove, Pause, Unpause, Report, SetKey, UnsetKey, SetLimit with engine.Auto or without a Limit: no such semaphore
	Revoked                        // Ask, Renew: an operator wants the permit back
	TooHeavy                       // Ask: the weight is above the stored limit or a cap, or an amount above what there is of the pool; its ticket is gone
	LimitDiffers                   // Ask: Strict, and another limit is stored; its ticket is gone
	Done                           // Release, Revoke, SetLimit, UnsetLimit, Remove, Pause, Unpause, SetKey, UnsetKey, Report: executed
	InUse                          // Remove: there are holders or waiters; Revoke with Wait: the waiter has its permit by now; Ask for a named permit: the id has one of another key, or of other pools
	Pinned                         // SetLimit with Auto: an operator's limit is pinned
	TooMany                        // Ask: engine.MaxPools other sets of pools are waited for; its ticket is gone. SetLimit: there would be more than engine.MaxPools pools
)

// WouldWait is the slot of a permit that has none, because it was granted while the limit is only watched: it would have
// waited.
const WouldWait = -2

// Answer is the outcome of one request.
type Answer struct {
	Status Status
	Token  int64         // Granted: the fencing token
	Slot   int           // Granted: the slot, or -1, or WouldWait
	Lease  time.Duration // Granted: the rest of the lease at this step
	Ahead  int           // Queued: how many tickets are before this one
	Ticket int64         // Queued: names this life of the ticket; grows with each
	Used   int           // Refused: the weight that is held; 0: not known
	Bound  int           // TooHeavy: the least of the limit and the caps of the key, or what there is of the pool; 0: there is no such pool
	Depth  int           // TooHeavy: how many names of the key have that cap; 0: it is the limit
	Pool   int           // TooHeavy: the pool that has too little, counted among those in Request.Takes from 1 on; 0: it is not for a pool
}

// Reply is the result of a step.
type Reply struct {
	Limit   int          // as stored; 0: there is no semaphore
	Caps    engine.Caps  // as stored
	Pools   engine.Pools // as stored
	Watched bool         // the limit, caps and pools are only watched
	Halted  bool         // nobody is granted anything for now: a pause, or a cooldown
	Answers []Answer

	// Room is set if nobody waits, or each waiter is blocked by the cap of a key: then free
	// weight may pass from caller to caller of one key.
	Room bool

	// Recheck is set if an answer is Queued and there are holders: the time until the
	// first lease ends. The client then asks again for one of its tickets.
	Recheck time.Duration

	// Unreachable is set if an Ask was Queued, the engine cannot notify the client,
	// and the Ask had Again or the call had Keep. The client then asks more often.
	Unreachable bool

	// Keep is set if no other client waits. The client may then pass released permits to its next
	// callers, or keep them for one. That holds for Call.Keep from the sending of the call.
	Keep bool

	// Recalled is set if an Ask was Refused and the engine told another client to
	// release the permits that it keeps: another Ask may soon succeed.
	Recalled bool

	// Notification holds the step's other news for its caller.
	Notification Notification
}
