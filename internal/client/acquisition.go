package client

import (
	"time"

	"sema/engine"
	"sema/internal/enum"
	"sema/internal/protocol"
)

// State is how far an acquisition is.
type State uint8

// The states of an acquisition.
const (
	Asking  State = iota + 1 // no answer yet
	Waiting                  // it is in the queue, here or at the engine
	Held                     // there is a permit
	Ended                    // it is over
)

// String names the state.
func (s State) String() string {
	return enum.Name("State", s, "", "asking", "waiting", "held", "ended")
}

// Acquisition is a caller's way to a permit, from its wish to the permit's end.
// The zero value is ready for Machine.Acquire, AcquireAs or Resume.
type Acquisition struct {
	Owner any // the machine's owner may keep here what it needs

	protocol.Target        // what its permit is to count for. It is set before Acquire
	Label           string // what operators see beside the permit, in place of Config.Self's; "": that. It is set before Acquire

	// Priority is how much longer its caller counts as having waited, for its place among those of
	// its key. It is set before Acquire.
	Priority time.Duration

	// Deadline is when its caller will give up waiting; 0: never. It is set before Acquire.
	Deadline time.Duration

	claim   *claim    // what the engine has for it; nil: nothing yet, or it has ended
	id      engine.ID // of the claim
	weight  int
	came    time.Duration // when the caller came
	granted time.Duration // when the caller got the permit
	valid   time.Duration // ended: until when the permit could be trusted
	token   int64
	slot    int
	ahead   int   // tickets ahead in the last answer; -1: never queued
	retries int32 // of a wish that does not wait
	others  int32 // other clients' tickets that were before it when it joined its line

	state   State
	heard   bool // the engine has answered an ask, and it asks again
	wait    bool // queue if need be
	resumed bool // it takes up a permit that another acquisition made
	had     bool // the caller has, or had, the permit
	soon    bool // the caller came within Config.Keep of a release

	waiting        bool // in its line, between these
	earlier, later *Acquisition
	joined         int // the weight that its line had been granted when it joined
}

// ID names the permit.
func (a *Acquisition) ID() engine.ID { return a.id }

// Weight is how much it wants.
func (a *Acquisition) Weight() int { return a.weight }

// State is how far it is.
func (a *Acquisition) State() State { return a.state }

// Token is the permit's fencing token.
func (a *Acquisition) Token() int64 { return a.token }

// Slot is the permit's slot, or -1, or protocol.WouldWait.
func (a *Acquisition) Slot() int { return a.slot }

// Ahead is how many tickets were ahead when the engine last said; -1: it never was
// queued.
func (a *Acquisition) Ahead() int { return a.ahead }

// Resuming reports whether Machine.Resume began it, and it is not known to be
// held.
func (a *Acquisition) Resuming() bool { return a.resumed && !a.had }

// Valid is until when the permit may be trusted, unless it is renewed.
func (a *Acquisition) Valid() time.Duration {
	if a.claim != nil {
		return a.claim.valid
	}
	return a.valid
}

// Unanswered reports whether the engine has said nothing of it yet.
func (a *Acquisition) Unanswered() bool { return a.state == Asking && !a.heard }

// Came is when the caller came.
func (a *Acquisition) Came() time.Duration { return a.came }

// since is from when on its caller counts as waiting.
func (a *Acquisition) since() time.Duration { return a.came - a.Priority }

// before reports whether a caller goes before another one of its line.
func (a *Acquisition) before(b *Acquisition) bool {
	return a.since() < b.since() || a.since() == b.since() && a.came < b.came
}

// GrantedAt is when the permit was granted.
func (a *Acquisition) GrantedAt() time.Duration { return a.granted }
