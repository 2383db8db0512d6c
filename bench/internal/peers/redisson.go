package peers

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/redisson"
)

// redissonGate is what both of sema's ports of Redisson's semaphores need.
type redissonGate struct {
	client *redisson.Client
	rdb    *redis.Client
}

func newRedisson(ctx context.Context, url string) (redissonGate, error) {
	rdb, err := connect(ctx, url)
	if err != nil {
		return redissonGate{}, err
	}
	client, err := redisson.New(rdb, nil)
	if err != nil {
		return redissonGate{}, errors.Join(err, rdb.Close())
	}
	return redissonGate{client, rdb}, nil
}

func (g redissonGate) Close() error { return errors.Join(g.client.Close(), g.rdb.Close()) }

// counterGate is RSemaphore.
type counterGate struct {
	redissonGate
	sem *redisson.Semaphore
}

func openCounter(ctx context.Context, s Setup) (Gate, error) {
	g, err := newRedisson(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	sem, err := g.client.Semaphore(s.Name)
	if err == nil {
		// Another driver of the same semaphore may have been first.
		_, err = sem.TrySetPermits(ctx, s.Limit, 0)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return counterGate{g, sem}, nil
}

func (g counterGate) Work(ctx context.Context, held func()) error {
	if err := g.sem.Acquire(ctx, 1); err != nil {
		return err
	}
	held()
	return g.sem.Release(ctx, 1)
}

// permitGate is RPermitExpirableSemaphore.
type permitGate struct {
	redissonGate
	sem   *redisson.ExpirableSemaphore
	lease time.Duration
}

func openPermit(ctx context.Context, s Setup) (Gate, error) {
	g, err := newRedisson(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	sem, err := g.client.ExpirableSemaphore(s.Name)
	if err == nil {
		_, err = sem.TrySetPermits(ctx, s.Limit)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return permitGate{g, sem, s.Lease}, nil
}

func (g permitGate) Work(ctx context.Context, held func()) error {
	id, err := g.sem.Acquire(ctx, g.lease)
	if err != nil {
		return err
	}
	held()
	return g.sem.Release(ctx, id)
}
