package classic

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// minLease is the shortest lease that Redis can count.
const minLease = time.Millisecond

// Clockless is [Fair] without the callers' clocks. In place of the ZSET of
// times, each permit has a key of its own whose TTL is the lease; an owner
// whose key is gone is no longer a holder. Redis alone counts the time, and
// each permit can have another lease. The book does not have this variant;
// texts about the book describe it. The names of its keys are ours.
//
// What is wrong with it:
//   - The texts say that it never exceeds the limit. Without Options.Lua it
//     does: a caller can be overtaken between drawing a number and adding
//     itself, as with Fair. With Lua, Acquire is one script, and there are
//     never more leases than the limit, provided every client of the semaphore
//     uses Lua.
//   - A holder that outlives its lease does not notice, as with all of these.
//   - Without Lua an acquire takes four round trips, and each try asks for the
//     key of every holder.
//   - As with Fair, a refused try without Lua counts as a holder until it is
//     taken out.
//
// Use it with Lua where leases differ or clocks cannot be trusted.
type Clockless struct {
	*core
	lua bool
}

// NewClockless returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: Lease, Lua.
func NewClockless(rdb redis.UniversalClient, name string, limit int, o Options) (*Clockless, error) {
	if _, err := duration("lease", o.Lease, defaultLease, minLease); err != nil {
		return nil, err
	}
	made, err := newCore(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	c := &Clockless{made, o.Lua}
	c.remove = c.removeHolder
	return c, nil
}

// Acquire tries once to get a permit for Options.Lease; see [Semaphore].
func (c *Clockless) Acquire(ctx context.Context) (string, bool, error) {
	return c.AcquireFor(ctx, c.lease)
}

// AcquireFor tries once to get a permit with a lease of its own, at least 1 ms
// and counted in whole milliseconds. Refresh keeps that length.
func (c *Clockless) AcquireFor(ctx context.Context, lease time.Duration) (string, bool, error) {
	if lease < minLease {
		return "", false, invalid("lease", lease, "at least "+minLease.String())
	}
	if err := c.begin(ctx, "acquire"); err != nil {
		return "", false, err
	}
	if c.lua {
		return c.acquireLua(ctx, lease)
	}
	number, err := c.draw(ctx)
	if err != nil {
		// Nothing was added yet.
		return "", false, failed("acquire", c.name, err)
	}
	// Another caller may overtake this one here: the race that the type's
	// comment describes.
	id := newID()
	var rank *redis.IntCmd
	err = c.transaction(ctx, func(p redis.Pipeliner) {
		// The key is made together with the entry, or another caller would
		// take the entry for one whose lease has ended.
		p.Do(ctx, "set", holderKey(c.name, id), lease.Milliseconds(), "px", lease.Milliseconds())
		p.ZAdd(ctx, ownerKey(c.name), redis.Z{Score: float64(number), Member: id})
		rank = p.ZRank(ctx, ownerKey(c.name), id)
	})
	return c.ranked(ctx, id, rank, err)
}

// draw takes the entries whose lease has ended out of the ZSET of owners, and
// draws a number.
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
	err = c.transaction(ctx, func(p redis.Pipeliner) {
		for i, id := range ids {
			if alive[i].Val() == 0 { // no operation makes a key anew that is gone
				p.ZRem(ctx, ownerKey(c.name), id)
			}
		}
		number = p.IncrBy(ctx, counterKey(c.name), 1)
	})
	return number.Val(), err
}

func (c *Clockless) acquireLua(ctx context.Context, lease time.Duration) (string, bool, error) {
	id := newID()
	keys := []string{ownerKey(c.name), counterKey(c.name), holderKey(c.name, id)}
	taken, err := clocklessAcquire.Run(ctx, c.rdb, keys,
		holderPrefix(c.name), c.limit, lease.Milliseconds(), id).Bool()
	return c.scripted(ctx, id, taken, err)
}

func (c *Clockless) removeHolder(ctx context.Context, id string) (bool, error) {
	var key *redis.IntCmd
	err := c.transaction(ctx, func(p redis.Pipeliner) {
		p.ZRem(ctx, ownerKey(c.name), id)
		key = p.Del(ctx, holderKey(c.name, id))
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

// Extend adds by (at least 1 ms) to the remaining time of the permit's lease.
// It is the second way that the texts give: read the TTL, then SET with XX. It
// reports false when the permit was lost, before or between the two requests.
//
// What is wrong with it:
//   - When two callers extend the same permit at once, or one extends while the
//     other refreshes, only the later request counts.
//   - A caller that extends often and by much piles up a long lease, which goes
//     on when the caller has died.
func (c *Clockless) Extend(ctx context.Context, id string, by time.Duration) (bool, error) {
	if by < minLease {
		return false, invalid("extension", by, "at least "+minLease.String())
	}
	return c.byID(ctx, "extend", id, func(ctx context.Context, id string) (bool, error) {
		return c.extend(ctx, holderKey(c.name, id), by)
	})
}

func (c *Clockless) extend(ctx context.Context, key string, by time.Duration) (bool, error) {
	var lease *redis.StringCmd
	var ttl *redis.DurationCmd
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		lease, ttl = p.Get(ctx, key), p.PTTL(ctx, key)
		return nil
	})
	if errors.Is(err, redis.Nil) || err == nil && ttl.Val() <= 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The value is written back so that Refresh still knows the lease.
	err = c.rdb.Do(ctx, "set", key, lease.Val(), "px", (ttl.Val() + by).Milliseconds(), "xx").Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
