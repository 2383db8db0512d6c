package semahttp

import (
	"context"
	"errors"
	"fmt"

	"sema"
)

// limitError says at which limiter a request failed. It is seen through: the
// reason is sema's.
type limitError struct {
	name string
	err  error
}

func (e *limitError) Error() string { return fmt.Sprintf("semahttp: %q: %v", e.name, e.err) }
func (e *limitError) Unwrap() error { return e.err }

// Timeout has url.Error.Timeout report a wait that lasted too long.
func (e *limitError) Timeout() bool { return errors.Is(e.err, context.DeadlineExceeded) }

var errNoPermit = errors.New("the limiter gave neither a permit nor an error")

// unanswered reports whether err says that an engine did not answer, or could
// not be asked. That nothing was free is no such error.
func unanswered(err error) bool {
	var failure *sema.EngineError
	return errors.As(err, &failure) && !errors.Is(err, sema.ErrClosed)
}
