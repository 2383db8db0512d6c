package figures

import (
	"context"
	"errors"

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
