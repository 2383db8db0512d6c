// Package gate admits requests and calls: by a permit, or by policy while the engine
// does not answer.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sema"
	"sema/each"
	"sema/internal/enum"
)

// Policy says what happens to a request while the engine does not answer.
type Policy uint8

// The policies.
const (
	FailClosed Policy = iota // it fails
	FailOpen                 // it runs without a limit
	FailLocal                // it runs if it finds one of Options.Places
)

// String is the constant's name; Policy(42) for a value that is none of them.
func (p Policy) String() string {
	return enum.Name("Policy", p, "FailClosed", "FailOpen", "FailLocal")
}

// MaxPlaces is the most that FailLocal can let through at once.
const MaxPlaces = 1_000_000

// NoWait is for Options.Wait.
const NoWait = time.Duration(-1)

// quickAnswer is the default of AnswerWithin, unless requests fail closed.
const quickAnswer = 100 * time.Millisecond

// releasePatience is how long Release waits for the engine.
const releasePatience = 250 * time.Millisecond

// Options is what requests are admitted under.
type Options struct {
	Wait         time.Duration // for a permit or a place; 0: as long as the context lasts; NoWait: for no place
	Policy       Policy
	AnswerWithin time.Duration // 0: the default
	Places       int           // of FailLocal
	PlacesPerKey int           // of one name; 0: all
}

// Check says what nothing can be admitted under, as an error of a package. Wait is
// for the package to check.
func (o Options) Check(pkg string) error {
	invalid := func(what string, value any, want string) error {
		return &sema.ArgumentError{Package: pkg, What: what, Value: value, Want: want}
	}
	switch {
	case o.Policy > FailLocal:
		return invalid("Policy", o.Policy, "FailClosed, FailOpen or FailLocal")
	case o.AnswerWithin < 0:
		return invalid("AnswerWithin", o.AnswerWithin, "0 for the default, or more")
	case o.Policy == FailLocal && (o.Places < 1 || o.Places > MaxPlaces):
		return invalid("Places", o.Places, fmt.Sprintf("1 … %d", MaxPlaces))
	case o.Policy != FailLocal && o.Places != 0:
		return invalid("Places", o.Places, "0 without FailLocal")
	case o.PlacesPerKey < 0 || o.PlacesPerKey > o.Places:
		return invalid("PlacesPerKey", o.PlacesPerKey, fmt.Sprintf("0 … %d, the number of Places", o.Places))
	}
	return nil
}

// Permit is what a request holds while it runs.
type Permit interface {
	Context(parent context.Context) context.Context
	Err() error
	Release() error
}

// Asking is how one request asks for its permit.
type Asking struct {
	Name    string // of what is limited: those of one name share PlacesPerKey
	Acquire func(context.Context, ...sema.AcquireOption) (Permit, error)
	Failed  func(Failed) // is told that the engine did not answer for the request
}

// Failed is a request that the engine did not answer for.
type Failed struct {
	Err      error // what the engine said, to this request or to the last that asked it
	Admitted bool  // it runs without a permit
	Local    bool  // it was for FailLocal to decide
}

// acquire asks for a permit. The engine may be silent for so long; 0: as long as it
// is for others.
func (a Asking) acquire(ctx context.Context, answerWithin time.Duration) (Permit, error) {
	switch p, err := a.Acquire(ctx, sema.AnswerWithin(answerWithin)); {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, errNoPermit
	default:
		return p, nil
	}
}

var errNoPermit = errors.New("the limiter gave neither a permit nor an error")

// Gate admits requests that share one engine. The zero value is ready.
type Gate struct {
	outages
	places places
}

// Enter waits until a request may run, and returns what it holds meanwhile: a
// permit, or what its policy gave it.
func (g *Gate) Enter(ctx context.Context, o Options, a Asking) (Permit, error) {
	within := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	for {
		p, err := g.ask(ctx, within, o, a)
		if err != errAnswers {
			return p, err
		}
	}
}

// ask is Enter, but fails with errAnswers if the request waited for a place until the
// engine was back. all is the request's context, and ctx ends with its wait.
func (g *Gate) ask(all, ctx context.Context, o Options, a Asking) (Permit, error) {
	if o.Policy == FailClosed {
		p, err := a.acquire(ctx, o.AnswerWithin)
		if errors.Is(err, sema.ErrEngine) && all.Err() == nil {
			a.Failed(Failed{Err: err})
		}
		return p, err
	}
	if over, failure := g.failure(); failure != nil {
		return g.without(ctx, o, a, failure, over)
	}
	patience := cmp.Or(o.AnswerWithin, quickAnswer)
	permit, err := a.acquire(ctx, patience)
	if errors.Is(err, each.ErrTooMany) {
		// Perhaps the others ask an engine that is away: then that is known within patience.
		if over, failure := g.await(ctx, 2*patience); failure != nil {
			return g.without(ctx, o, a, failure, over)
		}
		permit, err = a.acquire(ctx, patience)
	}
	switch {
	case err == nil:
		return permit, nil
	case all.Err() != nil:
		return nil, err
	case errors.Is(err, sema.ErrEngine):
		over := g.begin(probe{a, patience, context.WithoutCancel(all)}, err)
		return g.without(ctx, o, a, err, over)
	case errors.Is(err, sema.ErrBusy):
		if over, failure := g.failure(); failure != nil { // it waited in a queue that does not move
			return g.without(ctx, o, a, failure, over)
		}
	}
	return nil, err
}

// without lets a request through by policy, unless the outage is over before.
func (g *Gate) without(ctx context.Context, o Options, a Asking, failure error, over <-chan struct{}) (Permit, error) {
	told := Failed{Err: failure, Admitted: true, Local: o.Policy == FailLocal}
	leave := func() {}
	if told.Local {
		var err error
		leave, err = g.places.enter(ctx, over, a.Name, o)
		if err == errAnswers {
			return nil, err
		}
		if err != nil {
			told.Admitted = false
			a.Failed(told)
			return nil, fmt.Errorf("%w; without it: %w", failure, err)
		}
	}
	a.Failed(told)
	return free{leave}, nil
}

// free is what a request holds that runs without a permit.
type free struct{ leave func() }

func (free) Context(parent context.Context) context.Context { return parent }

func (free) Err() error { return nil }

func (f free) Release() error {
	f.leave()
	return nil
}

// Overloaded says that what the request held its permit for went badly, for a limit that
// adapts: see sema.Permit. A permit that has no such method says nothing.
func Overloaded(p Permit) {
	if p, ok := p.(interface{ Overloaded() }); ok {
		p.Overloaded()
	}
}

// Release gives back what a request held, once. It does not wait for an engine that
// is slow or away: then the release goes on in the background, and what fails there
// ends with the lease.
func Release(p Permit) {
	released := make(chan struct{})
	go func() {
		_ = p.Release()
		close(released)
	}()
	late := time.NewTimer(releasePatience)
	defer late.Stop()
	select {
	case <-released:
	case <-late.C:
	}
}
