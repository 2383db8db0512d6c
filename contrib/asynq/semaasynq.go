// Package semaasynq limits how many tasks of asynq are worked on at once, by all
// servers together: so many of each type, and so many in all.
//
//	sem, err := sema.New(engine, "tasks", 20, &sema.Options{Caps: sema.Caps{5}})
//	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem})
//
//	mux := asynq.NewServeMux()
//	mux.Use(limiter.Middleware)
//	server := limiter.NewServer(rdb, asynq.Config{Concurrency: 10})
//	err = server.Run(mux)
//
// A task takes its permit after asynq has taken it from its queue, and before its
// handler is called. One that finds none in time (Limit.Wait) goes back to its queue,
// and so does one that loses its permit, whatever its handler returned: its context
// ends, with cause sema.ErrLost. Neither counts as a failed try.
//
// A queue whose tasks are all of one type can be left alone while tasks of that
// type wait (Limit.Queues): then the check comes before a task is taken.
//
// A task that can never have a permit fails its try: its key is not valid (see sema.For and
// each.Group), its weight is below 1 or above the limit, or the limit is one that sema.Options say
// to refuse. So does a task that was held longer than sema.Options.MaxHold.
package semaasynq

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/admit"
	"sema/each"
)

// Limit says which tasks share which semaphore. The zero value of each field is
// its default; one of Semaphore and Group has to be there.
type Limit struct {
	// Semaphore limits all tasks together, and shares them among their keys. With
	// sema.Options.Caps it limits those of each key as well.
	Semaphore *sema.Semaphore

	// Group limits the tasks of each name by themselves. The name is the first of the key; further names
	// of the key are a key within that limit.
	Group *each.Group

	// Key is a task's key, as the names that sema.For takes: its tenant, its queue
	// (asynq.GetQueueName), its organisation and user. nil is no key. Default: its type.
	Key func(ctx context.Context, task *asynq.Task) []string

	// Weight is how much of the limit a task takes. Default: 1.
	Weight func(ctx context.Context, task *asynq.Task) int

	// Wait is how long a task waits for its permit, in a worker and in its place in
	// the semaphore's queue; at most half of the time that its own deadline leaves
	// it. After one has waited in vain, only one of its key at a time waits in this
	// process, until permits come again. Behind another one of its key it waits for a twentieth
	// of that, if permits are free that its key may not have. Default: a second.
	Wait time.Duration

	// Back is how long a task that found none stays away at most; at least half of
	// it. asynq adds its DelayedTaskCheckInterval. Default: a second.
	Back time.Duration

	// Queues names the key of each queue that has tasks of one key only. This server
	// takes no task from such a queue while as many as may wait here do. Default: none.
	Queues map[string][]string
}

// Limiter has tasks run under permits.
type Limiter struct {
	limit Limit
	jobs  *admit.Jobs
}

// New makes a limiter. It fails with a *sema.ArgumentError on a limit that
// contradicts itself. The semaphores stay the caller's, to be closed after the
// server has shut down.
func New(limit Limit) (*Limiter, error) {
	j, err := admit.NewJobs("semaasynq", admit.JobOptions{Semaphore: limit.Semaphore, Group: limit.Group, Wait: limit.Wait, Back: limit.Back})
	if err != nil {
		return nil, err
	}
	if limit.Key == nil {
		limit.Key = func(_ context.Context, task *asynq.Task) []string { return []string{task.Type()} }
	}
	if limit.Weight == nil {
		limit.Weight = func(context.Context, *asynq.Task) int { return 1 }
	}
	return &Limiter{limit, j}, nil
}

// Middleware is an asynq.MiddlewareFunc, for the server that NewServer makes.
func (l *Limiter) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		j := admit.Job{Key: l.limit.Key(ctx, task), Weight: l.limit.Weight(ctx, task), Stays: lastTry(ctx)}
		for {
			err := l.jobs.Do(ctx, j, func(ctx context.Context) error { return next.ProcessTask(ctx, task) })
			var p *admit.Postponed
			if !j.Stays || !errors.As(err, &p) || !pause(ctx, p.After) {
				return err
			}
		}
	})
}

// lastTry reports whether asynq would archive the task instead of trying it again.
// It does so whatever the error, and whether or not that is a failure.
func lastTry(ctx context.Context) bool {
	retried, ok1 := asynq.GetRetryCount(ctx)
	most, ok2 := asynq.GetMaxRetry(ctx)
	return ok1 && ok2 && retried >= most
}

// pause reports whether d has passed before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Postponed reports whether a task's error says that it went back to its queue
// without having failed. An asynq.ErrorHandler is told of those as well.
func Postponed(err error) bool {
	var p *admit.Postponed
	return errors.As(err, &p)
}

// NewServer is asynq.NewServerFromRedisClient with the limiter's additions to
// config. A task that goes back does not count as failed, and comes again after
// Limit.Back: the default of config.DelayedTaskCheckInterval is a quarter of that. The server takes no tasks from a queue of Limit.Queues while its
// tasks wait. For other errors config holds unchanged. The caller closes rdb
// after the server has shut down.
func (l *Limiter) NewServer(rdb redis.UniversalClient, config asynq.Config) *asynq.Server {
	failure, delay := config.IsFailure, config.RetryDelayFunc
	if failure == nil {
		failure = func(err error) bool { return err != nil }
	}
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	config.IsFailure = func(err error) bool { return !Postponed(err) && failure(err) }
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		var p *admit.Postponed
		if errors.As(err, &p) {
			return p.After
		}
		return delay(n, err, task)
	}
	config.DelayedTaskCheckInterval = cmp.Or(config.DelayedTaskCheckInterval, cmp.Or(l.limit.Back, time.Second)/4)
	return asynq.NewServerFromRedisClient(&fetcher{rdb, l.full}, config)
}

// full reports whether a queue is to be left alone.
func (l *Limiter) full(queue string) bool {
	key, ok := l.limit.Queues[queue]
	return ok && l.jobs.Full(key...)
}
