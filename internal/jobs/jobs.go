// Package jobs is what the limiters of job queues have in common: a job takes its
// permit before its work begins, and is postponed if there is none in time.
package jobs

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

// The defaults of Limit.
const (
	defaultWait = time.Second
	defaultBack = time.Second
)

// Limit is what the limiters' own Limit says.
type Limit struct {
	Semaphore  *sema.Semaphore // either this one
	Group      *each.Group     // or this one
	Wait, Back time.Duration
}

// Limiter has jobs run under permits.
type Limiter struct {
	name  string // of the package
	limit Limit
	rooms rooms
}

// Job is a job that was taken from its queue.
type Job struct {
	Key    []string // of the Semaphore; for a Group the name in it, and the key within that name's semaphore
	Weight int
	Stays  bool // it cannot be postponed, and waits as long as its context lets it
}

// Postponed is the error of a job that is to go back to its queue, and that has not
// failed: its work did not begin, or its permit was lost.
type Postponed struct {
	Package string
	After   time.Duration // until it is to be tried again
	Err     error
}

// Error says why.
func (p *Postponed) Error() string {
	return fmt.Sprintf("%s: goes back to its queue: %v", p.Package, p.Err)
}

// Unwrap is sema's own error.
func (p *Postponed) Unwrap() error { return p.Err }

// New makes a limiter for the package of that name. It fails with a
// *sema.ArgumentError on a limit that contradicts itself.
func New(name string, limit Limit) (*Limiter, error) {
	refused := func(what string, value any, want string) (*Limiter, error) {
		return nil, &sema.ArgumentError{Package: name, What: what, Value: value, Want: want}
	}
	switch {
	case (limit.Semaphore == nil) == (limit.Group == nil):
		return refused("limit", limit.Semaphore, "either Semaphore or Group")
	case limit.Wait < 0:
		return refused("wait", limit.Wait, "0 for a second, or more")
	case limit.Back < 0:
		return refused("time to go back for", limit.Back, "0 for a second, or more")
	}
	limit.Wait, limit.Back = cmp.Or(limit.Wait, defaultWait), cmp.Or(limit.Back, defaultBack)
	return &Limiter{name: name, limit: limit, rooms: newRooms()}, nil
}

// Do acquires a permit for a job and runs work under it. The error is a
// *Postponed if there was no permit or it was lost, sema's error if the job can
// never have a permit, and otherwise work's error.
func (l *Limiter) Do(ctx context.Context, j Job, work func(context.Context) error) error {
	p, err := l.acquire(ctx, j)
	if err != nil {
		return l.explain(err)
	}
	defer func() { _ = p.Release() }() // what fails here ends with the lease
	err = work(p.Context(ctx))
	lost := p.Err()
	switch {
	case lost == nil:
		return err
	case errors.Is(lost, sema.ErrHeldTooLong): // the work's own fault
		return class.Join(lost, err)
	}
	return l.postponed(class.Join(lost, err))
}

// Full reports whether so many jobs of a key wait here that a further one would go
// back at once, unless it finds a permit that is free.
func (l *Limiter) Full(key ...string) bool { return l.rooms.full(joined(key)) }

// joined is a key as rooms compares it. Whether it is valid its acquisition says.
func joined(key []string) string { return strings.Join(key, engine.KeySeparator) }

// acquire takes a job's permit. A job waits for it while there is room for those
// that wait; beyond that it takes what is free.
func (l *Limiter) acquire(ctx context.Context, j Job) (*sema.Permit, error) {
	if j.Stays {
		return l.take(ctx, j)
	}
	within, cancel := context.WithTimeout(ctx, l.patience(ctx))
	defer cancel()
	key := joined(j.Key)
	if !l.rooms.enter(key) {
		return l.take(within, j, sema.WaitAtMost(0))
	}
	p, err := l.take(within, j)
	l.rooms.leave(key, err == nil)
	return p, err
}

// patience is how long a job waits: no longer than half of the time that it has
// left, for it would fail when that is over.
func (l *Limiter) patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(l.limit.Wait, time.Until(end)/2)
	}
	return l.limit.Wait
}

// take is Acquire for a job, with more options.
func (l *Limiter) take(ctx context.Context, j Job, more ...sema.AcquireOption) (*sema.Permit, error) {
	options := append(more, sema.Weight(j.Weight))
	if s := l.limit.Semaphore; s != nil {
		return s.Acquire(ctx, append(options, sema.For(j.Key...))...)
	}
	if len(j.Key) == 0 {
		j.Key = []string{""}
	}
	return l.limit.Group.Acquire(ctx, j.Key[0], append(options, sema.For(j.Key[1:]...))...)
}

// explain is what a job ends with that has no permit: it is postponed if there may
// be one later.
func (l *Limiter) explain(err error) error {
	if errors.Is(err, sema.ErrBusy) || errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrClosed) || errors.Is(err, sema.ErrEngine) {
		return l.postponed(err)
	}
	return err
}

// postponed spreads jobs, so that those that go back together do not come together.
func (l *Limiter) postponed(err error) error {
	return &Postponed{Package: l.name, After: l.limit.Back/2 + rand.N(l.limit.Back/2+1), Err: err}
}
