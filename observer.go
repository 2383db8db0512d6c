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
	// shows that it moved. With Ahead and Waited.
	Queued func(Event)
	// Acquired: a permit was granted. With Token and Waited.
	Acquired func(Event)
	// Failed: an acquisition ended without a permit. With Waited, and Err as Acquire
	// returns it.
	Failed func(Event)
	// Released: a permit was given back, and the engine confirmed it; or it stays
	// in this process, for another caller (see Options.Keep). With Token and Held.
	Released func(Event)
	// Lost: a permit's contexts were ended, because it is not held any more. With
	// Token, Held and Err, an ErrLost.
	Lost func(Event)
	// Abandoned: the garbage collector found a permit that nobody released.
	// It has been given back. With Token and Held; Label tells where it was acquired. If it is
	// nil, a line is logged by package slog's default logger.
	Abandoned func(Event)
	// RenewFailed: an attempt to renew, or to ask, failed. The next
	// attempt follows soon; the permit is lost only when its time is up. With Err, an
	// ErrEngine.
	RenewFailed func(Event)
	// LimitDiffers: the engine's limit is not the one given to New. Called once
	// for each stored limit seen. With Limit, as stored, and Err, a *LimitError. If it is
	// nil, a line is logged by package slog's default logger, but not under LimitStrict.
	LimitDiffers func(Event)
	// LimitChanged: this process has changed the limit, as the one that decides; see
	// Options.Adapt. It is called from a goroutine of its own. With From, Limit, Bad and
	// Why.
	LimitChanged func(Event)
}

// Event is what an Observer is told. Each of its functions says which of the fields from Token on
// are set; the others are zero. LimitDiffers and LimitChanged are about no permit: Path, Label,
// Permit and Weight are zero as well.
type Event struct {
	Semaphore string
	Path      []string // what For says; nil without a key. Do not change it
	Label     string   // what the option Label says; empty: that of Options
	Permit    string   // its id; empty while it waits behind others of this process
	Weight    int
	WouldWait bool // the permit was granted though its caller would have waited, see Options.Observe

	Token  int64         // the fencing token
	Ahead  int           // so many tickets are before it, of its key
	Waited time.Duration // so far, or in all
	Held   time.Duration
	From   int // the limit before
	Limit  int
	Bad    float64 // the part of the time held that went badly in the last window, 0 … 1
	Why    string  // the limit was changed, in a sentence
	Err    error
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
		LimitChanged: both(o.LimitChanged, other.LimitChanged),
	}
}

func both(first, second func(Event)) func(Event) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e Event) { first(e); second(e) }
}
