// Package engine defines the protocol between a client, which is package sema,
// and an [Engine], which stores semaphores. Authors of engines need it; users of
// semaphores do not.
//
// A client uses one semaphore through a [Session]. It sends a [Call] with its
// requests: asks, renewals, releases. The engine executes a call as one step,
// atomically towards all other clients, and answers with a [Reply]. If a step of
// another client changes a client's tickets, the engine sends that client a
// [Notification]. A notification may be lost: the engine still has the facts, and
// a client that asks again receives them.
//
// Package enginetest tests the promises that every engine keeps.
package engine

import (
	"context"
	"os"
	"time"
)

// Engine stores semaphores. Implementations are safe for concurrent use.
//
// An engine stores and decides; it does not wait. The client waits, renews leases,
// repeats failed calls and notices lost permits, for all engines alike.
type Engine interface {
	// Open prepares the use of one semaphore by one client. It does no I/O.
	// The engine calls notify from any goroutine, possibly during a Step, but not
	// while it holds a lock that Step or Close takes. notify does not block.
	Open(name string, who Client, notify func(Notification)) (Session, error)

	// List returns the names of all semaphores that exist, sorted.
	List(ctx context.Context) ([]string, error)

	// Close closes all sessions and frees the resources that the engine opened. It
	// notifies each session with Closed. Resources that were passed to the engine,
	// such as a Redis client, stay open.
	Close() error
}

// Session is one client's access to one semaphore.
type Session interface {
	// Client is the first part of the ids of this session's permits. It is unique
	// among all sessions and has only lower-case letters, digits and dots.
	Client() string

	// Step executes a call as one step. A step first removes the permits whose
	// lease has ended, and finally grants free weight to the head of the queue. The
	// answers are in the order of the requests. The caller makes one Step at a time.
	//
	// Errors are of type *Error. Step returns within a quarter of a second of
	// the end of ctx, though the step may still happen then; ctx is often a *Timed.
	// The caller may reuse the memory of c.Requests when Step has returned, so an
	// engine that continues then needs a copy. Step never repeats a call with
	// unknown outcome: the client does that, under the same ids.
	Step(ctx context.Context, c Call) (Reply, error)

	// State is a snapshot. An unused semaphore has limit 0. An engine may assemble
	// the snapshot of a large semaphore from several moments. A client that holds
	// or waits during all of them is then listed exactly once.
	State(ctx context.Context) (State, error)

	// Close frees the session's local resources. It releases no permit.
	Close() error
}

// Lasting is a further ability of a Session.
type Lasting interface {
	// Lasting reports whether a ticket lives as long as its process. If so, the
	// client asks again only when it is notified. A permit that is handed over then
	// starts with a whole lease, and its Grant says how long that is.
	Lasting() bool
}

// Totals sum up the outcome of a client's holds since its session began. They only
// grow. A hold is added when its permit is released: weight 2 for one second counts
// as two seconds.
type Totals struct {
	Good   int64 // weight × microseconds of the holds without overload
	Bad    int64 // weight × microseconds of the holds that saw the protected resource overloaded
	Waited int64 // how many grants had to wait
}

// Auto is a controller's report about the limit that it sets.
type Auto struct {
	Min int // the range of the limit
	Max int
	Bad int // the bad part of the time held in the last window, in thousandths
}

// Reporting is a further ability of a Session.
type Reporting interface {
	// Reports returns the reports of the semaphore's sessions and controllers within
	// the last minute. Errors are those of State.
	Reports(ctx context.Context) (Reports, error)
}

// Reports are the reports about one semaphore.
type Reports struct {
	Limit  int               // as stored; 0: there is no semaphore
	Pinned bool              // an operator set it
	Totals map[string]Totals // by session
	Auto   Auto              // the last controller's report; zero: no controller sets the limit
}

// Client describes a client to operators.
type Client struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label,omitempty"`

	// Version is the release of sema that the client runs; "" if unknown, or if it runs none.
	Version string `json:"version,omitempty"`

	Caller string        `json:"caller,omitempty"` // the name that the caller gave a named permit, see Request.Who
	Lease  time.Duration `json:"lease,omitempty"`  // the requested lease, if nobody renews it automatically
}

// Self describes this process, with a label. Host is "unknown" if the system does not
// tell its name.
func Self(label string) Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Client{Host: host, PID: os.Getpid(), Label: label, Version: Version}
}

// Call holds the requests of a client to one semaphore, for one step.
type Call struct {
	// Number is larger than the numbers of all earlier calls of the session.
	Number uint64

	// Fence says that an earlier call failed with unknown outcome, so that a
	// copy of it may still arrive. From this step on, calls of this session with a
	// smaller number change nothing. If a request of this call Acts, neither does a copy
	// of the call itself.
	Fence bool

	// Keep is how long the client may pass on or keep its permits without a further
	// call, counted from the sending of this one; see Reply.Leave. 0: not at all.
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

	// Revoke makes the next renewal of a permit fail, and notifies its holder to
	// renew now. The weight stays taken until the holder releases it or the lease
	// ends.
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
)

// The share of a key without a rule, and the largest one.
const (
	DefaultShare = 100
	MaxShare     = 1000
)

// Request is one operation of a call.
type Request struct {
	Kind  Kind
	ID    ID  // of the permit: Ask, Renew, Release, Revoke
	Limit int // Ask: stored if the semaphore has none; see Newest. SetLimit: the new limit; 0 leaves it as it is

	// Key is the key of the semaphore that the permit counts for; "" for a
	// semaphore without keys. A repeated Ask uses the key of the first Ask under its
	// id. SetKey, UnsetKey: the key whose rule changes.
	Key string

	PerKey int // Ask, SetLimit: the most weight that a key without a cap of its own may hold, stored with Limit; 0: no such cap. The key "" has none. SetLimit: 0 leaves it as it is, below 0 ends it
	Cap    int // SetKey: the most weight that the key may hold; 0 leaves it as it is, at first as for all keys
	Share  int // SetKey: the weight of the key in the order among keys, 1 … MaxShare; 0 leaves it as it is, at first DefaultShare

	Lease time.Duration // Ask, Renew: life of the permit from the step that grants or renews it

	// Of an Ask.
	Ticket   time.Duration // life of the ticket from this step on; at most half a minute more than Lease. 0: the life of its process (see Lasting)
	Waited   time.Duration // how long its caller has waited; orders the queue
	Wait     bool          // queue if it cannot be granted now
	Unfair   bool          // take free weight although others wait
	Newest   bool          // Limit replaces the stored limit, unless that is pinned
	Strict   bool          // answer LimitDiffers if another limit is stored
	Again    bool          // there was a ticket under this id, or the last Reply was Unreachable: the ticket is granted in its order, even if its client cannot be notified
	Anew     bool          // the ticket now serves another caller: Waited counts, even if it is less than before
	Behind   int           // how many more callers wait in the client's process, for operators; one ticket of a client and key reports it
	Detached bool          // outlives the process: only the lease ends it

	// Who, if not nil, describes the holder in State in place of the session's Client,
	// until another Ask changes it. Under an ID whose Client belongs to no session, Who
	// makes the permit a named one: several sessions may ask for it, and all get the
	// same ticket or permit. Another weight is another ID, and so another permit.
	//
	// The engine notifies the session that asked last about the ticket and the
	// permit. An Ask with Again takes the notifications over only from a session that
	// cannot be notified, or if its caller came before the ticket's caller: then the
	// Ask was late. Renew takes them over only with Mine; Release never does. Without
	// Who the session in the permit's ID is notified.
	Who *Client

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

	// Auto, if not nil, marks the SetLimit of a controller. It changes nothing while
	// an operator's limit is pinned, and creates no semaphore.
	Auto *Auto

	Totals *Totals // Report: of this session
}

// Acts reports whether the request changes a setting: the limit, the pause, the rule of a
// key. A late copy of such a request could undo a later change by another operator. A
// controller's request does not count, because its next decision corrects the limit.
func (r *Request) Acts() bool {
	switch r.Kind {
	case SetLimit, UnsetLimit, Pause, Unpause, SetKey, UnsetKey:
		return r.Auto == nil
	}
	return false
}

// Status is the outcome of a request.
type Status uint8

// The outcomes of a request.
const (
	Granted      Status = iota + 1 // Ask, Renew: the permit is held
	Queued                         // Ask: a ticket waits in the queue
	Refused                        // Ask: not enough is free, and the request does not wait
	Gone                           // Renew, Release, Revoke: there is no such permit. UnsetLimit, Remove, Pause, Unpause, Report, SetKey, UnsetKey, SetLimit with Auto or without a Limit: no such semaphore
	Revoked                        // Ask, Renew: an operator wants the permit back
	TooHeavy                       // Ask: the weight is above the stored limit; its ticket is gone
	LimitDiffers                   // Ask: Strict, and another limit is stored; its ticket is gone
	Done                           // Release, Revoke, SetLimit, UnsetLimit, Remove, Pause, Unpause, SetKey, UnsetKey, Report: executed
	InUse                          // Remove: there are holders or waiters
	Pinned                         // SetLimit with Auto: an operator's limit is pinned
)

// Answer is the outcome of one request.
type Answer struct {
	Status Status
	Token  int64         // Granted: the fencing token
	Slot   int           // Granted: the slot, or -1
	Lease  time.Duration // Granted: the rest of the lease at this step
	Ahead  int           // Queued: how many tickets are before this one
	Ticket int64         // Queued: names this life of the ticket; grows with each
	Bound  int           // TooHeavy: the limit or the key's cap, the smaller of the two
}

// Reply is the result of a step.
type Reply struct {
	Limit   int // as stored; 0: there is no semaphore
	PerKey  int // as stored
	Answers []Answer

	// Room is set if every waiting key is at its cap: no waiter waits for the weight
	// of another key.
	Room bool

	// Recheck is set if an answer is Queued and there are holders: the time until the
	// first lease ends. The client then asks again for one of its tickets.
	Recheck time.Duration

	// Unreachable is set if an Ask was Queued, the engine cannot notify the client,
	// and the Ask had Again or the call had Keep. The client then asks more often.
	Unreachable bool

	// Leave says what the client may do with permits that its callers release. It is
	// valid for Call.Keep from the sending of the call. It is Keep only if the call
	// had Keep.
	Leave Leave

	// Recalled is set if an Ask was Refused and the engine told another client to
	// release the permits that it keeps: another Ask may soon succeed.
	Recalled bool

	// Notification holds the step's other news for its caller.
	Notification Notification
}

// Leave is what a client may do with a released permit instead of giving it back.
type Leave uint8

// What a client may do with a released permit.
const (
	GiveBack Leave = iota // nothing: it goes back to the engine
	Pass                  // pass it to another caller of the process, at most Options.Passes times in a row: other clients wait
	Keep                  // pass it on, or keep it for the next caller: no other client waits
)

// Notification tells a client what a step of another client did to its tickets. It
// may be lost, late, doubled or out of order.
type Notification struct {
	Grants  []Grant
	Ask     bool          // ask again now for every ticket
	Renew   bool          // renew every permit now: an operator wants one back
	Recheck time.Duration // if above 0: ask again for one ticket after that long; see AtOnce
	Recall  Recall        // an earlier Reply.Leave is over
	Closed  bool          // the engine was closed: nothing can be renewed or granted any more
}

// Recall takes back an earlier Reply.Leave.
type Recall uint8

// What is taken back.
const (
	RecallKept Recall = iota + 1 // another client waits: Keep becomes Pass
	RecallAll                    // the semaphore was paused, or its limit lowered: GiveBack
)

// AtOnce is the Recheck of a step that left work for the next one. Any call of the
// client continues that work.
const AtOnce = time.Microsecond

// Merge adds another notification of the same client. Of two Rechecks the earlier
// counts: a client that asks too early is told the later one again, but one that asks
// too late leaves weight unused.
func (n *Notification) Merge(m Notification) {
	n.Grants = append(n.Grants, m.Grants...)
	n.Ask, n.Renew, n.Closed = n.Ask || m.Ask, n.Renew || m.Renew, n.Closed || m.Closed
	n.Recall = max(n.Recall, m.Recall)
	if n.Recheck == 0 || m.Recheck > 0 && m.Recheck < n.Recheck {
		n.Recheck = m.Recheck
	}
}

// Empty reports whether the notification tells nothing.
func (n *Notification) Empty() bool {
	return len(n.Grants) == 0 && !n.Ask && !n.Renew && n.Recheck == 0 && n.Recall == 0 && !n.Closed
}

// Grant says that a ticket has become a permit.
type Grant struct {
	ID     ID
	Token  int64
	Slot   int
	Ticket int64 // the life of the ticket that was granted

	// Unsure says that the engine may still forget the grant: the permit is
	// renewed before it is given to a caller.
	Unsure bool

	// Until is when the permit's first lease ends, on the monotonic clock of
	// this process. Zero: it ends with the ticket.
	Until time.Time
}

// State is a snapshot of a semaphore.
type State struct {
	Limit   int
	Pinned  bool // an operator set the limit; it outlives idleness
	Paused  bool // an operator stopped all grants
	Used    int  // weight held
	Holders []Holder
	Waiters []Waiter // in the order they will be served; with keys, key by key

	Auto *Auto // the report of the controller that set the limit within the last minute; nil: none did

	PerKey int        // the most weight that a key without a rule may hold; 0: no such cap
	Keys   []KeyState // of a semaphore with keys: those that can be served, in their order; those at their cap; the others
}

// KeyState is one of the keys that share a semaphore.
type KeyState struct {
	Key     string `json:"key"`
	Held    int    `json:"held"`            // weight
	Waiting int    `json:"waiting"`         // tickets
	Cap     int    `json:"cap,omitempty"`   // the most weight that it may hold; 0: only the limit applies
	Share   int    `json:"share"`           // in the order among keys
	Ruled   bool   `json:"ruled,omitempty"` // an operator gave it a cap or a share of its own
	Full    bool   `json:"full,omitempty"`  // the key's cap holds up its first waiter
	Before  int    `json:"before"`          // how many keys are served before it, if it waits and is not full
}

// Waiting is how many callers wait: those with tickets and those behind them in the
// same processes.
func (s State) Waiting() int {
	n := len(s.Waiters)
	for _, w := range s.Waiters {
		n += w.Behind
	}
	return n
}

// Holder is a client with a permit.
type Holder struct {
	ID      string        `json:"id"`
	Weight  int           `json:"weight"`
	Slot    int           `json:"slot"` // -1: none
	Token   int64         `json:"token"`
	Age     time.Duration `json:"age"`  // since the grant
	Left    time.Duration `json:"left"` // of the lease
	Revoked bool          `json:"revoked,omitempty"`
	Key     string        `json:"key,omitempty"`
	Client  Client        `json:"client"`
}

// Waiter is a client with a ticket in the queue.
type Waiter struct {
	ID      string        `json:"id"`
	Weight  int           `json:"weight"`
	Waiting time.Duration `json:"waiting"`          // how long it has waited
	Behind  int           `json:"behind,omitempty"` // how many more callers wait in its process
	Key     string        `json:"key,omitempty"`
	Client  Client        `json:"client"`
}
