package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sema"
)

// patience is how long a job waits for its permit, and occupies a worker that
// could do another kind of job.
const patience = 50 * time.Millisecond

// limit lets no more jobs run at once than the semaphore has permits, whatever the
// number of clients and workers. A job that finds none in time is snoozed, which
// is no failed attempt.
type limit struct {
	river.MiddlewareDefaults
	sem *sema.Semaphore
}

var _ rivertype.WorkerMiddleware = (*limit)(nil)

// Work implements rivertype.WorkerMiddleware.
func (l *limit) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	permit, err := l.sem.Acquire(wait)
	if errors.Is(err, sema.ErrUnavailable) && ctx.Err() == nil {
		return river.JobSnooze(rand.N(time.Second))
	}
	if err != nil {
		return err
	}
	defer func() { _ = permit.Release() }()
	return work(permit.Context(ctx))
}
