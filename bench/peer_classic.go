package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
	"sema/internal/measure"
)

// bookPause is how long the book's lock sleeps between two tries. Its
// semaphores only try; a caller who has to wait does the same with them.
const bookPause = time.Millisecond

// steady pauses as the book does.
func steady(int) time.Duration { return bookPause }

// backoff pauses 1 ms at first and up to 16 ms later, each time between half
// of it and all: many who wait leave Redis to those who work.
func backoff(try int) time.Duration {
	most := bookPause << min(try, 4)
	return most/2 + rand.N(most/2)
}

var errLost = errors.New("the permit was lost while it was held")

// book opens one of the book's semaphores.
func book[S classic.Semaphore](pause func(int) time.Duration, make func(redis.UniversalClient, string, int, classic.Options) (S, error)) opener {
	return func(_ context.Context, rdb *redis.Client, s measure.Setup) (measure.Gate, error) {
		sem, err := make(rdb, s.Name, s.Limit, classic.Options{Lease: s.Lease(), Lua: true})
		if err != nil {
			return measure.Gate{}, err
		}
		return polls(pause, func(ctx context.Context) (release, error) {
			id, ok, err := sem.Acquire(ctx)
			if !ok || err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return kept(sem.Release(ctx, id)) }, nil
		})
	}
}

func bookLock(rdb redis.UniversalClient, name string, _ int, o classic.Options) (*classic.Lock, error) {
	return classic.NewLock(rdb, name, o)
}

// kept makes an error of a release that found nothing to release.
func kept(ok bool, err error) error {
	if err == nil && !ok {
		err = errLost
	}
	return err
}
