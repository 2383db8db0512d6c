package sema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sema/engine"
	"sema/internal/class"
	"sema/internal/client"
)

// Errors. Compare with errors.Is: what is returned names the semaphore as well. Each error
// of a call matches exactly one of these, or is a *WeightError, a *LimitError or an
// *ArgumentError. So any order of tests is right.
var (
	// ErrBusy: no permit was free, or none before the caller's context ended. In the
	// latter case the error is the context's error as well.
	ErrBusy = class.ErrBusy

	// ErrEngine: the engine could not be reached, did not answer, or refused the call.
	// An *engine.Error in it, found with errors.As, has the details. If the caller's
	// context ended before the engine answered, the error is the context's error as well.
	ErrEngine = engine.ErrEngine

	// ErrClosed: the Semaphore or its engine was closed.
	ErrClosed = engine.ErrClosed

	// ErrLost: the permit is not, or cannot be trusted to be, held any more.
	// It is the cause of the permit's contexts. Closing its Semaphore or its engine
	// loses a permit, too.
	ErrLost = class.ErrLost

	// ErrRevoked: an operator revoked the permit, or the ticket of a caller that waited. It is an ErrLost.
	ErrRevoked = fmt.Errorf("%w: revoked by an operator", ErrLost)

	// ErrHeldTooLong: the permit was held longer than Options.MaxHold. It is
	// an ErrLost.
	ErrHeldTooLong = fmt.Errorf("%w: held longer than allowed", ErrLost)

	// ErrReleased: the permit was released before. It is the cause of the
	// permit's contexts after Release.
	ErrReleased = class.ErrReleased

	// ErrInUse: the semaphore cannot be removed, for somebody holds a permit or
	// waits for one. Nothing was changed.
	ErrInUse = class.ErrInUse

	// ErrNotFound: the engine has no such semaphore. Nothing was changed.
	ErrNotFound = class.ErrNotFound

	// ErrNoPool: the semaphore has no pool of the name that Take gave, see Options.Pools. The
	// error names the pool. Nothing was changed.
	ErrNoPool = errors.New("sema: no such pool")
)

var (
	errNotRenewed   = fmt.Errorf("%w: not renewed in time", ErrLost)
	errLetGo        = fmt.Errorf("%w: closed", ErrLost)
	errEngineClosed = fmt.Errorf("%w: its engine was closed", ErrLost)
	errAbandoned    = fmt.Errorf("%w: nobody could release it any more", ErrLost)
)

// named is an error about the semaphore of that name.
func named(err error, name string) error { return fmt.Errorf("%w: %q", err, name) }

// LimitError says that the stored limit differs from the one given to New, or the caps of
// keys from Options.Caps: an error of Acquire under LimitStrict, and Event.Err of
// Observer.LimitDiffers. Nothing was changed.
type LimitError struct {
	Name   string
	Stored int
	Wanted int

	StoredCaps engine.Caps
	WantedCaps engine.Caps

	StoredPools engine.Pools
	WantedPools engine.Pools
}

// Error names both limits, and caps and pools if they differ.
func (e *LimitError) Error() string {
	stored, wanted := "", ""
	if e.StoredCaps != e.WantedCaps {
		stored, wanted = " and "+withCaps(e.StoredCaps), " and "+withCaps(e.WantedCaps)
	}
	if e.StoredPools != e.WantedPools {
		stored, wanted = stored+" and "+withPools(e.StoredPools), wanted+" and "+withPools(e.WantedPools)
	}
	return fmt.Sprintf("sema: %q has limit %d%s, not %d%s", e.Name, e.Stored, stored, e.Wanted, wanted)
}

func withPools(p engine.Pools) string {
	if p == "" {
		return "no pools"
	}
	return "pools " + string(p)
}

func withCaps(c engine.Caps) string {
	if c == (engine.Caps{}) {
		return "no caps"
	}
	return "caps " + c.String()
}

// WeightError says that a request weighs more than the stored limit, or more than the cap
// of its key, or takes more of a pool than there is, and could never be granted. Nothing was changed, but for the cap of a
// key: then the semaphore has the limit, caps and pools of Options from then on, as after any other ask.
type WeightError struct {
	Name   string
	Pool   string     // of which there are Limit, and Weight was to be taken; "": it is not about a pool
	Key    engine.Key // whose cap is the least, the key asked for or one above it; "": it is the limit
	Weight int
	Limit  int // that, or the cap
}

// Error names the weight and the limit.
func (e *WeightError) Error() string {
	switch {
	case e.Pool != "":
		return fmt.Sprintf("sema: %d of pool %q is above the %d that %q has", e.Weight, e.Pool, e.Limit, e.Name)
	case e.Key != "":
		return fmt.Sprintf("sema: weight %d is above the %d that key %q of %q may hold", e.Weight, e.Limit, e.Key.String(), e.Name)
	}
	return fmt.Sprintf("sema: weight %d is above the limit %d of %q", e.Weight, e.Limit, e.Name)
}

// refused is the ErrBusy of an acquisition that did not wait, for want of free weight.
type refused struct {
	busy        error
	used, limit int
}

func (e *refused) Error() string { return fmt.Sprintf("%v: %d of %d held", e.busy, e.used, e.limit) }

func (e *refused) Unwrap() error { return e.busy }

// BusyError says that an acquisition was refused at once, because too many wait before it:
// Options.MaxWaiting of them, or so many that its context's deadline would end the wait; or because callers
// wait for 16 other combinations of pools, see Take. It is an ErrBusy. Nothing was changed.
type BusyError struct {
	Name string

	// RetryAfter estimates when those before it will have been served, times 0.5 … 1.5 by
	// chance: callers that are refused together come back at different times. 0: not known.
	RetryAfter time.Duration
}

// Error names the semaphore.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: %q: too many wait", ErrBusy, e.Name)
}

// Unwrap is ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// reason is the error for the end of an acquisition, or of a permit.
func (s *Semaphore) reason(e client.Event) error {
	switch e.Reason {
	case client.Refused:
		if e.Used > e.Limit-e.A.Weight() { // and not for a cap, a pool, a pause or those that wait
			return &refused{s.busy, e.Used, e.Limit}
		}
		return s.busy
	case client.TooManySets:
		return &BusyError{Name: s.name}
	case client.Busy:
		return &BusyError{Name: s.name, RetryAfter: e.Wait/2 + rand.N(e.Wait+1)}
	case client.TooHeavy:
		return s.tooHeavy(e)
	case client.LimitIsAnother:
		return s.limitError(e)
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

// tooHeavy says of what there is less than an acquisition wants.
func (s *Semaphore) tooHeavy(e client.Event) error {
	at := 0
	for pool, n := range e.A.Takes.All() {
		switch at++; {
		case at == e.Pool && e.Limit == 0:
			return fmt.Errorf("%w: %q has no pool %q", ErrNoPool, s.name, pool)
		case at == e.Pool:
			return &WeightError{Name: s.name, Pool: pool, Weight: n, Limit: e.Limit}
		}
	}
	return &WeightError{Name: s.name, Key: e.A.Key.First(e.Depth), Weight: e.A.Weight(), Limit: e.Limit}
}

// limitError compares the limit of an event with the one given to New.
func (s *Semaphore) limitError(e client.Event) *LimitError {
	return &LimitError{Name: s.name, Stored: e.Limit, Wanted: s.limit, StoredCaps: e.Caps, WantedCaps: s.options.Caps, StoredPools: e.Pools, WantedPools: s.options.Pools}
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

// inVain joins ErrBusy with the end of the caller's context.
func (s *Semaphore) inVain(ctx context.Context) error {
	return fmt.Errorf("%w: %w", s.busy, ended(ctx))
}

// ended is the error of a context that has ended, with its cause if that says more. A
// cause that matches a class, such as the loss of another permit, is in the text only.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	_, limit := errors.AsType[*LimitError](cause)
	_, weight := errors.AsType[*WeightError](cause)
	_, argument := errors.AsType[*ArgumentError](cause)
	switch {
	case cause == err:
		return err
	case limit, weight, argument, len(class.Of(cause)) > 0:
		return fmt.Errorf("%w: %v", err, cause)
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
