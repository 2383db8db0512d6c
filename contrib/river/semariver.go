// Package semariver limits how many jobs of River are worked on at once, by all
// clients together: so many of each kind, and so many in all.
//
//	sem, err := sema.New(engine, "jobs", 20, &sema.Options{Caps: sema.Caps{5}})
//	limiter, err := semariver.New(semariver.Limit{Semaphore: sem})
//
//	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(pool)), &river.Config{
//		Middleware:          []rivertype.Middleware{limiter},
//		FetchOnlyKnownKinds: true,
//		…
//	})
//
// The middleware keeps the limit: a job takes its permit after River has taken it
// from its queue, and before its worker's Work is called. A job that gets no permit
// in time (Limit.Wait) is snoozed. If a job loses its permit, its context ends with
// cause sema.ErrLost, and it is snoozed, too, whatever Work returns. Neither is a
// failed attempt.
//
// With the driver, River takes no job of a kind while jobs of that kind wait.
// Without it such jobs are taken and snoozed.
//
// A job that can never have a permit fails its attempt: its key is not valid (see sema.For and
// each.Group), its weight is below 1 or above the limit, or the limit is one that sema.Options say
// to refuse. So does a job that was held longer than sema.Options.MaxHold.
package semariver

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/admit"
	"sema/each"
)

// Limit says which jobs share which semaphore. The zero value of each field is its
// default; one of Semaphore and Group has to be there.
type Limit struct {
	// Semaphore limits all jobs together, and shares them among their keys. With
	// sema.Options.Caps it limits those of each key as well.
	Semaphore *sema.Semaphore

	// Group limits the jobs of each name by themselves. The name is the first of the key; further names
	// of the key are a key within that limit.
	Group *each.Group

	// Key is a job's key, as the names that sema.For takes: its tenant, its queue, its organisation and
	// user. nil is no key. With a Key, Driver takes jobs of all kinds all the time. Default: its kind.
	Key func(ctx context.Context, job *rivertype.JobRow) []string

	// Weight is how much of the limit a job takes. Default: 1.
	Weight func(ctx context.Context, job *rivertype.JobRow) int

	// Wait is how long a job waits for its permit, in a worker and in its place in
	// the semaphore's queue; at most half of the time that its own timeout leaves
	// it. After one has waited in vain, only one of its key at a time waits in this
	// process, until permits come again. Behind another one of its key it waits for a twentieth
	// of that, if permits are free that its key may not have. Default: a second.
	Wait time.Duration

	// Back is how long a job that found none is snoozed at most; at least half of
	// it. Default: a second.
	Back time.Duration
}

// Limiter is a rivertype.WorkerMiddleware.
type Limiter struct {
	river.MiddlewareDefaults
	limit Limit
	jobs  *admit.Jobs
}

var _ rivertype.WorkerMiddleware = (*Limiter)(nil)

// New makes a limiter. It fails with a *sema.ArgumentError on a limit that
// contradicts itself. The semaphores stay the caller's, to be closed after the
// client has stopped.
func New(limit Limit) (*Limiter, error) {
	j, err := admit.NewJobs("semariver", admit.JobOptions{Semaphore: limit.Semaphore, Group: limit.Group, Wait: limit.Wait, Back: limit.Back})
	if err != nil {
		return nil, err
	}
	if limit.Weight == nil {
		limit.Weight = func(context.Context, *rivertype.JobRow) int { return 1 }
	}
	return &Limiter{limit: limit, jobs: j}, nil
}

// Work implements rivertype.WorkerMiddleware.
func (l *Limiter) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	key := []string{job.Kind}
	if f := l.limit.Key; f != nil {
		key = f(ctx, job)
	}
	err := l.jobs.Do(ctx, admit.Job{Key: key, Weight: l.limit.Weight(ctx, job)}, work)
	var p *admit.Postponed
	if errors.As(err, &p) {
		return river.JobSnooze(p.After)
	}
	return err
}
