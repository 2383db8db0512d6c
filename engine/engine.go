// Package engine is what the two sides of a semaphore say to each other: the
// client, which is package sema, and the place where semaphores live, which is
// an [Engine]. Users of semaphores do not need it; authors of engines do.
//
// A client talks to one semaphore through a [Session]. What it wants goes into
// a [Call]: asks, renewals, releases. The engine carries out a call as one
// step, atomic towards all other clients, and answers with a [Reply]. What
// happens to a client's tickets in somebody else's step reaches it as a
// [Notification]. A notification may be lost: the same facts are in the
// engine, and a client that asks again finds them.
//
// Package enginetest has the promises that every engine keeps.
package engine

import (
	"context"
	"os"
	"time"
)

// Engine is where semaphores live. Implementations are safe for concurrent
// use.
//
// An engine stores and decides; it does not wait. Waiting, renewing, repeating
// failed calls and noticing loss are done once, by the client.
type Engine interface {
	// Open prepares the use of one semaphore by one client. It does no I/O.
	// notify is called from any goroutine, possibly during a Step. It does not
	// block, and it may not be called with a lock held that Step or Close takes.
	Open(name string, who Client, notify func(Notification)) (Session, error)

	// List returns the names of all semaphores that exist, sorted.
	List(ctx context.Context) ([]string, error)

	// Close closes all sessions and frees what the engine itself opened. Each
	// session is notified with Closed. What was handed to the engine, such as a
	// Redis client, stays open.
	Close() error
}

// Session is one client's access to one semaphore.
type Session interface {
	// Client is the first part of the ids of this session's permits; unique
	// among all sessions, of lower-case letters, digits and dots.
	Client() string

	// Step carries out a call as one step. At the start of every step the
	// permits whose lease has ended are gone; at its end free weight has been
	// handed to the head of the queue. The answers are in the order of the
	// requests. There is one Step at a time.
	//
	// Errors are of type *Error. Step returns within a quarter of a second of
	// the end of ctx, though the step may still happen then; ctx is often a *Timed.
	// The memory of c.Requests is the caller's again when Step has returned: what
	// goes on without it has a copy. Step repeats nothing whose outcome is unknown:
	// the client does that, under the same ids.
	Step(ctx context.Context, c Call) (Reply, error)

	// State is a snapshot. A semaphore that nobody has used has limit 0. Of a
	// large one, an engine may put it together from several moments: a client that
	// holds or waits all the time is then in it exactly once.
	State(ctx context.Context) (State, error)

	// Close frees what the session holds locally. It gives nothing back.
	Close() error
}

// Lasting is a further ability of a Session.
type Lasting interface {
	// Lasting reports whether a ticket lives as long as its process. A client that
	// was told true asks again only when it is notified. The
	// first lease of a permit that is handed over is then a whole one, and its
	// Grant says until when.
	Lasting() bool
}

// Totals are how a client's holds have gone since its session began. They only
// grow. A permit of weight 2 that was held for a second counts for two seconds, when
// it is released.
type Totals struct {
	Good   int64 // weight × microseconds of the holds that went well
	Bad    int64 // of those that did not: whatever it is that the limit protects was overloaded
	Waited int64 // how many grants had to wait
}

// Auto is what a controller says with the limit that it found.
type Auto struct {
	Min int // the range of the limit
	Max int
	Bad int // the part of the time held that was bad in the last window, in thousandths
}

// Reporting is a further ability of a Session.
type Reporting interface {
	// Reports is what sessions and controllers of the semaphore have reported within
	// the last minute. Errors are those of State.
	Reports(ctx context.Context) (Reports, error)
}

// Reports is what Reporting reads.
type Reports struct {
	Limit  int               // as stored; 0: there is no semaphore
	Pinned bool              // an operator set it
	Totals map[string]Totals // by session
	Auto   Auto              // the last controller's word; zero: none sets the limit
}

// Client describes a client, for the eyes of operators.
type Client struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label,omitempty"`

	// Version is the release of sema that the client runs; "" if it runs none, or does not say.
	Version string `json:"version,omitempty"`

	Caller string        `json:"caller,omitempty"` // what the caller of a named permit calls it, see Request.Who
	Lease  time.Duration `json:"lease,omitempty"`  // how long a lease was asked for, if nobody renews it automatically
}

// Self describes this process, under a label. A host whose name cannot be had is
// "unknown".
func Self(label string) Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Client{Host: host, PID: os.Getpid(), Label: label, Version: Version}
}

// Call is what a client wants of one semaphore in one step.
type Call struct {
	// Number is larger than that of every call the session made before.
	Number uint64

	// Fence says that an earlier call failed with unknown outcome, so that a
	// copy of it may still be on its way. From this step on, calls of this
	// session with a smaller number change nothing. After a call that carried out an
	// Act that holds for its own number as well: a copy of it must not undo what
	// another operator did since.
	Fence bool

	// Keep is for how long from now on the client would pass its permits on, or
	// keep them, without a further call; see Reply.Leave. 0: not at all.
	Keep time.Duration

	Requests []Request
}

// Kind is what a request wants.
type Kind uint8

// The kinds of requests.
const (
	// Ask wants a permit, at once or through a ticket in the queue. Asking
	// again under the same id gives the same permit, or keeps the ticket alive.
	Ask Kind = iota + 1

	// Renew gives a permit a new lease. It never grants, and never revives.
	Renew

	// Release gives back a permit, or leaves the queue.
	Release

	// Revoke makes the next renewal of a permit fail, and has its holder told to
	// renew now. Its weight stays taken until the holder has released it, or its
	// lease has ended.
	Revoke

	// SetLimit stores the limit. With Pin it outlives an idle semaphore, until
	// UnsetLimit. Permits held beyond a smaller limit stay. A Limit creates the semaphore.
	SetLimit

	// UnsetLimit ends the pinning. The limit stays while the semaphore is used.
	UnsetLimit

	// Remove forgets a semaphore that has neither holders nor waiters.
	Remove

	// Pause stops all grants until Unpause: a holder keeps its permit, a waiter
	// goes on waiting. It outlives an idle semaphore, as a pinned limit does.
	Pause

	// Unpause ends a pause.
	Unpause

	// SetKey gives a key a cap and a share of its own, in place of those of all keys,
	// until UnsetKey. It outlives an idle semaphore.
	SetKey

	// UnsetKey ends the rule of a key.
	UnsetKey

	// Report says how the session's holds have gone: Request.Totals. The next
	// Report puts right what a lost, late or doubled one changed. It is forgotten a minute after the
	// session's last.
	Report
)

// What a key of a semaphore has, and may have.
const (
	DefaultShare = 100
	MaxShare     = 1000
)

// Act reports whether it changes what holds for all: the limit, or a pause.
func (k Kind) Act() bool {
	switch k {
	case SetLimit, UnsetLimit, Pause, Unpause, SetKey, UnsetKey:
		return true
	}
	return false
}

// Request is one operation of a call.
type Request struct {
	Kind  Kind
	ID    ID  // of the permit: Ask, Renew, Release, Revoke
	Limit int // Ask: stored if the semaphore has none; see Newest. SetLimit: the new one; 0 leaves it as it is

	// Key is whose the permit is, of those that share the semaphore; "" for a
	// semaphore without keys. An Ask under an id that has a ticket or a permit is about
	// the key that it was first asked for. SetKey, UnsetKey: whose rule.
	Key string

	PerKey int // Ask, SetLimit: the most weight that a key without a cap of its own may hold, stored with Limit; 0: no such cap. The key "" has none. SetLimit: 0 leaves it as it is, below 0 ends it
	Cap    int // SetKey: the most weight that the key may hold; 0 leaves it as it is, at first as for all keys
	Share  int // SetKey: the weight of the key in the order among keys, 1 … MaxShare; 0 leaves it as it is, at first DefaultShare

	Lease time.Duration // Ask, Renew: life of the permit from the step that grants or renews it

	// Of an Ask.
	Ticket   time.Duration // life of the ticket from this step on; at most half a minute more than Lease. 0: its process's (see Lasting)
	Waited   time.Duration // how long its caller has waited; orders the queue
	Wait     bool          // queue if it cannot be granted now
	Unfair   bool          // take free weight although others wait
	Newest   bool          // Limit is stored in place of another one, unless that is pinned
	Strict   bool          // answer LimitDiffers when the stored limit is another
	Again    bool          // there was a ticket under this id, or the last Reply was Unreachable: the ticket is granted in its turn, even if its client cannot be notified
	Anew     bool          // the ticket now stands for another caller: Waited counts, though it be less than before
	Behind   int           // how many more callers wait in the client's process, for the eyes of operators; one ticket of a client and key says so
	Detached bool          // outlives the process: only the lease ends it

	// Who, if not nil, describes the holder in State, instead of the session's own Client,
	// until another Ask has another. Under an ID whose Client is no session's, it makes the
	// permit a named one: several sessions may ask for it, and all get the same ticket or permit.
	// Another weight is another ID, and so another permit.
	//
	// The session that asked last is told of what happens to the ticket and the
	// permit. An Ask with Again takes that over only from a session that
	// cannot be notified, or if its caller came before the ticket's: it was late.
	// Renew takes it over with Mine only, and Release never. Without Who the permit is that of
	// the session in its ID.
	Who *Client

	// Mine has a Release done only if this session is the one that is told of
	// what happens to the permit, see Who, and no other session that asked
	// for it lives. Otherwise the answer is Gone, the permit or ticket stays, and is that
	// other session's to be told of: the caller may still listen there. It has a Renew make this session the one: before it tells its
	// own caller of a permit that it found, and that another one may give back.
	Mine bool

	// Token is, for a Release or a Renew, the last fencing token that the client gave
	// out for the permit; 0: the granted one. The Release of a named permit is
	// about the grant of this token alone: of another one the answer is Gone, and
	// nothing changes. 0: of any.
	Token int64
	Pin   bool // SetLimit: outlives an idle semaphore

	// Auto, if not nil, has a SetLimit be a controller's, and not an operator's. It
	// changes nothing while a limit is pinned, and creates no semaphore.
	Auto *Auto

	Totals *Totals // Report: of this session
}

// Acts reports whether the request changes what holds for all, as Kind.Act does, and
// a late copy of it would undo what another operator did since. A controller's
// next decision puts that right.
func (r *Request) Acts() bool { return r.Kind.Act() && r.Auto == nil }

// Status is the outcome of a request.
type Status uint8

// The outcomes of a request.
const (
	Granted      Status = iota + 1 // Ask, Renew: the permit is held
	Queued                         // Ask: a ticket waits in the queue
	Refused                        // Ask: nothing free, and the request does not wait
	Gone                           // Renew, Release, Revoke: there is no such permit. UnsetLimit, Remove, Pause, Unpause, Report, SetKey, UnsetKey, SetLimit with Auto or without a Limit: no such semaphore
	Revoked                        // Ask, Renew: an operator wants the permit back
	TooHeavy                       // Ask: the weight is above the stored limit; its ticket is gone
	LimitDiffers                   // Ask: Strict, and the stored limit is another; its ticket is gone
	Done                           // Release, Revoke, SetLimit, UnsetLimit, Remove, Pause, Unpause, SetKey, UnsetKey, Report: carried out
	InUse                          // Remove: somebody holds a permit, or waits
	Pinned                         // SetLimit with Auto: an operator's limit is pinned
)

// Answer is the outcome of one request.
type Answer struct {
	Status Status
	Token  int64         // Granted: the fencing token
	Slot   int           // Granted: the slot, or -1
	Lease  time.Duration // Granted: what is left of the lease at this step
	Ahead  int           // Queued: how many tickets are before this one
	Ticket int64         // Queued: names this life of the ticket; grows with each
	Bound  int           // TooHeavy: the limit, or the cap of the key, whichever is less
}

// Reply is what a step says to its caller.
type Reply struct {
	Limit   int // as stored; 0: there is no semaphore
	PerKey  int // as stored
	Answers []Answer

	// Room is set when each key that waits is at its cap: whoever waits does not wait
	// for another key.
	Room bool

	// Recheck is set when one of the answers is Queued and somebody holds a
	// permit: the time until the first lease ends. One of the client's tickets
	// is then asked for again.
	Recheck time.Duration

	// Unreachable is set when an Ask was Queued, the engine cannot notify the client, and
	// the Ask had Again or the call Keep. The client asks more often then.
	Unreachable bool

	// Leave is what the client may do with permits that its callers release, for
	// Call.Keep from when it sent the call. It has Keep only if the call asked.
	Leave Leave

	// Recalled is set when an Ask was Refused and another client was told to
	// give back what it keeps: asking again in a moment may succeed.
	Recalled bool

	// Notification is what else the step has to tell its caller.
	Notification Notification
}

// Leave is what a client may do with a released permit instead of giving it back.
type Leave uint8

// What a client may do with a released permit.
const (
	GiveBack Leave = iota // nothing: it goes back to the engine
	Pass                  // hand it to another caller of the process, at most Options.Passes times in a row: other clients wait
	Keep                  // hand it on, or keep it for the next caller: no other client waits
)

// Notification tells a client what happened to its tickets in a step of
// somebody else's. It may be lost, late, doubled or out of order.
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
	RecallKept Recall = iota + 1 // another client waits: Pass is left of Keep
	RecallAll                    // the semaphore was paused, or its limit lowered: GiveBack
)

// AtOnce is the Recheck of a step that left something to the next one. Any call of the client goes
// on with it.
const AtOnce = time.Microsecond

// Merge adds what another notification of the same client tells. Of two Rechecks
// the earlier counts: a client that asks too early is told the later one again, and
// one that asks too late has left free weight lying.
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

// Grant tells that a ticket has become a permit.
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

	Auto *Auto // a controller has found the limit, within the last minute; nil: none has

	PerKey int        // the most weight that a key without a rule may hold; 0: no such cap
	Keys   []KeyState // of a semaphore with keys: those in turn, in their order; those at their cap; the others
}

// KeyState is one of the keys that share a semaphore.
type KeyState struct {
	Key     string `json:"key"`
	Held    int    `json:"held"`            // weight
	Waiting int    `json:"waiting"`         // tickets
	Cap     int    `json:"cap,omitempty"`   // the most weight that it may hold; 0: the limit alone
	Share   int    `json:"share"`           // in the order among keys
	Ruled   bool   `json:"ruled,omitempty"` // an operator gave it a cap or a share of its own
	Full    bool   `json:"full,omitempty"`  // its first waiter waits for weight of the key's own
	Before  int    `json:"before"`          // how many keys go before it, if it waits and is not full
}

// Waiting is how many callers wait: those with tickets, and those behind them in
// their processes.
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
	Waiting time.Duration `json:"waiting"`          // since it came
	Behind  int           `json:"behind,omitempty"` // so many more callers wait in its process
	Key     string        `json:"key,omitempty"`
	Client  Client        `json:"client"`
}
