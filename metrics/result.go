package metrics

import (
	"context"
	"errors"
	"time"

	"sema"
)

// ResultOf is the label "result" of an acquisition that ended with err:
//
//	acquired  err is nil: there is a permit; would_wait in its place if the limit is only watched, and would have kept it waiting
//	refused   nothing was free, and the caller did not wait, or only as long as WaitAtMost, or too many waited before it
//	timeout   its context's deadline came first
//	canceled  its context was canceled
//	invalid   it asked for more than the limit, or the stored limit is another
//	closed    the Semaphore was closed
//	failed    the engine could not be reached, or refused
func ResultOf(err error) string {
	var weight *sema.WeightError
	var limit *sema.LimitError
	switch {
	case err == nil:
		return Acquired
	case errors.As(err, &weight), errors.As(err, &limit):
		return "invalid"
	case errors.Is(err, sema.ErrEngine):
		return "failed"
	case errors.Is(err, sema.ErrClosed):
		return "closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, sema.ErrBusy):
		return "refused"
	}
	return "failed"
}

// Acquired is the label "result" of an acquisition that succeeded.
const Acquired = "acquired"

// wouldWait is the label "result" of a permit that would have waited if the limit were not only watched.
const wouldWait = "would_wait"

// results are all that ResultOf returns, and wouldWait.
var results = [...]string{Acquired, "canceled", "closed", "failed", "invalid", "refused", "timeout", wouldWait}

// abandoned is the label "reason" of a permit that the program forgot to
// release.
const abandoned = "abandoned"

// reasonOf is the label "reason" of a permit that was lost with err:
//
//	revoked        an operator wanted it back
//	held_too_long  it was held longer than Options.MaxHold
//	expired        all else: it was not renewed in time, or was not there any more
func reasonOf(err error) string {
	switch {
	case errors.Is(err, sema.ErrRevoked):
		return "revoked"
	case errors.Is(err, sema.ErrHeldTooLong):
		return "held_too_long"
	}
	return "expired"
}

// reasons are all that reasonOf returns, and abandoned.
var reasons = [...]string{abandoned, "expired", "held_too_long", "revoked"}

// Observer is for sema.Options, and for those who count elsewhere than in a Recorder. It tells acquired
// the result of each acquisition, see ResultOf, and how long it waited, 0 without a permit; and ended
// the reason for which each permit ended, "" after a release, and how long it was held.
func Observer(acquired func(semaphore, result string, waited time.Duration), ended func(semaphore, reason string, held time.Duration)) sema.Observer {
	return sema.Observer{
		Acquired: func(e sema.Event) {
			result := Acquired
			if e.WouldWait {
				result = wouldWait
			}
			acquired(e.Semaphore, result, e.Waited)
		},
		Failed:    func(e sema.Event) { acquired(e.Semaphore, ResultOf(e.Err), 0) },
		Released:  func(e sema.Event) { ended(e.Semaphore, "", e.Held) },
		Lost:      func(e sema.Event) { ended(e.Semaphore, reasonOf(e.Err), e.Held) },
		Abandoned: func(e sema.Event) { ended(e.Semaphore, abandoned, e.Held) },
	}
}
