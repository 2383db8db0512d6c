package client

import (
	"time"

	"sema/engine"
)

// State is how far an acquisition is.
type State uint8

// The states of an acquisition.
const (
	Asking  State = iota + 1 // no answer yet
	Waiting                  // a ticket waits in the queue
	Held                     // there is a permit
	Ended                    // it is over
)

// Acquisition is a caller's way to a permit, from its wish to the permit's end.
// The zero value is ready for Machine.Acquire or Machine.Resume.
type Acquisition struct {
	Owner any // the machine's owner may keep here what it needs

	id      engine.ID
	state   State
	wait    bool          // queue if need be
	resumed bool          // another acquisition made the permit
	issued  bool          // the caller has the permit
	came    time.Duration // when the caller came
	place   time.Duration // the same, but behind those before it; orders the queue. 0: not asked for yet
	granted time.Duration // when the permit was granted, as far as the client knows
	began   time.Duration // when the request left that was granted: MaxHold counts from here
	sent    time.Duration // when the request left that the last good answer belongs to
	valid   time.Duration // held: until when it may be trusted
	due     time.Duration // when to ask again, or renew
	since   time.Duration // of the first failed attempt at what was never answered; 0: none
	token   int64
	slot    int
	ticket  int64 // the life of the ticket in the last answer
	ahead   int   // tickets ahead in the last answer; -1: never queued
	index   int   // in Machine.all
	pending bool  // in Machine.due, or in the call in flight
	again   bool  // ask once more when the call in flight is back
	short   bool  // a hand-off gave the rest of a ticket's life instead of a lease
	release Order
}

// ID names the permit.
func (a *Acquisition) ID() engine.ID { return a.id }

// State is how far it is.
func (a *Acquisition) State() State { return a.state }

// Token is the permit's fencing token.
func (a *Acquisition) Token() int64 { return a.token }

// Slot is the permit's slot, or -1.
func (a *Acquisition) Slot() int { return a.slot }

// Resuming reports whether Machine.Resume began it, and it is not known to be
// held.
func (a *Acquisition) Resuming() bool { return a.resumed && !a.issued }

// Valid is until when the permit may be trusted, unless it is renewed.
func (a *Acquisition) Valid() time.Duration { return a.valid }

// Came is when the caller came.
func (a *Acquisition) Came() time.Duration { return a.came }

// GrantedAt is when the permit was granted.
func (a *Acquisition) GrantedAt() time.Duration { return a.granted }

// Order is a request whose answer somebody wants: a release, a renewal now, an
// operator's word.
type Order struct {
	Owner any

	request engine.Request
	a       *Acquisition  // of a renewal
	since   time.Duration // of the first failed attempt; 0: none
	owed    bool          // it is repeated until it is answered
	unsure  bool          // an attempt failed with unknown outcome
	told    bool          // nobody wants the answer (any more)
}
