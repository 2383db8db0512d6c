package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	xsemaphore "golang.org/x/sync/semaphore"

	"sema/internal/measure"
	"sema/redisson"
)

// xSync is golang.org/x/sync/semaphore.
func xSync(_ context.Context, _ *redis.Client, s measure.Setup) (measure.Gate, error) {
	sem := xsemaphore.NewWeighted(int64(s.Limit))
	return measure.Gate{Work: func(ctx context.Context, _ int, held func()) error {
		if err := sem.Acquire(ctx, 1); err != nil {
			return err
		}
		held()
		sem.Release(1)
		return nil
	}}, nil
}

// redisLock is github.com/bsm/redislock. It gives up after a lease, so the gate
// tries again until it has the lock.
func redisLock(_ context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
	locker := redislock.New(rdb)
	return polls(steady, func(ctx context.Context) (release, error) {
		l, err := locker.Obtain(ctx, s.Name, s.Lease(), &redislock.Options{RetryStrategy: redislock.LinearBackoff(bookPause)})
		switch {
		case errors.Is(err, redislock.ErrNotObtained):
			return nil, ctx.Err()
		case err != nil:
			return nil, err
		}
		return l.Release, nil
	})
}

var redsyncSteady = []redsync.Option{redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(math.MaxInt)}

// redSync is github.com/go-redsync/redsync on one server. It gives up after a
// number of tries, so the gate tries again until it has the lock.
func redSync(options ...redsync.Option) opener {
	return func(_ context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
		sync := redsync.New(goredis.NewPool(rdb))
		return waits(func(ctx context.Context) (release, error) {
			m := sync.NewMutex(s.Name, append([]redsync.Option{redsync.WithExpiry(s.Lease())}, options...)...)
			var taken *redsync.ErrTaken
			err := m.LockContext(ctx)
			for ctx.Err() == nil && (errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)) {
				err = m.LockContext(ctx)
			}
			return func(ctx context.Context) error { return kept(m.UnlockContext(ctx)) }, err
		})
	}
}

// rueidisLock is github.com/redis/rueidis/rueidislock on one server.
func rueidisLock(_ context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{rdb.Options().Addr}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: s.Lease(),
	})
	if err != nil {
		return measure.Gate{}, err
	}
	g, err := waits(func(ctx context.Context) (release, error) {
		for {
			// It may miss that a lock was released, and would then wait for ever.
			attempt, giveUp := context.WithCancel(ctx)
			timer := time.AfterFunc(s.Lease(), giveUp)
			_, cancel, err := locker.WithContext(attempt, s.Name)
			if timer.Stop() || ctx.Err() != nil {
				return func(context.Context) error { cancel(); giveUp(); return nil }, err
			}
			if cancel != nil {
				cancel()
			}
		}
	})
	g.Close = func() error { locker.Close(); return nil }
	return g, err
}

// redissonSemaphore is RSemaphore.
func redissonSemaphore(ctx context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
	return port(rdb, func(client *redisson.Client) (func(context.Context) (release, error), error) {
		sem, err := client.Semaphore(s.Name)
		if err == nil { // false, and no harm, where another process was first
			_, err = sem.TrySetPermits(ctx, s.Limit, 0)
		}
		return func(ctx context.Context) (release, error) {
			return func(ctx context.Context) error { return sem.Release(ctx, 1) }, sem.Acquire(ctx, 1)
		}, err
	})
}

// redissonPermit is RPermitExpirableSemaphore.
func redissonPermit(ctx context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
	return port(rdb, func(client *redisson.Client) (func(context.Context) (release, error), error) {
		sem, err := client.ExpirableSemaphore(s.Name)
		if err == nil {
			_, err = sem.TrySetPermits(ctx, s.Limit)
		}
		return func(ctx context.Context) (release, error) {
			id, err := sem.Acquire(ctx, s.Lease())
			return func(ctx context.Context) error { return sem.Release(ctx, id) }, err
		}, err
	})
}

// port opens one of our ports of Redisson's semaphores.
func port(rdb *redis.Client, open func(*redisson.Client) (func(context.Context) (release, error), error)) (measure.Gate, error) {
	client, err := redisson.New(rdb, nil)
	if err != nil {
		return measure.Gate{}, err
	}
	acquire, err := open(client)
	g, _ := waits(acquire)
	g.Close = client.Close
	return g, err
}
