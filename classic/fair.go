package classic

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Fair is the semaphore of Redis in Action, sections 6.3.2 and 6.3.3. A
// counter in Redis decides the order instead of the callers' clocks. A caller
// draws a number, then adds itself to the ZSET of owners under that number,
// and holds a permit if fewer than limit others rank before it. A second ZSET,
// by the callers' time, serves only to end leases.
//
// What is wrong with it:
//   - It over-admits when two callers overlap. There is a round trip between
//     drawing a number and adding itself. A caller that draws later but adds
//     itself first gets the permit, and then the one with the smaller number
//     gets it as well. There is no bound: twenty callers, each overtaken by the
//     next one, are all admitted to a semaphore of one. It needs no clock skew.
//   - The book says that a holder whose permit was stolen learns of it when it
//     refreshes or releases. It does not: both report true.
//   - Clocks still end leases: a caller whose clock is ahead by more than what
//     remains of a lease takes the holder out.
//   - Each try copies the ZSET of owners, which takes time in proportion to
//     the number of holders.
//   - As with Basic, a refused try counts as a holder until it is taken out.
//
// Use it where order matters more than the exact number of holders; else
// [Locked], or better [Scripted].
type Fair struct{ *core }

// NewFair returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: Lease, ScoreUnit, Clock.
func NewFair(rdb redis.UniversalClient, name string, limit int, o Options) (*Fair, error) {
	c, err := newCore(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	f := &Fair{c}
	f.remove = f.removeBoth
	return f, nil
}

// Acquire tries once to get a permit; see [Semaphore].
func (f *Fair) Acquire(ctx context.Context) (string, bool, error) {
	if err := f.begin(ctx, "acquire"); err != nil {
		return "", false, err
	}
	id, now := newID(), f.now()
	owner := ownerKey(f.name)

	var number *redis.IntCmd
	err := f.transaction(ctx, func(p redis.Pipeliner) {
		p.ZRemRangeByScore(ctx, f.name, "-inf", f.cutoff(now))
		// Keep the owners that are still in the ZSET of times; the weights
		// keep their numbers as scores.
		p.ZInterStore(ctx, owner, &redis.ZStore{Keys: []string{owner, f.name}, Weights: []float64{1, 0}})
		number = p.IncrBy(ctx, counterKey(f.name), 1)
	})
	if err != nil {
		// Nothing was added yet. When one command of a transaction fails, on a
		// key of another type for example, Redis executes the others all the
		// same. If that made the counter, it goes again.
		if number.Err() == nil && number.Val() == 1 {
			ctx, cancel := cleanup(ctx)
			defer cancel()
			_, _ = f.deleteIf(ctx, counterKey(f.name), "1")
		}
		return "", false, failed("acquire", f.name, err)
	}

	// Another caller may overtake this one here: the race that the type's
	// comment describes.
	var rank *redis.IntCmd
	err = f.transaction(ctx, func(p redis.Pipeliner) {
		p.ZAdd(ctx, f.name, redis.Z{Score: now, Member: id})
		p.ZAdd(ctx, owner, redis.Z{Score: float64(number.Val()), Member: id})
		rank = p.ZRank(ctx, owner, id)
	})
	return f.ranked(ctx, id, rank, err)
}

// Refresh starts the permit's lease anew; see [Refresher].
func (f *Fair) Refresh(ctx context.Context, id string) (bool, error) {
	return f.byID(ctx, "refresh", id, f.touch)
}

func (f *Fair) touch(ctx context.Context, id string) (bool, error) {
	added, err := f.rdb.ZAdd(ctx, f.name, redis.Z{Score: f.now(), Member: id}).Result()
	if err != nil || added == 0 {
		return err == nil, err
	}
	// The entry was gone, and ZADD has just brought half of it back.
	ctx, cancel := cleanup(ctx)
	defer cancel()
	_, err = f.remove(ctx, id)
	return false, err
}

// removeBoth takes the entry out of both ZSETs. The one by time tells whether
// it was held, since leases end there.
func (f *Fair) removeBoth(ctx context.Context, id string) (bool, error) {
	var held *redis.IntCmd
	err := f.transaction(ctx, func(p redis.Pipeliner) {
		held = p.ZRem(ctx, f.name, id)
		p.ZRem(ctx, ownerKey(f.name), id)
	})
	return held.Val() == 1, err
}
