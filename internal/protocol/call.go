package protocol

import (
	"time"

	"sema/engine"
)

// Call holds the requests of a client to one semaphore, for one step.
type Call struct {
	// Number is larger than the numbers of all earlier calls of the session. Within an
	// engine, 0 means that the call cannot be late; see the type Fence.
	Number uint64

	// Fence says that an earlier call failed with unknown outcome, so that a
	// copy of it may still arrive. From this step on, calls of this session with a
	// smaller number change nothing. Nor does a copy of this call, if one of its requests
	// Acts.
	Fence bool

	// Keep is how long the client may pass on or keep its permits without a further
	// call, counted from the sending of this one; see Reply.Keep. 0: not at all.
	Keep time.Duration

	Requests []Request
}

// Kind is the operation that a request asks for.
type Kind uint8

// The kinds of requests.
const (
	// Ask wants a permit, at once or through a ticket in the queue. Asking
	// again under the same id gives the same permit, or keeps the ticket alive.
	Ask Kind = iota + 1

	// Renew gives a permit a new lease. It never grants, and never revives.
	Renew

	// Release releases a permit, or removes a ticket from the queue.
	Release

	// Revoke makes the next renewal of a permit fail, or the next Ask of a ticket, and notifies
	// its client to make one now. The weight and the place stay taken until the client releases them or they
	// end. With Wait it revokes a ticket alone.
	Revoke

	// SetLimit stores the limit. With Pin it outlives an idle semaphore, until
	// UnsetLimit. Permits held beyond a smaller limit stay. A Limit creates the semaphore.
	SetLimit

	// UnsetLimit ends the pinning. The limit stays while the semaphore is used.
	UnsetLimit

	// Remove forgets a semaphore that has neither holders nor waiters.
	Remove

	// Pause stops all grants until Unpause: a holder keeps its permit, a waiter
	// keeps waiting. It outlives an idle semaphore, as a pinned limit does.
	Pause

	// Unpause ends a pause.
	Unpause

	// SetKey gives a key its own cap and share in place of the common ones, until
	// UnsetKey. This rule outlives an idle semaphore.
	SetKey

	// UnsetKey ends the rule of a key.
	UnsetKey

	// Report stores Request.Totals, the outcome of the session's holds. Each Report
	// replaces the one before, so a lost, late or doubled one does no lasting harm.
	// The engine forgets a session's reports a minute after the last one.
	Report

	// Cooldown stops all grants for Lease, engine.MaxCooldown at the most. The service that the permits are for has asked for that.
	// A cooldown that ends later stays as it is. Unpause ends it. State names Who.
	Cooldown
)

// Request is one operation of a call.
type Request struct {
	Kind  Kind
	ID    engine.ID // of the permit: Ask, Renew, Release, Revoke
	Limit int       // Ask: stored if the semaphore has none; see Newest. SetLimit: the new limit; 0 leaves it as it is

	// Target is what the permit counts for. A repeated Ask uses the target of the first Ask under its id.
	// SetKey, UnsetKey: the key whose rule changes.
	Target

	Caps  engine.Caps  // Ask, SetLimit: the most weight that a key without a cap of its own may hold, by depth, stored with Limit; 0: no such cap. The key "" has none. SetLimit: 0 leaves one as it is, below 0 ends it
	Pools engine.Pools // Ask: stored with Limit. SetLimit: how much there is of these pools from now on; 0 ends one. Release: what the work used of rates, and not what the permit took, counts
	Cap   int          // SetKey: the most weight that the key may hold; 0 leaves it as it is, at first as for all keys
	Share int          // SetKey: the weight of the key in the order among keys, 1 … engine.MaxShare; 0 leaves it as it is, at first engine.DefaultShare

	Lease time.Duration // Ask, Renew: life of the permit from the step that grants or renews it. Cooldown: how long it lasts

	// Of an Ask.
	Ticket   time.Duration // life of the ticket from this step on; at most half a minute more than Lease. 0: the life of its process (see Lasting)
	Waited   time.Duration // how long its caller has waited; orders the queue
	Wait     bool          // queue if it cannot be granted now; see Revoke
	Unfair   bool          // take free weight although others wait
	Newest   bool          // Limit replaces the stored limit, unless that is pinned
	Strict   bool          // answer LimitDiffers if another limit is stored
	Again    bool          // there was a ticket under this id, or the last Reply was Unreachable: the ticket is granted in its order, even if its client cannot be notified
	Anew     bool          // the ticket now serves another caller: Waited counts, even if it is less than before
	Behind   int           // how many more callers wait in the client's process, for operators; one ticket of a client and key reports it
	Detached bool          // outlives the process: only the lease ends it

	// Who, if not nil, describes the holder in State in place of the session's Client,
	// until another Ask changes it; of a Cooldown, who said so. Under an ID whose Client belongs to no session, Who
	// makes the permit a named one: several sessions may ask for it, and all get the
	// same ticket or permit. Another weight is another ID, and so another permit.
	//
	// The engine notifies the session that asked last about the ticket and the
	// permit. An Ask with Again may have been late, and so may one whose caller came before the
	// ticket's. Such an Ask takes the notifications over only from a session that cannot be notified. Renew takes them over only with Mine; Release never does. Without
	// Who the session in the permit's ID is notified.
	Who *engine.Client

	// Release with Mine succeeds only if this session receives the permit's
	// notifications (see Who) and no other session that asked for it is alive.
	// Otherwise the answer is Gone and the permit or ticket stays, and the other
	// session receives its notifications, since the caller may still listen there.
	//
	// Renew with Mine makes this session the one that receives them. A session that
	// found a permit does so before it tells its caller, since the other session
	// might release the permit.
	Mine bool

	// Token is, for a Release or a Renew, the last fencing token that the client gave
	// out for the permit; 0: the granted one. The Release of a named permit concerns
	// only the grant with this token: otherwise the answer is Gone and nothing
	// changes. 0: any grant.
	Token int64
	Pin   bool // SetLimit: outlives an idle semaphore

	Observe bool // Ask, SetLimit: what is stored with Limit, and Limit itself, are only watched: nobody waits for them. SetLimit without Limit and Observe leaves that as it is

	// Auto, if not nil, marks the SetLimit of a controller. It changes nothing while
	// an operator's limit is pinned, and creates no semaphore.
	Auto *engine.Auto

	Totals *Totals // Report: of this session
}

// Acts reports whether the request changes a setting: the limit, the pause, a cooldown, the rule of a
// key. A late copy of such a request could undo a later change by another operator. A
// controller's request does not count, because its next decision corrects the limit.
func (r *Request) Acts() bool {
	switch r.Kind {
	case SetLimit, UnsetLimit, Pause, Unpause, SetKey, UnsetKey, Cooldown:
		return r.Auto == nil
	}
	return false
}
