package sema

import (
	"context"
	"errors"
	"fmt"
)

// Errors of Acquire and of permits. Compare with errors.Is.
var (
	// ErrUnavailable: no permit was free, or none in time. After a context
	// ended the wait, the error is the context's error as well.
	ErrUnavailable = errors.New("sema: no permit available")

	// ErrLost: the permit is not, or cannot be trusted to be, held any more.
	// It is the cause of the permit's context.
	ErrLost = errors.New("sema: permit lost")

	// ErrRevoked: an operator revoked the permit. It is an ErrLost.
	ErrRevoked = fmt.Errorf("%w: revoked by an operator", ErrLost)

	// ErrReleased: the permit was released before. It is the cause of the
	// permit's context after Release.
	ErrReleased = errors.New("sema: permit already released")

	// ErrClosed: the Semaphore or its engine was closed.
	ErrClosed = errors.New("sema: closed")
)

// ArgumentError says which value was refused and what would have been taken.
// Nothing was changed.
type ArgumentError struct {
	What  string // "name", "limit", "weight", "lease", …
	Value any
	Want  string
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("sema: %s %v: want %s", e.What, e.Value, e.Want)
}

// LimitError says that the stored limit differs from the one given to New,
// under the Refuse policy. Nothing was changed.
type LimitError struct {
	Name   string
	Stored int
	Wanted int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("sema: %q has limit %d, not %d", e.Name, e.Stored, e.Wanted)
}

// WeightError says that a request weighs more than the stored limit and could
// never be granted. Nothing was changed.
type WeightError struct {
	Name   string
	Weight int
	Limit  int
}

func (e *WeightError) Error() string {
	return fmt.Sprintf("sema: weight %d is above the limit %d of %q", e.Weight, e.Limit, e.Name)
}

// EngineError says that an engine could not be reached or refused the call.
// Whether the step was carried out is unknown unless NotExecuted is set.
type EngineError struct {
	Op          string // "acquire", "renew", …
	Name        string // of the semaphore; may be empty
	NotExecuted bool   // certainly nothing was changed
	Hint        string // what to try; may be empty
	Err         error
}

func (e *EngineError) Error() string {
	where := ""
	if e.Name != "" {
		where = fmt.Sprintf(" %q", e.Name)
	}
	return fmt.Sprintf("sema: %s%s: %v", e.Op, where, e.Err)
}

// Unwrap is the engine's own error.
func (e *EngineError) Unwrap() error { return e.Err }

// unavailable joins ErrUnavailable with the reason the context ended, and with
// its cause if that says more.
func unavailable(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnavailable, err, cause)
}
