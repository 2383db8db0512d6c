package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redislockGate is github.com/bsm/redislock, asking again every millisecond.
type redislockGate struct {
	rdb    *redis.Client
	locker *redislock.Client
	name   string
	lease  time.Duration
}

func openRedislock(ctx context.Context, s Setup) (Gate, error) {
	rdb, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	return redislockGate{rdb, redislock.New(rdb), s.Name, s.Lease}, nil
}

func (g redislockGate) Work(ctx context.Context, held func()) error {
	var lock *redislock.Lock
	for lock == nil {
		var err error
		lock, err = g.locker.Obtain(ctx, g.name, g.lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(bookPause)})
		// It gives up after a lease; who has to have the lock goes on.
		if err != nil && !errors.Is(err, redislock.ErrNotObtained) {
			return err
		}
		if lock == nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	held()
	return lock.Release(context.WithoutCancel(ctx))
}

func (g redislockGate) Close() error { return g.rdb.Close() }

// redsyncGate is github.com/go-redsync/redsync on one server.
type redsyncGate struct {
	rdb     *redis.Client
	sync    *redsync.Redsync
	name    string
	options []redsync.Option
}

func openRedsync(options ...redsync.Option) func(context.Context, Setup) (Gate, error) {
	return func(ctx context.Context, s Setup) (Gate, error) {
		rdb, err := connect(ctx, s.URL)
		if err != nil {
			return nil, err
		}
		all := append([]redsync.Option{redsync.WithExpiry(s.Lease)}, options...)
		return redsyncGate{rdb, redsync.New(goredis.NewPool(rdb)), s.Name, all}, nil
	}
}

func (g redsyncGate) Work(ctx context.Context, held func()) error {
	m := g.sync.NewMutex(g.name, g.options...)
	for {
		err := m.LockContext(ctx)
		if err == nil {
			break
		}
		// It gives up after so many tries; who has to have the lock goes on.
		var taken *redsync.ErrTaken
		if !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	held()
	ok, err := m.UnlockContext(context.WithoutCancel(ctx))
	if err == nil && !ok {
		err = fmt.Errorf("the lock was lost while it was held")
	}
	return err
}

func (g redsyncGate) Close() error { return g.rdb.Close() }
