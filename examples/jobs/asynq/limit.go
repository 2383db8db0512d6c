package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"sema"
)

// patience is how long a task waits for its permit, and occupies a worker that
// could do another kind of task.
const patience = 50 * time.Millisecond

// limit lets no more tasks run at once than the semaphore has permits, whatever
// the number of servers and workers. A task that finds none in time goes back to
// its queue.
func limit(sem *sema.Semaphore) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			wait, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			permit, err := sem.Acquire(wait)
			if err != nil {
				return err
			}
			defer func() { _ = permit.Release() }()
			return next.ProcessTask(permit.Context(ctx), task)
		})
	}
}

// config has asynq try such a task again soon, and not count that as a failure.
func config(workers int) asynq.Config {
	return asynq.Config{
		Concurrency: workers,
		IsFailure:   func(err error) bool { return !errors.Is(err, sema.ErrUnavailable) },
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			if errors.Is(err, sema.ErrUnavailable) {
				return rand.N(time.Second)
			}
			return asynq.DefaultRetryDelayFunc(n, err, task)
		},
		DelayedTaskCheckInterval: time.Second / 4,
		LogLevel:                 asynq.ErrorLevel,
	}
}
