package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/internal/watchdog"
)

// NoWait is for Options.Wait: a request that finds nothing free is refused at once.
const NoWait = time.Duration(-1)

// releasePatience is how long Release waits for the engine.
const releasePatience = 250 * time.Millisecond

// Options is what requests are admitted under.
type Options struct {
	Wait   time.Duration // in the queue, or for a place; 0: as long as the context lasts; or NoWait. The first answer of the engine is awaited for longer
	Outage Policy        // what happens when the engine does not answer

	// Told is told when an outage begins and when it is over, unless Outage is Closed. It must not block.
	// Default: slog is, with a WARN and an INFO.
	Told func(Outage)
}

// Check returns nil if Enter can admit requests under the options, and otherwise the
// *sema.ArgumentError to refuse them with. pkg is the package that it names for a bad Wait.
func (o Options) Check(pkg string) error {
	if o.Wait < 0 && o.Wait != NoWait {
		return &sema.ArgumentError{Package: pkg, What: "Wait", Value: o.Wait, Want: "0 for the default, NoWait, or more than 0"}
	}
	return o.Outage.check()
}

// Permit lets a request run: a *sema.Permit, several of them as one, or a place of the policy while
// the engine is away.
type Permit interface {
	Context(parent context.Context) context.Context // ends with parent, and when the permit is lost
	Err() error                                     // why the permit ended; nil while it is valid
	Release() error
}

// Request is how one request asks for its permit.
type Request struct {
	// Name is the key of the request, for the places of Local.
	Name string

	// Acquire waits for the permit, until ctx ends. On an error nothing is held. The options are for
	// the semaphore that it asks: how long the engine may say nothing, and how long the request
	// waits. With Open and Local it is called in the background as well, with the values of
	// the request's context, to learn whether an engine that was away is back.
	Acquire func(ctx context.Context, options ...sema.AcquireOption) (Permit, error)

	// Failed is told that the engine did not answer for the request: what it said, to this request or
	// to the last that asked it, and whether the request runs without a permit.
	Failed func(err error, admitted bool)
}

// acquire asks for a permit, until ctx ends, and waits in the queue until within ends. The engine may be
// silent for so long; 0: as long as it is for others.
func (r Request) acquire(ctx, within context.Context, o Options, answerWithin time.Duration) (p Permit, err error) {
	options := []sema.AcquireOption{sema.AnswerWithin(answerWithin)}
	if o.Wait > 0 {
		end, _ := within.Deadline()
		p, err = waitUntil(ctx, end, cmp.Or(answerWithin, 3*time.Second), r.Acquire, options...)
	} else {
		if o.Wait == NoWait {
			options = append(options, sema.WaitAtMost(0))
		}
		p, err = r.Acquire(ctx, options...)
	}
	if err == nil && p == nil {
		err = errNoPermit
	}
	if err != nil { // p may be a nil of a type
		return nil, err
	}
	return p, nil
}

// waitUntil asks for a permit and waits in the queue until end. The engine's first answer is awaited for longer, for answer:
// the way to it refuses nobody. The error of a wait in vain has the deadline in it.
func waitUntil(
	ctx context.Context, end time.Time, answer time.Duration,
	acquire func(context.Context, ...sema.AcquireOption) (Permit, error), options ...sema.AcquireOption,
) (Permit, error) {
	most := time.Until(end)
	ctx, cancel := watchdog.Within(ctx, max(most, answer))
	defer cancel()
	p, err := acquire(ctx, append(options, sema.WaitAtMost(most))...)
	if most > 0 && errors.Is(err, sema.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) && !time.Now().Before(end) {
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return p, err
}

var errNoPermit = errors.New("the limiter gave neither a permit nor an error")

// ByKey takes permits by key. In s all names are the key, as for sema.For. If s is nil, the first name is
// one of the Group g, and the others are the key within its semaphore.
// As in sema.For, empty names at the end are left out.
func ByKey(s *sema.Semaphore, g *each.Group) func(ctx context.Context, key []string, options ...sema.AcquireOption) (Permit, error) {
	if s != nil {
		return func(ctx context.Context, key []string, options ...sema.AcquireOption) (Permit, error) {
			return s.Acquire(ctx, append(options, sema.For(key...))...)
		}
	}
	return func(ctx context.Context, key []string, options ...sema.AcquireOption) (Permit, error) {
		if len(key) == 0 {
			key = []string{""} // which is refused
		}
		return g.Acquire(ctx, key[0], append(options, sema.For(engine.Given(key)[1:]...))...)
	}
}

// Gate admits requests that share one engine, and what is known of it. The zero value is ready. It is
// safe for concurrent use.
type Gate struct {
	outages
	places places
}

// Enter waits until a request may run, and returns what it holds meanwhile: its permit, or what
// the policy gave it. Give it back with Release. The error is that of r.Acquire, or of its ctx. The
// error of a request that the policy refuses, or that finds no place, is a sema.ErrEngine. All
// requests of a Gate have the same options.
func (g *Gate) Enter(ctx context.Context, o Options, r Request) (Permit, error) {
	within := ctx
	if o.Wait > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, o.Wait)
		defer cancel()
	}
	for {
		p, err := g.ask(ctx, within, o, r)
		if err != errAnswers {
			return p, err
		}
		if within.Err() != nil { // the engine used up the wait
			within, o.Wait = ctx, NoWait
		}
	}
}

// ask is Enter. But it fails with errAnswers if the engine was away and then answers, at once or while
// the request waits for a place. all is the request's context, and ctx ends with its wait.
func (g *Gate) ask(all, ctx context.Context, o Options, r Request) (Permit, error) {
	if o.Outage.kind == closed {
		p, err := r.acquire(all, ctx, o, o.Outage.after)
		if errors.Is(err, sema.ErrEngine) && all.Err() == nil {
			r.Failed(err, false)
		}
		return p, err
	}
	if over, failure := g.failure(); failure != nil {
		return g.without(ctx, o, r, failure, over)
	}
	asked := probe{request: r, options: o, patience: cmp.Or(o.Outage.after, quickAnswer), ctx: context.WithoutCancel(all)}
	permit, err := r.acquire(all, ctx, o, asked.patience)
	if errors.Is(err, each.ErrTooMany) {
		// Perhaps the others ask an engine that is away: then that is known within twice the patience.
		if over, failure := g.await(ctx, 3*asked.patience); failure != nil {
			return g.without(ctx, o, r, failure, over)
		}
		permit, err = r.acquire(all, ctx, o, asked.patience)
	}
	switch {
	case err == nil:
		return g.with(permit, o, r), nil
	case all.Err() != nil:
		return nil, err
	case errors.Is(err, sema.ErrEngine):
		over, failure := g.doubt(all, asked)
		if failure == nil {
			return nil, errAnswers
		}
		return g.without(ctx, o, r, failure, over)
	case errors.Is(err, sema.ErrBusy):
		if over, failure := g.failure(); failure != nil { // it waited in a queue that does not move
			return g.without(ctx, o, r, failure, over)
		}
	}
	return nil, err
}

// with is what a request runs by that has a permit.
func (g *Gate) with(permit Permit, o Options, r Request) Permit {
	if o.Outage.kind != local {
		return permit
	}
	return placed{permit, g.places.take(r.Name, o)}
}

// without lets a request through by policy, unless the outage is over before.
func (g *Gate) without(ctx context.Context, o Options, r Request, failure error, over <-chan struct{}) (Permit, error) {
	leave := func() {}
	if o.Outage.kind == local {
		var err error
		leave, err = g.places.enter(ctx, over, r.Name, o)
		if err == errAnswers {
			return nil, err
		}
		if err != nil {
			r.Failed(failure, false)
			return nil, fmt.Errorf("%w; without it: %w", failure, err)
		}
	}
	r.Failed(failure, true)
	return placed{free{}, leave}, nil
}

// free is the permit of a request that runs without one.
type free struct{}

func (free) Context(parent context.Context) context.Context { return parent }

func (free) Err() error { return nil }

func (free) Release() error { return nil }

// placed is a permit, and the place of its request.
type placed struct {
	Permit
	leave func()
}

// Overloaded is for the permit.
func (p placed) Overloaded() { Overloaded(p.Permit) }

// RetryAfter is for the permit.
func (p placed) RetryAfter(d time.Duration) { RetryAfter(p.Permit, d) }

// Release leaves the place as well.
func (p placed) Release() error {
	p.leave()
	return p.Permit.Release()
}

// Overloaded says that what the request held its permit for went badly, for a limit that
// adapts: see sema.Permit. A permit that has no such method says nothing.
func Overloaded(p Permit) {
	if p, ok := p.(interface{ Overloaded() }); ok {
		p.Overloaded()
	}
}

// RetryAfter says that the vendor, or another service that the permit is for, wants no new call for d: see sema.Permit. 0 or less, and a permit
// that has no such method, change nothing.
func RetryAfter(p Permit, d time.Duration) {
	if p, ok := p.(interface{ RetryAfter(time.Duration) }); ok {
		p.RetryAfter(d)
	}
}

// Release gives back what a request held; call it once. It waits at most 250 ms for an engine that
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
