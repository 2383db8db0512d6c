package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
)

// bookPause is how long the book's lock sleeps between two tries. Its
// semaphores only try; a caller who has to wait does the same with them.
const bookPause = time.Millisecond

// classicGate waits for one of the classic semaphores by asking again.
type classicGate struct {
	classic.Semaphore
	rdb   *redis.Client
	pause func(try int) time.Duration
}

// openClassic makes the opener of one of them.
func openClassic(pause func(int) time.Duration, make func(*redis.Client, Setup, classic.Options) (classic.Semaphore, error)) func(context.Context, Setup) (Gate, error) {
	return func(ctx context.Context, s Setup) (Gate, error) {
		rdb, err := connect(ctx, s.URL)
		if err != nil {
			return nil, err
		}
		sem, err := make(rdb, s, classic.Options{Lease: s.Lease, Lua: true})
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		return classicGate{sem, rdb, pause}, nil
	}
}

func newLock(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewLock(rdb, s.Name, o)
}

func newBasic(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewBasic(rdb, s.Name, s.Limit, o)
}

func newFair(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewFair(rdb, s.Name, s.Limit, o)
}

func newLocked(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewLocked(rdb, s.Name, s.Limit, o)
}

func newScripted(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewScripted(rdb, s.Name, s.Limit, o)
}

func newClockless(rdb *redis.Client, s Setup, o classic.Options) (classic.Semaphore, error) {
	return classic.NewClockless(rdb, s.Name, s.Limit, o)
}

// steady pauses as the book does.
func steady(int) time.Duration { return bookPause }

// backoff pauses 1 ms at first and up to 16 ms later, each time between half
// of it and all: many who wait leave Redis to those who work.
func backoff(try int) time.Duration {
	most := bookPause << min(try, 4)
	return most/2 + rand.N(most/2)
}

func (g classicGate) Work(ctx context.Context, held func()) error {
	for try := 0; ; try++ {
		id, ok, err := g.Acquire(ctx)
		if err != nil {
			return err
		}
		if !ok {
			if err := pause(ctx, g.pause(try)); err != nil {
				return err
			}
			continue
		}
		held()
		kept, err := g.Release(context.WithoutCancel(ctx), id)
		if err == nil && !kept {
			err = fmt.Errorf("the permit was lost while it was held")
		}
		return err
	}
}

func (g classicGate) Close() error { return g.rdb.Close() }
