package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/internal/class"
)

// The defaults of JobOptions.
const (
	defaultWait = time.Second
	defaultBack = time.Second
)

// moment is which part of JobOptions.Wait a job waits behind another one of its key.
const moment = 20

// JobOptions says under which permits jobs run: of a Semaphore or of a Group, see ByKey.
type JobOptions struct {
	Semaphore *sema.Semaphore
	Group     *each.Group
	Wait      time.Duration // how long a job waits in the queue, at most half of the time that its context leaves it; 0: a second
	Back      time.Duration // after how long at most a job without a permit is tried again; 0: a second
}

// Jobs has jobs run under permits. A job takes its permit after it was taken from its queue and
// before its work begins, and is postponed if there is none in time. It is safe for concurrent use.
type Jobs struct {
	pkg     string
	options JobOptions
	acquire func(ctx context.Context, key []string, options ...sema.AcquireOption) (Permit, error)
	rooms   rooms
}

// Job is a job that was taken from its queue.
type Job struct {
	Key    []string // see ByKey
	Weight int      // of its permit, 1 … the limit
	Stays  bool     // it cannot be postponed, and waits as long as its context lets it
}

// Postponed is the error of a job that is to go back to its queue, and that has not
// failed: its work did not begin, or its permit was lost.
type Postponed struct {
	Package string        // as given to NewJobs
	After   time.Duration // until it is to be tried again
	Err     error         // why
}

// Error says why.
func (p *Postponed) Error() string {
	return fmt.Sprintf("%s: goes back to its queue: %v", p.Package, p.Err)
}

// Unwrap is sema's own error.
func (p *Postponed) Unwrap() error { return p.Err }

// NewJobs makes Jobs for the package pkg, which its errors name. It fails with a
// *sema.ArgumentError unless there is either a Semaphore or a Group, and on a negative time.
func NewJobs(pkg string, o JobOptions) (*Jobs, error) {
	refused := func(what string, value any, want string) (*Jobs, error) {
		return nil, &sema.ArgumentError{Package: pkg, What: what, Value: value, Want: want}
	}
	switch {
	case (o.Semaphore == nil) == (o.Group == nil):
		return refused("limit", o.Semaphore, "either Semaphore or Group")
	case o.Wait < 0:
		return refused("wait", o.Wait, "0 for a second, or more")
	case o.Back < 0:
		return refused("time to go back for", o.Back, "0 for a second, or more")
	}
	o.Wait, o.Back = cmp.Or(o.Wait, defaultWait), cmp.Or(o.Back, defaultBack)
	return &Jobs{pkg: pkg, options: o, acquire: ByKey(o.Semaphore, o.Group), rooms: newRooms()}, nil
}

// Do acquires a permit for a job and runs work under it, with a context that ends when the permit is
// lost. The error is a *Postponed if there was no permit or it was lost, sema's error if the job can
// never have a permit or held it for too long, and otherwise work's error.
func (l *Jobs) Do(ctx context.Context, j Job, work func(context.Context) error) error {
	p, err := l.enter(ctx, j)
	if err != nil {
		return l.explain(err)
	}
	defer func() { _ = p.Release() }() // what fails here ends with the lease
	err = work(p.Context(ctx))
	lost := p.Err()
	switch {
	case lost == nil, errors.Is(lost, sema.ErrReleased): // work itself gave the permit back, and is done
		return err
	case errors.Is(lost, sema.ErrHeldTooLong): // the work's own fault
		return class.Join(lost, err)
	}
	if err != nil { // only its text: the job goes back whatever work returned, and a queue may know work's errors
		lost = fmt.Errorf("%w; %v", lost, err)
	}
	return l.postponed(lost)
}

// Full reports whether so many jobs of a key wait here that a further one would go
// back at once, unless it finds a permit that is free.
func (l *Jobs) Full(key ...string) bool { return l.rooms.full(joined(key)) }

// joined is a key as rooms compares it. Whether it is valid its acquisition says.
func joined(key []string) string { return strings.Join(engine.Given(key), engine.KeySeparator) }

// enter takes a job's permit. A job waits for it while there is room for those
// that wait; beyond that it takes what is free. Behind another job of its key it waits for
// a moment only, if jobs of other keys could run in its worker meanwhile.
func (l *Jobs) enter(ctx context.Context, j Job) (Permit, error) {
	weight := sema.Weight(j.Weight)
	if j.Stays {
		return l.acquire(ctx, j.Key, weight)
	}
	began, answer := time.Now(), half(ctx, max(l.options.Wait, defaultWait))
	wait := func(within context.Context, most time.Duration) (Permit, error) {
		return waitUntil(within, began.Add(half(ctx, most)), answer, func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
			return l.acquire(ctx, j.Key, append(options, weight)...)
		})
	}
	key := joined(j.Key)
	waits, first := l.rooms.enter(key)
	if !waits {
		within, cancel := context.WithTimeout(ctx, half(ctx, l.options.Wait)) // an engine that is away keeps no worker for longer
		defer cancel()
		return l.acquire(within, j.Key, weight, sema.WaitAtMost(0))
	}
	granted := false
	defer func() { l.rooms.leave(key, granted) }() // also if an Observer panics
	within := ctx
	if !first {
		p, err := wait(ctx, l.options.Wait/moment)
		granted = err == nil
		var cancel context.CancelFunc
		within, cancel = context.WithDeadline(ctx, began.Add(answer)) // an engine that is away since keeps it for no longer
		defer cancel()
		if granted || !errors.Is(err, sema.ErrBusy) || l.othersCouldRun(within, j) || within.Err() != nil {
			return p, err
		}
	}
	p, err := wait(within, l.options.Wait)
	granted = err == nil
	return p, err
}

// othersCouldRun reports whether a job of another key would find a permit, though one of this key did not:
// always in a Group, where each name has its own limit.
func (l *Jobs) othersCouldRun(ctx context.Context, j Job) bool {
	if l.options.Group != nil {
		return true
	}
	if len(j.Key) == 0 {
		return false
	}
	p, err := l.options.Semaphore.TryAcquire(ctx, sema.AnswerWithin(defaultWait))
	if err == nil {
		_ = p.Release() // what fails here ends with the lease
	}
	return err == nil
}

// half is d, or half of the time that a job has left, for it would fail when that is over.
func half(ctx context.Context, d time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(d, time.Until(end)/2)
	}
	return d
}

// explain is what a job ends with that has no permit: it is postponed if there may
// be one later.
func (l *Jobs) explain(err error) error {
	if errors.Is(err, sema.ErrBusy) || errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrClosed) || errors.Is(err, sema.ErrEngine) {
		return l.postponed(err)
	}
	return err
}

// postponed spreads jobs, so that those that go back together do not come together.
func (l *Jobs) postponed(err error) error {
	return &Postponed{Package: l.pkg, After: l.options.Back/2 + rand.N(l.options.Back/2+1), Err: err}
}
