package classic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// retryEvery is how long the book's lock sleeps between two tries.
const retryEvery = time.Millisecond

// Lock is the lock with timeouts of Redis in Action, section 6.2.5, and with
// Options.Lua its form with scripts from chapter 11: a semaphore of one. Its
// key holds the owner's id and expires with the lease.
//
// Acquire tries once a millisecond until Options.Wait is over. There is no
// queue: the caller that tries first after a release gets the lock.
//
// What is wrong with it:
//   - A holder that outlives its lease does not notice, and another one gets
//     the lock beside it. Release then reports false. There is no refresh.
//   - Without Lua, SETNX and EXPIRE are two requests. A process that dies
//     between them leaves a lock that never expires, until the next caller
//     finds it and sets its own lease. The form with scripts has no such gap,
//     and it does not set a lease on a lock that another program left without.
//   - Waiting costs one or two requests per millisecond and caller.
//
// No clock is compared: the lease is counted by Redis.
type Lock struct {
	*core
	key   string
	wait  time.Duration
	ttl   time.Duration // the lease in whole seconds
	lua   bool
	timer timer
}

// timer is how a Lock waits. Tests replace it by one with virtual time.
type timer struct {
	now   func() time.Time
	pause func(context.Context, time.Duration) error
}

// NewLock returns the lock name. Options in use: Lease, Wait, Lua.
func NewLock(rdb redis.UniversalClient, name string, o Options) (*Lock, error) {
	c, err := newCore(rdb, name, 1, o)
	if err != nil {
		return nil, err
	}
	wait, err := duration("wait", o.Wait, defaultLockWait, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	l := &Lock{
		core: c, key: lockKey(name), wait: wait, ttl: (c.lease + time.Second - 1).Truncate(time.Second), lua: o.Lua,
		timer: timer{now: time.Now, pause: pause},
	}
	c.remove = l.unlock
	return l, nil
}

// Acquire tries until it has the lock or Options.Wait is over, at least once;
// see [Semaphore]. When ctx ends first, that is an error.
func (l *Lock) Acquire(ctx context.Context) (string, bool, error) {
	if err := l.begin(ctx, "acquire"); err != nil {
		return "", false, err
	}
	try := l.tryPlain
	if l.lua {
		try = l.tryLua
	}
	id := newID()
	end := l.timer.now().Add(l.wait)
	for {
		taken, err := try(ctx, id)
		switch {
		case err != nil:
			return l.undo(ctx, id, err)
		case taken:
			return id, true, nil
		case !l.timer.now().Before(end):
			return "", false, nil
		}
		if err := l.timer.pause(ctx, retryEvery); err != nil {
			return "", false, fmt.Errorf("classic: acquire %q: %w", l.name, err)
		}
	}
}

func (l *Lock) tryLua(ctx context.Context, id string) (bool, error) {
	return lockAcquire.Run(ctx, l.rdb, []string{l.key}, int64(l.ttl/time.Second), id).Bool()
}

func (l *Lock) tryPlain(ctx context.Context, id string) (bool, error) {
	taken, err := l.rdb.SetNX(ctx, l.key, id, 0).Result()
	if err != nil {
		return false, err
	}
	if !taken {
		var holder *redis.StringCmd
		var ttl *redis.DurationCmd
		_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			holder, ttl = p.Get(ctx, l.key), p.TTL(ctx, l.key)
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) { // Nil: the lock was just released
			return false, err
		}
		// go-redis sends SETNX again when its answer got lost. Then the first
		// copy may have taken the lock for this same call.
		taken = holder.Val() == id
		if !taken && ttl.Val() != -1 { // -1: there is no TTL
			return false, nil
		}
	}
	return taken, l.rdb.Expire(ctx, l.key, l.ttl).Err()
}

func (l *Lock) unlock(ctx context.Context, id string) (bool, error) {
	if l.lua {
		return lockRelease.Run(ctx, l.rdb, []string{l.key}, id).Bool()
	}
	return l.deleteIf(ctx, l.key, id)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
