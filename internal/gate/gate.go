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
)

// NoWait is for Options.Wait.
const NoWait = time.Duration(-1)

// releasePatience is how long Release waits for the engine.
const releasePatience = 250 * time.Millisecond

// Options is what requests are admitted under.
type Options struct {
	Wait   time.Duration // for a permit or a place; 0: as long as the context lasts; NoWait: not at all
	Policy Policy
}

// Check says what nothing can be admitted under. An error about Wait is one of the package.
func (o Options) Check(pkg string) error {
	if o.Wait < 0 && o.Wait != NoWait {
		return &sema.ArgumentError{Package: pkg, What: "Wait", Value: o.Wait, Want: "0 for the default, NoWait, or more than 0"}
	}
	return o.Policy.check()
}

// Permit is what a request holds while it runs.
type Permit interface {
	Context(parent context.Context) context.Context
	Err() error
	Release() error
}

// Asking is how one request asks for its permit.
type Asking struct {
	Name    string // requests of one name share the places per key
	Acquire func(context.Context, ...sema.AcquireOption) (Permit, error)
	Failed  func(Failed) // is told that the engine did not answer for the request
}

// Failed is a request that the engine did not answer for.
type Failed struct {
	Err      error // what the engine said, to this request or to the last that asked it
	Admitted bool  // it runs without a permit
}

// acquire asks for a permit. The engine may be silent for so long; 0: as long as it
// is for others.
func (a Asking) acquire(ctx context.Context, o Options, answerWithin time.Duration) (Permit, error) {
	options := []sema.AcquireOption{sema.AnswerWithin(answerWithin)}
	if o.Wait == NoWait {
		options = append(options, sema.WaitAtMost(0))
	}
	switch p, err := a.Acquire(ctx, options...); {
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
	if o.Policy.kind == closed {
		p, err := a.acquire(ctx, o, o.Policy.after)
		if errors.Is(err, sema.ErrEngine) && all.Err() == nil {
			a.Failed(Failed{Err: err})
		}
		return p, err
	}
	if over, failure := g.failure(); failure != nil {
		return g.without(ctx, o, a, failure, over)
	}
	patience := cmp.Or(o.Policy.after, quickAnswer)
	permit, err := a.acquire(ctx, o, patience)
	if errors.Is(err, each.ErrTooMany) {
		// Perhaps the others ask an engine that is away: then that is known within patience.
		if over, failure := g.await(ctx, 2*patience); failure != nil {
			return g.without(ctx, o, a, failure, over)
		}
		permit, err = a.acquire(ctx, o, patience)
	}
	switch {
	case err == nil:
		return permit, nil
	case all.Err() != nil:
		return nil, err
	case errors.Is(err, sema.ErrEngine):
		over := g.begin(probe{a, o, patience, context.WithoutCancel(all)}, err)
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
	told := Failed{Err: failure, Admitted: true}
	leave := func() {}
	if o.Policy.kind == local {
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
