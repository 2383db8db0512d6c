package classic

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Basic is the counting semaphore of Redis in Action, section 6.3.1: one ZSET
// of holders by the time of their calls, on their own clocks. A
// caller adds itself and holds a permit if fewer than limit others rank before
// it. An acquire takes one round trip, or two when it is refused and has to take
// itself out again; a release takes one.
//
// What is wrong with it:
//   - It over-admits under clock skew. A caller whose clock is behind ranks
//     before holders with faster clocks and takes one permit more than there
//     are, for as long as the skew. The earlier holder never learns of it.
//   - It over-admits with perfect clocks too, when another caller's request
//     gets to Redis between a caller's look at its clock and its own request.
//   - With whole numbers as scores (Options.ScoreUnit) callers of the same
//     millisecond or second rank by their random ids, so it over-admits often.
//   - A caller whose clock is ahead ends the permits of others early.
//   - A refused try counts as a holder until it is taken out again, so others
//     are refused although a permit is free; if its process dies in between,
//     for a whole lease.
//   - There is no refresh.
//
// Use it where exceeding the limit now and then does no harm.
type Basic struct{ *core }

// NewBasic returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: Lease, ScoreUnit, Clock.
func NewBasic(rdb redis.UniversalClient, name string, limit int, o Options) (*Basic, error) {
	c, err := newCore(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	return &Basic{c}, nil
}

// Acquire tries once to get a permit; see [Semaphore].
func (b *Basic) Acquire(ctx context.Context) (string, bool, error) {
	if err := b.begin(ctx, "acquire"); err != nil {
		return "", false, err
	}
	id, now := newID(), b.now()
	var rank *redis.IntCmd
	err := b.transaction(ctx, func(p redis.Pipeliner) {
		p.ZRemRangeByScore(ctx, b.name, "-inf", b.cutoff(now))
		p.ZAdd(ctx, b.name, redis.Z{Score: now, Member: id})
		rank = p.ZRank(ctx, b.name, id)
	})
	return b.ranked(ctx, id, rank, err)
}
