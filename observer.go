package sema

import "time"

// Observer is told what happens to the permits of a Semaphore. Fields may be
// nil. The functions are called one at a time per permit, from the goroutine
// at hand, and must not block or call the Semaphore.
type Observer struct {
	// Queued: an acquisition waits; Ahead tickets are before it. Called again
	// whenever an engine's answer shows that it moved up.
	Queued func(e Event)
	// Acquired: a permit was granted, after Waited.
	Acquired func(e Event)
	// Failed: an acquisition ended without a permit, after Waited, with Err.
	Failed func(e Event)
	// Released: a permit was given back after Held.
	Released func(e Event)
	// Lost: a permit's context was ended, with Err, which is an ErrLost.
	Lost func(e Event)
	// RenewFailed: an attempt to renew, or to ask again, ended in Err. The
	// next attempt follows soon; the permit is lost only when its time is up.
	RenewFailed func(e Event)
	// LimitDiffers: the engine's limit, Stored, is not the Limit given to New.
	// Called once for each stored limit seen.
	LimitDiffers func(e Event)
}

// Event is what an Observer is told. Fields that do not apply are zero.
type Event struct {
	Name   string // of the semaphore
	ID     string // of the permit
	Weight int
	Token  int64
	Ahead  int
	Waited time.Duration
	Held   time.Duration
	Limit  int // as given to New
	Stored int // as the engine has it
	Err    error
}

func tell(f func(Event), e Event) {
	if f != nil {
		f(e)
	}
}
