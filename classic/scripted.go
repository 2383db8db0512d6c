package classic

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Scripted is the semaphore of Redis in Action, section 11.2.3 (listings 11.8
// and 11.9): one ZSET of holders by the time of acquisition, changed by
// scripts, which Redis executes one after the other. Acquire and Refresh are a
// script each, Release is one ZREM: one round trip for each operation.
//
// It never over-admits as long as clocks differ by less than a lease's
// remaining time when its holder releases or refreshes. Beyond that:
//   - A caller whose clock is ahead ends the permits of others early; it then
//     over-admits exactly as [Locked] does.
//   - A caller whose clock is behind loses its own permit early.
//   - Callers with different leases end each other's permits.
//
// Use it to join a fleet that uses the book's, or where leases are much longer
// than clocks differ.
type Scripted struct{ *core }

// NewScripted returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: Lease, ScoreUnit, Clock.
func NewScripted(rdb redis.UniversalClient, name string, limit int, o Options) (*Scripted, error) {
	c, err := newCore(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	return &Scripted{c}, nil
}

// Acquire tries once to get a permit; see [Semaphore]. A refusal leaves
// nothing behind in Redis.
func (s *Scripted) Acquire(ctx context.Context) (string, bool, error) {
	if err := s.begin(ctx, "acquire"); err != nil {
		return "", false, err
	}
	id, now := newID(), s.now()
	taken, err := scriptedAcquire.Run(ctx, s.rdb, []string{s.name},
		s.cutoff(now), s.limit, scoreText(now), id).Bool()
	return s.scripted(ctx, id, taken, err)
}

// Refresh starts the permit's lease anew; see [Refresher].
func (s *Scripted) Refresh(ctx context.Context, id string) (bool, error) {
	return s.byID(ctx, "refresh", id, func(ctx context.Context, id string) (bool, error) {
		return scriptedRefresh.Run(ctx, s.rdb, []string{s.name}, id, scoreText(s.now())).Bool()
	})
}
