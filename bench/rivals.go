package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	xsemaphore "golang.org/x/sync/semaphore"
)

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// The members of a sorted set are holders, and their scores say when their leases end.
var (
	take = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	giveBack = redis.NewScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)
)

func byHand(_ context.Context, j job) (pair, func() error, error) {
	rdb := client(j.Store)
	keys := []string{j.Name}
	return func(ctx context.Context, _ int, held func()) error {
		id := rand.Text()
		for try := 0; ; try++ {
			got, err := take.Run(ctx, rdb, keys, j.Limit, lease.Milliseconds(), id).Int()
			if err != nil {
				return err
			}
			if got == 1 {
				break
			}
			most := time.Millisecond << min(try, 4)
			if err := pause(ctx, most/2+mathrand.N(most/2)); err != nil {
				return err
			}
		}
		held()
		return giveBack.Run(ctx, rdb, keys, id).Err()
	}, rdb.Close, nil
}

// redisLock gives up after a lease, so its callers try again then.
func redisLock(_ context.Context, j job) (pair, func() error, error) {
	rdb := client(j.Store)
	locker := redislock.New(rdb)
	return func(ctx context.Context, _ int, held func()) error {
		l, err := locker.Obtain(ctx, j.Name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		for errors.Is(err, redislock.ErrNotObtained) && ctx.Err() == nil {
			l, err = locker.Obtain(ctx, j.Name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
		}
		if err != nil {
			return err
		}
		held()
		return l.Release(ctx)
	}, rdb.Close, nil
}

func redSync(_ context.Context, j job) (pair, func() error, error) {
	rdb := client(j.Store)
	sync := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, _ int, held func()) error {
		m := sync.NewMutex(j.Name, redsync.WithExpiry(lease), redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(math.MaxInt))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		held()
		if ok, err := m.UnlockContext(ctx); err != nil || !ok {
			return fmt.Errorf("redsync has lost its lock: %w", err)
		}
		return nil
	}, rdb.Close, nil
}

// rueidisLock may miss that a lock was released, and would then wait for ever: so its callers try again after a lease.
func rueidisLock(_ context.Context, j job) (pair, func() error, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{j.Store}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: lease,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, _ int, held func()) error {
		for {
			attempt, giveUp := context.WithCancel(ctx)
			late := time.AfterFunc(lease, giveUp)
			_, release, err := locker.WithContext(attempt, j.Name)
			inTime := late.Stop()
			if inTime && err == nil {
				held()
			}
			if release != nil {
				release()
			}
			giveUp()
			if inTime || ctx.Err() != nil {
				return err
			}
		}
	}, func() error { locker.Close(); return nil }, nil
}

func noop(_ context.Context, j job) (pair, func() error, error) {
	rdb := client(j.Store)
	nothing, keys := redis.NewScript("return 1"), []string{j.Name}
	return func(ctx context.Context, _ int, held func()) error {
		if err := nothing.Run(ctx, rdb, keys).Err(); err != nil {
			return err
		}
		held()
		return nothing.Run(ctx, rdb, keys).Err()
	}, rdb.Close, nil
}

// ownPool is a pool with a connection for each caller.
func ownPool(ctx context.Context, j job) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(j.Store)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(j.Callers)
	return pgxpool.NewWithConfig(ctx, config)
}

func slots(ctx context.Context, j job) (pair, func() error, error) {
	pool, err := ownPool(ctx, j)
	if err != nil {
		return nil, nil, err
	}
	end := func() error { pool.Close(); return nil }
	if _, err := pool.Exec(ctx, `INSERT INTO slots SELECT $1, g, '', '-infinity' FROM generate_series(1, $2::int) g ON CONFLICT DO NOTHING`, j.Name, j.Limit); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return func(ctx context.Context, _ int, held func()) error {
		owner, slot := rand.Text(), 0
		for slot == 0 {
			err := pool.QueryRow(ctx, `UPDATE slots SET owner = $2, until = now() + '10s' WHERE (name, slot) = (
				SELECT name, slot FROM slots WHERE name = $1 AND until < now() LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING slot`, j.Name, owner).Scan(&slot)
			if errors.Is(err, pgx.ErrNoRows) {
				err = pause(ctx, 10*time.Millisecond)
			}
			if err != nil {
				return err
			}
		}
		held()
		_, err := pool.Exec(ctx, `UPDATE slots SET owner = '', until = '-infinity' WHERE name = $1 AND slot = $2 AND owner = $3`, j.Name, slot, owner)
		return err
	}, end, nil
}

func commits(ctx context.Context, j job) (pair, func() error, error) {
	pool, err := ownPool(ctx, j)
	if err != nil {
		return nil, nil, err
	}
	const commit = "SELECT pg_logical_emit_message(true, 'sema', '')"
	return func(ctx context.Context, _ int, held func()) error {
		if _, err := pool.Exec(ctx, commit); err != nil {
			return err
		}
		held()
		_, err := pool.Exec(ctx, commit)
		return err
	}, func() error { pool.Close(); return nil }, nil
}

func xSync(_ context.Context, j job) (pair, func() error, error) {
	sem := xsemaphore.NewWeighted(int64(j.Limit))
	return func(ctx context.Context, _ int, held func()) error {
		if err := sem.Acquire(ctx, 1); err != nil {
			return err
		}
		held()
		sem.Release(1)
		return nil
	}, func() error { return nil }, nil
}

func channel(_ context.Context, j job) (pair, func() error, error) {
	c := make(chan struct{}, j.Limit)
	return func(ctx context.Context, _ int, held func()) error {
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		held()
		<-c
		return nil
	}, func() error { return nil }, nil
}
