package classic

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// minLease is the shortest lease that Redis can count.
const minLease = time.Millisecond

// Clockless is [Fair] without the callers' clocks: in place of the ZSET of
// times each permit has a key of its own whose TTL is the lease, and an owner
// whose key is gone is no holder. Redis alone counts the time, and each permit
// can have another lease. It is a variant that is told in texts about the
// book, not in the book; the names of its keys are ours.
//
// What is wrong with it:
//   - The texts say that it never exceeds the limit. Without Options.Lua it
//     does, without any clock: between drawing a number and adding itself a
//     caller can be overtaken, as with Fair. With Lua, Acquire is one script
//     and no more than the limit have a lease, provided every client of the
//     semaphore uses Lua.
//   - A holder that outlives its lease does not notice, as with all of these.
//   - Without Lua an acquire takes four round trips, and each try asks for the
//     key of every holder.
//   - As with Fair, a refused try without Lua counts as a holder until it is
//     taken out.
//
// Use it with Lua where leases differ or clocks cannot be trusted.
type Clockless struct {
	core
	lua bool
}

// NewClockless returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: Lease, Lua.
func NewClockless(rdb redis.UniversalClient, name string, limit int, o Options) (*Clockless, error) {
	if _, err := duration("lease", o.Lease, defaultLease, minLease); err != nil {
		return nil, err
	}
	c, err := newCore(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	return &Clockless{c, o.Lua}, nil
}

// Acquire tries once to get a permit for Options.Lease; see [Semaphore].
func (c *Clockless) Acquire(ctx context.Context) (string, bool, error) {
	return c.AcquireFor(ctx, c.lease)
}

// AcquireFor tries once to get a permit with a lease of its own, at least 1 ms
// and counted in whole milliseconds. Refresh keeps that length.
func (c *Clockless) AcquireFor(ctx context.Context, lease time.Duration) (string, bool, error) {
	if lease < minLease {
		return "", false, &InputError{"lease", lease, "at least " + minLease.String()}
	}
	if err := ctx.Err(); err != nil {
		return "", false, failed("acquire", c.name, err)
	}
	if c.lua {
		return c.acquireLua(ctx, lease)
	}
	number, err := c.draw(ctx)
	if err != nil {
		// Nothing was added yet.
		return "", false, failed("acquire", c.name, err)
	}
	// Here another caller may pass by: the race of the type's comment.
	id := newID()
	var rank *redis.IntCmd
	_, err = c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		// The key comes with the entry, or another caller would find the
		// entry dead.
		p.Do(ctx, "set", holderKey(c.name, id), lease.Milliseconds(), "px", lease.Milliseconds())
		p.ZAdd(ctx, ownerKey(c.name), redis.Z{Score: float64(number), Member: id})
		rank = p.ZRank(ctx, ownerKey(c.name), id)
		return nil
	})
	switch {
	case err != nil:
		return c.unsure(ctx, id, err, c.remove)
	case rank.Val() >= int64(c.limit):
		return c.refused(ctx, id, c.remove)
	}
	return id, true, nil
}

// draw takes the dead out of the ZSET of owners and draws a number.
func (c *Clockless) draw(ctx context.Context) (int64, error) {
	ids, err := c.rdb.ZRange(ctx, ownerKey(c.name), 0, -1).Result()
	if err != nil {
		return 0, err
	}
	alive := make([]*redis.IntCmd, len(ids))
	if len(ids) > 0 {
		_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range ids {
				alive[i] = p.Exists(ctx, holderKey(c.name, id))
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	var number *redis.IntCmd
	_, err = c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			if alive[i].Val() == 0 { // for good: nothing brings a key back
				p.ZRem(ctx, ownerKey(c.name), id)
			}
		}
		number = p.IncrBy(ctx, counterKey(c.name), 1)
		return nil
	})
	return number.Val(), err
}

func (c *Clockless) acquireLua(ctx context.Context, lease time.Duration) (string, bool, error) {
	id := newID()
	keys := []string{ownerKey(c.name), counterKey(c.name), holderKey(c.name, id)}
	taken, err := clocklessAcquire.Run(ctx, c.rdb, keys,
		holderPrefix(c.name), c.limit, lease.Milliseconds(), id).Bool()
	switch {
	case err != nil:
		return c.unsure(ctx, id, err, c.remove)
	case !taken:
		return "", false, nil
	}
	return id, true, nil
}

// Release gives the permit back; see [Semaphore].
func (c *Clockless) Release(ctx context.Context, id string) (bool, error) {
	return c.byID(ctx, "release", id, c.remove)
}

func (c *Clockless) remove(ctx context.Context, id string) (bool, error) {
	var key *redis.IntCmd
	_, err := c.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, ownerKey(c.name), id)
		key = p.Del(ctx, holderKey(c.name, id))
		return nil
	})
	return key.Val() == 1, err
}

// Refresh starts the permit's lease anew with the length it was acquired for,
// in one script: the first of the two ways the texts give. See [Refresher].
func (c *Clockless) Refresh(ctx context.Context, id string) (bool, error) {
	return c.byID(ctx, "refresh", id, func(ctx context.Context, id string) (bool, error) {
		keys := []string{ownerKey(c.name), holderKey(c.name, id)}
		return clocklessRefresh.Run(ctx, c.rdb, keys, id).Bool()
	})
}

// Extend adds by (at least 1 ms) to what is left of the permit's lease: the
// second way the texts give, which reads the TTL and then does SET with XX. It
// reports false when the permit was lost, before or between the two. What is
// wrong with it: of two that extend the same permit at once, or one that
// extends while the other refreshes, only the later one counts; and who calls
// it often with a long by piles up a lease that lives on after its death.
func (c *Clockless) Extend(ctx context.Context, id string, by time.Duration) (bool, error) {
	if by < minLease {
		return false, &InputError{"extension", by, "at least " + minLease.String()}
	}
	return c.byID(ctx, "extend", id, func(ctx context.Context, id string) (bool, error) {
		return c.extend(ctx, holderKey(c.name, id), by)
	})
}

func (c *Clockless) extend(ctx context.Context, key string, by time.Duration) (bool, error) {
	var lease *redis.StringCmd
	var left *redis.DurationCmd
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		lease, left = p.Get(ctx, key), p.PTTL(ctx, key)
		return nil
	})
	if errors.Is(err, redis.Nil) || err == nil && left.Val() <= 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The value is written back so that Refresh still knows the lease.
	err = c.rdb.Do(ctx, "set", key, lease.Val(), "px", (left.Val() + by).Milliseconds(), "xx").Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
