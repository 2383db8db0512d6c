package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"sema"
)

// limits are what a service can take: so many requests at once, and so many in a
// period for each key.
type limits struct {
	atOnce   *sema.Semaphore
	rate     *redis_rate.Limiter
	limit    redis_rate.Limit
	patience time.Duration // how long a caller keeps its permit while the rate says "later"
}

// later is the error of a caller that is above its rate.
type later struct{ after time.Duration }

func (l *later) Error() string { return fmt.Sprintf("above the rate; try again in %v", l.after) }

// begin takes a permit, and then a token of the rate: the request has to be sent now,
// in the permit's context. It fails with *later, holding nothing, if the token would
// take longer than l.patience.
func (l limits) begin(ctx context.Context, key string) (*sema.Permit, error) {
	permit, err := l.atOnce.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.token(permit.Context(ctx), key); err != nil {
		return nil, errors.Join(err, permit.Release())
	}
	return permit, nil
}

// token takes a token of the rate, and waits for it with patience. The context ends
// when the permit is lost, and so does the wait.
func (l limits) token(ctx context.Context, key string) error {
	for {
		res, err := l.rate.Allow(ctx, key, l.limit)
		switch {
		case err != nil:
			return err
		case res.Allowed > 0:
			return nil
		case res.RetryAfter > l.patience:
			return &later{res.RetryAfter}
		}
		select {
		case <-time.After(res.RetryAfter):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
