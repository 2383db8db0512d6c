package classic

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// port is the fair semaphore as ports of the book to other languages have it.
// Its times are whole numbers of a unit.
type port struct {
	t     *testing.T
	rdb   *redis.Client
	unit  time.Duration
	limit int
	lease time.Duration
	clock func() time.Time
}

func (p port) now() float64 { return float64(p.clock().UnixNano() / int64(p.unit)) }

func (p port) exec(f func(redis.Pipeliner)) {
	p.t.Helper()
	if _, err := p.rdb.TxPipelined(p.t.Context(), func(tx redis.Pipeliner) error { f(tx); return nil }); err != nil {
		p.t.Fatal(err)
	}
}

func (p port) acquire(id string) bool {
	p.t.Helper()
	ctx := p.t.Context()
	var number, rank *redis.IntCmd
	p.exec(func(tx redis.Pipeliner) {
		tx.ZRemRangeByScore(ctx, "sem", "0", scoreText(p.now()-float64(p.lease/p.unit)))
		tx.ZInterStore(ctx, "sem:owner", &redis.ZStore{Keys: []string{"sem:owner", "sem"}, Weights: []float64{1, 0}})
		number = tx.Incr(ctx, "sem:counter")
	})
	p.exec(func(tx redis.Pipeliner) {
		tx.ZAdd(ctx, "sem", redis.Z{Score: p.now(), Member: id})
		tx.ZAdd(ctx, "sem:owner", redis.Z{Score: float64(number.Val()), Member: id})
		rank = tx.ZRank(ctx, "sem:owner", id)
	})
	if rank.Val() < int64(p.limit) {
		return true
	}
	p.release(id)
	return false
}

func (p port) release(id string) bool {
	p.t.Helper()
	var removed *redis.IntCmd
	p.exec(func(tx redis.Pipeliner) {
		removed = tx.ZRem(p.t.Context(), "sem", id)
		tx.ZRem(p.t.Context(), "sem:owner", id)
	})
	return removed.Val() == 1
}

func (p port) refresh(id string) bool {
	p.t.Helper()
	added, err := p.rdb.ZAdd(p.t.Context(), "sem", redis.Z{Score: p.now(), Member: id}).Result()
	expect.OK(p.t, err)
	if added == 1 {
		p.release(id)
	}
	return added == 0
}

// TestScoreUnitJoinsAPort has Fair share a semaphore with a port that counts in
// milliseconds, and one that counts in seconds.
func TestScoreUnitJoinsAPort(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	for _, unit := range []time.Duration{time.Millisecond, time.Second} {
		rdb, clock := redistest.Start(t).Client(), newHandClock()
		theirs := port{t, rdb, unit, 2, lease, clock.now}
		ours := made(t, NewFair, rdb, 2, Options{Lease: lease, Clock: clock.now, ScoreUnit: unit})
		is := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%v: %s: %v", unit, what, got)
			}
		}

		is("the port acquires", theirs.acquire("port1"), true)
		id := must(t, ours)
		is("the port acquires a third", theirs.acquire("port2"), false)
		mustNot(t, ours)

		clock.forward(lease / 2)
		is("the port refreshes ours", theirs.refresh(id), true)
		refresh(t, ours, "port1", true)
		clock.forward(lease / 2)
		is("the port acquires a third", theirs.acquire("port2"), false)
		mustNot(t, ours)
		for _, key := range []string{id, "port1"} {
			want := float64(clock.now().Add(-lease/2).UnixNano() / int64(unit))
			if score := rdb.ZScore(t.Context(), "sem", key).Val(); score != want {
				t.Errorf("%v: score of %s is %v; want %v", unit, key, score, want)
			}
		}

		release(t, ours, "port1", true)
		is("the port releases ours", theirs.release(id), true)
		is("the port acquires", theirs.acquire("port3"), true)
		second := must(t, ours)

		clock.forward(lease + unit) // both leases end for the other
		third, fourth := must(t, ours), must(t, ours)
		refresh(t, ours, "port3", false)
		clock.forward(lease + unit)
		is("the port acquires when our leases ended", theirs.acquire("port4"), true)
		for _, lost := range []string{second, third, fourth} {
			is("the port refreshes what we lost", theirs.refresh(lost), false)
		}
	}
}

// TestUnitsMustBeTheSame is the flaw that Options.ScoreUnit warns of.
func TestUnitsMustBeTheSame(t *testing.T) {
	t.Parallel()
	rdb, clock := redistest.Start(t).Client(), newHandClock()
	float := made(t, NewFair, rdb, 1, Options{Clock: clock.now})
	whole := made(t, NewFair, rdb, 1, Options{Clock: clock.now, ScoreUnit: time.Millisecond})
	lost := must(t, float)
	id := must(t, whole) // to it the permit of the other is long expired
	refresh(t, float, lost, false)
	clock.forward(365 * 24 * time.Hour)
	mustNot(t, float) // to it the other's permit never expires
	release(t, whole, id, true)
}

// TestScoreUnitOfAllTypes looks at what each type with a ZSET of times writes,
// and when it takes a lease for ended.
func TestScoreUnitOfAllTypes(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, v := range variants {
		if !v.clock {
			continue
		}
		for _, c := range []struct {
			unit, lease time.Duration
			score       float64
			ends        time.Duration // after this long, and not the unit before
		}{
			{0, 1500 * time.Millisecond, 1767323045.6789012, 1500 * time.Millisecond},
			{time.Millisecond, 1500 * time.Microsecond, 1767323045678, 2 * time.Millisecond}, // rounded up
			{time.Second, 1500 * time.Millisecond, 1767323045, 2 * time.Second},
		} {
			expect.OK(t, rdb.FlushDB(t.Context()).Err())
			clock := newHandClock()
			sem := v.new(t, rdb, 1, Options{Lease: c.lease, ScoreUnit: c.unit, Clock: clock.now})
			id := must(t, sem)
			if score := rdb.ZScore(t.Context(), "sem", id).Val(); math.Abs(score-c.score) > 1e-6 {
				t.Errorf("%s, unit %v: score %v; want %v", v.name, c.unit, score, c.score)
			}
			early := max(c.unit, time.Millisecond)
			clock.forward(c.ends - early)
			mustNot(t, sem)
			clock.forward(early)
			must(t, sem)
			members := rdb.ZRange(t.Context(), "sem", 0, -1).Val()
			if slices.Contains(members, id) {
				t.Errorf("%s, unit %v: the ended permit is still there", v.name, c.unit)
			}
		}
	}
}
