package sema

import "time"

// Observer is told what happens to the permits of a Semaphore. Fields may be
// nil. The functions are called from the goroutine at hand, without a lock, and
// must not block or call the Semaphore. Those about one holding of a permit are
// called in the order in which things happened, except Queued, which may come
// late. A permit that passes on to another caller keeps its id: the next holder's
// Acquired may come before the last one's Released. Id and token name one holding.
type Observer struct {
	// Queued: an acquisition waits. Called again whenever an engine's answer
	// shows that it moved.
	Queued func(Queued)
	// Acquired: a permit was granted.
	Acquired func(Acquired)
	// Failed: an acquisition ended without a permit.
	Failed func(Failed)
	// Released: a permit was given back, and the engine confirmed it; or it stays
	// in this process, for another caller (see Options.Keep).
	Released func(Released)
	// Lost: a permit's contexts were ended, because it is not held any more.
	Lost func(Lost)
	// Abandoned: the garbage collector found a permit that nobody released.
	// It has been given back.
	Abandoned func(Abandoned)
	// RenewFailed: an attempt to renew, or to ask, failed. The next
	// attempt follows soon; the permit is lost only when its time is up.
	RenewFailed func(RenewFailed)
	// LimitDiffers: the engine's limit is not the one given to New. Called once
	// for each stored limit seen. If it is nil, a line is logged by package slog.
	LimitDiffers func(LimitDiffers)
	// Adapted: this process has changed the limit, as the one that decides; see
	// Options.Adapt. It is called from a goroutine of its own.
	Adapted func(Adapted)
}

// About says which permit of which semaphore is spoken of.
type About struct {
	Semaphore string
	Key       string // whose it is, see Semaphore.For; empty: nobody's
	Label     string // what WithLabel says; empty: that of Options
	Permit    string // its id; empty while it waits behind others of this process
	Weight    int
}

// Queued is what Observer.Queued is told.
type Queued struct {
	About
	Ahead  int           // so many tickets are before it, of its key
	Waited time.Duration // so far
}

// Acquired is what Observer.Acquired is told.
type Acquired struct {
	About
	Token  int64
	Waited time.Duration
}

// Failed is what Observer.Failed is told.
type Failed struct {
	About
	Waited time.Duration
	Err    error // as Acquire returns it
}

// Released is what Observer.Released is told.
type Released struct {
	About
	Token int64
	Held  time.Duration
}

// Lost is what Observer.Lost is told.
type Lost struct {
	About
	Token int64
	Held  time.Duration
	Err   error // an ErrLost
}

// Abandoned is what Observer.Abandoned is told.
type Abandoned struct {
	About
	Token int64
	Held  time.Duration
	Stack string // where it was acquired, with Options.NoteStack
}

// RenewFailed is what Observer.RenewFailed is told.
type RenewFailed struct {
	About
	Err error // an ErrEngine
}

// LimitDiffers is what Observer.LimitDiffers is told.
type LimitDiffers struct {
	Semaphore string
	Wanted    int // as given to New
	Stored    int // as the engine has it

	WantedPerKey int // the cap of keys as given to New; 0: none
	StoredPerKey int
}

// Adapted is what Observer.Adapted is told.
type Adapted struct {
	Semaphore string
	From      int
	Limit     int
	Bad       float64 // the part of the time held that went badly in the last window, 0 … 1
	Why       string  // in a sentence
}

// And is an Observer that tells o first, and then other.
func (o Observer) And(other Observer) Observer {
	return Observer{
		Queued:       both(o.Queued, other.Queued),
		Acquired:     both(o.Acquired, other.Acquired),
		Failed:       both(o.Failed, other.Failed),
		Released:     both(o.Released, other.Released),
		Lost:         both(o.Lost, other.Lost),
		Abandoned:    both(o.Abandoned, other.Abandoned),
		RenewFailed:  both(o.RenewFailed, other.RenewFailed),
		LimitDiffers: both(o.LimitDiffers, other.LimitDiffers),
		Adapted:      both(o.Adapted, other.Adapted),
	}
}

func both[E any](first, second func(E)) func(E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e E) { first(e); second(e) }
}
