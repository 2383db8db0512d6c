package figures

import (
	"context"
	"errors"
	"time"

	"sema"
)

// ResultOf is the label "result" of an acquisition that ended with err:
//
//	acquired  err is nil: there is a permit
//	refused   nothing was free, and the caller did not wait, or too many waited before it
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

// Results are all that ResultOf returns.
var Results = [...]string{Acquired, "canceled", "closed", "failed", "invalid", "refused", "timeout"}

// Abandoned is the label "reason" of a permit that the program forgot to
// release.
const Abandoned = "abandoned"

// ReasonOf is the label "reason" of a permit that was lost with err:
//
//	revoked        an operator wanted it back
//	held_too_long  it was held longer than Options.MaxHold
//	expired        all else: it was not renewed in time, or was not there any more
func ReasonOf(err error) string {
	switch {
	case errors.Is(err, sema.ErrRevoked):
		return "revoked"
	case errors.Is(err, sema.ErrHeldTooLong):
		return "held_too_long"
	}
	return "expired"
}

// Reasons are all that ReasonOf returns, and Abandoned.
var Reasons = [...]string{Abandoned, "expired", "held_too_long", "revoked"}

// Observer tells acquired the result of each acquisition, and ended the reason for which each
// permit was lost, "" after a release. waited is 0 without a permit.
func Observer(acquired func(semaphore, result string, waited time.Duration), ended func(semaphore, reason string, held time.Duration)) sema.Observer {
	return sema.Observer{
		Acquired:  func(e sema.Event) { acquired(e.Semaphore, Acquired, e.Waited) },
		Failed:    func(e sema.Event) { acquired(e.Semaphore, ResultOf(e.Err), 0) },
		Released:  func(e sema.Event) { ended(e.Semaphore, "", e.Held) },
		Lost:      func(e sema.Event) { ended(e.Semaphore, ReasonOf(e.Err), e.Held) },
		Abandoned: func(e sema.Event) { ended(e.Semaphore, Abandoned, e.Held) },
	}
}
