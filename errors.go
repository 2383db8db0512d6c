package sema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sema/engine"
	"sema/internal/client"
)

// Errors of Acquire and of permits. Compare with errors.Is: what is returned names
// the semaphore as well.
var (
	// ErrUnavailable: no permit was free, or none in time. After a context
	// ended the wait, the error is the context's error as well; and an *EngineError,
	// if it was the engine that did not answer.
	ErrUnavailable = errors.New("sema: no permit available")

	// ErrLost: the permit is not, or cannot be trusted to be, held any more.
	// It is the cause of the permit's contexts. After Semaphore.Close, and when the
	// engine was closed, it is an ErrClosed as well.
	ErrLost = errors.New("sema: permit lost")

	// ErrRevoked: an operator revoked the permit. It is an ErrLost.
	ErrRevoked = fmt.Errorf("%w: revoked by an operator", ErrLost)

	// ErrHeldTooLong: the permit was held longer than Options.MaxHold. It is
	// an ErrLost.
	ErrHeldTooLong = fmt.Errorf("%w: held longer than allowed", ErrLost)

	// ErrReleased: the permit was released before. It is the cause of the
	// permit's contexts after Release.
	ErrReleased = errors.New("sema: permit already released")

	// ErrInUse: the semaphore cannot be removed, for somebody holds a permit or
	// waits for one. Nothing was changed.
	ErrInUse = errors.New("sema: semaphore is in use")

	// ErrNotFound: the engine has no such semaphore. Nothing was changed.
	ErrNotFound = errors.New("sema: no such semaphore")

	// ErrClosed: the Semaphore or its engine was closed.
	ErrClosed = engine.ErrClosed
)

var (
	errNotRenewed   = fmt.Errorf("%w: not renewed in time", ErrLost)
	errLetGo        = fmt.Errorf("%w: %w", ErrLost, ErrClosed)
	errEngineClosed = fmt.Errorf("%w: its engine: %w", ErrLost, ErrClosed)
	errAbandoned    = fmt.Errorf("%w: nobody could release it any more", ErrLost)
)

// named is an error about the semaphore of that name.
func named(err error, name string) error { return fmt.Errorf("%w: %q", err, name) }

type (
	// ArgumentError says which value was refused and what would have been
	// taken. Nothing was changed.
	ArgumentError = engine.ArgumentError

	// EngineError says that an engine could not be reached or refused the call.
	// Whether the step was carried out is unknown unless NotExecuted is set.
	EngineError = engine.Error
)

// LimitError says that the stored limit differs from the one given to New, or the cap of
// keys from Options.PerKey, under the Refuse policy. Nothing was changed.
type LimitError struct {
	Name   string
	Stored int
	Wanted int

	StoredPerKey int // 0: none
	WantedPerKey int
}

// Error names both limits.
func (e *LimitError) Error() string {
	if e.StoredPerKey == e.WantedPerKey {
		return fmt.Sprintf("sema: %q has limit %d, not %d", e.Name, e.Stored, e.Wanted)
	}
	return fmt.Sprintf("sema: %q has limit %d and %s, not %d and %s", e.Name, e.Stored, perKey(e.StoredPerKey), e.Wanted, perKey(e.WantedPerKey))
}

func perKey(n int) string {
	if n == 0 {
		return "none per key"
	}
	return fmt.Sprintf("%d per key", n)
}

// WeightError says that a request weighs more than the stored limit, or more than the cap
// of its key, and could never be granted. Nothing was changed.
type WeightError struct {
	Name   string
	Key    string // whose; "" without keys
	Weight int
	Limit  int // that, or the cap, whichever is less
}

// Error names the weight and the limit.
func (e *WeightError) Error() string {
	if e.Key != "" {
		return fmt.Sprintf("sema: weight %d is above the %d that key %q of %q may hold", e.Weight, e.Limit, e.Key, e.Name)
	}
	return fmt.Sprintf("sema: weight %d is above the limit %d of %q", e.Weight, e.Limit, e.Name)
}

// BusyError says that an acquisition was refused at once, because too many wait before it:
// Options.MaxWaiting of them, or so many that its context's deadline would end the wait. It
// is an ErrUnavailable. Nothing was changed.
type BusyError struct {
	Name string

	// RetryAfter estimates when those before it will have been served, times 0.5 … 1.5 by
	// chance: callers that are refused together come back at different times. 0: not known.
	RetryAfter time.Duration
}

// Error names the semaphore.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %q: too many wait", ErrUnavailable, e.Name)
}

// Unwrap is ErrUnavailable.
func (e *BusyError) Unwrap() error { return ErrUnavailable }

// reason is the error for the end of an acquisition, or of a permit.
func (s *Semaphore) reason(e client.Event) error {
	switch e.Reason {
	case client.Refused:
		return s.unavailable
	case client.Busy:
		return &BusyError{Name: s.name, RetryAfter: e.Wait/2 + rand.N(e.Wait+1)}
	case client.TooHeavy:
		return &WeightError{Name: s.name, Key: e.A.Key, Weight: e.A.Weight(), Limit: e.Limit}
	case client.LimitIsAnother:
		return &LimitError{Name: s.name, Stored: e.Limit, Wanted: s.limit, StoredPerKey: e.PerKey, WantedPerKey: s.options.PerKey}
	case client.Gone:
		return noPermit(s.name, e.A.ID())
	case client.Revoked:
		return named(ErrRevoked, s.name)
	case client.HeldTooLong:
		return named(ErrHeldTooLong, s.name)
	case client.EngineFailed:
		return s.loop.Named(operation(e.A), e.Err)
	case client.Closed:
		if e.Kind == client.Lost {
			return named(errEngineClosed, s.name)
		}
		return named(ErrClosed, s.name)
	}
	return named(errNotRenewed, s.name)
}

// operation is what was asked of the engine for an acquisition.
func operation(a *client.Acquisition) string {
	switch {
	case a.Resuming():
		return "resume"
	case a.State() == client.Held:
		return "renew"
	}
	return "acquire"
}

func noPermit(name string, id engine.ID) error {
	return fmt.Errorf("%w: %q has no permit %v", ErrLost, name, id)
}

// inVain joins ErrUnavailable with the reason the context ended, and with its cause
// if that says more.
func (s *Semaphore) inVain(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", s.unavailable, cause)
	}
	return fmt.Errorf("%w: %w: %w", s.unavailable, err, cause)
}
