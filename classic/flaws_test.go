package classic

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The flaws that the types' comments describe, each in its smallest form.

// made is a semaphore of the name "sem".
func made[S any](t *testing.T, open func(redis.UniversalClient, string, int, Options) (S, error), rdb *redis.Client, limit int, o Options) S {
	t.Helper()
	s, err := open(rdb, "sem", limit, o)
	expect.OK(t, err)
	return s
}

func newLock(t *testing.T, rdb *redis.Client, o Options) *Lock {
	t.Helper()
	s, err := NewLock(rdb, "sem", o)
	expect.OK(t, err)
	return s
}

func TestBasicAdmitsWhoeverHasTheSlowerClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		srv, clock := redistest.Start(t), newHandClock()
		fast := made(t, NewBasic, srv.Client(), 1, Options{Clock: clock.ahead(skew)})
		slow := made(t, NewBasic, srv.Client(), 1, Options{Clock: clock.now})
		first := must(t, fast)
		clock.forward(skew / 2)
		if skew == 0 {
			clock.forward(time.Millisecond) // else the ids would decide
			mustNot(t, slow)
			continue
		}
		second := must(t, slow) // within the skew: one permit too many
		clock.forward(skew)
		mustNot(t, slow) // past it
		release(t, fast, first, true)
		release(t, slow, second, true)
	}
}

func TestBasicOverAdmitsWithOneClockToo(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.Start(t), newHandClock()
	other := made(t, NewBasic, srv.Client(), 1, Options{Clock: clock.now})
	rdb := interrupted(srv, "zadd", func() {
		clock.forward(time.Millisecond)
		must(t, other)
	})
	must(t, made(t, NewBasic, rdb, 1, Options{Clock: clock.now})) // read its clock first, asked second
}

func TestFairAdmitsWhoeverDrewFirstAsWell(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	other := made(t, NewFair, srv.Client(), 1, Options{})
	var stolen string
	rdb := interrupted(srv, "zrank", func() { stolen = must(t, other) })
	thief := made(t, NewFair, rdb, 1, Options{})
	id := must(t, thief)

	// The book says that the other caller "won't know until it tries to release
	// or renew". It does not know even then.
	refresh(t, other, stolen, true)
	release(t, other, stolen, true)
	release(t, thief, id, true)
}

func TestFairHasNoBound(t *testing.T) {
	t.Parallel()
	const limit, callers = 1, 20
	srv, held := redistest.Start(t), 0
	nested := func() {}
	for range callers {
		inner := nested
		sem := made(t, NewFair, interrupted(srv, "zrank", inner), limit, Options{})
		nested = func() {
			must(t, sem)
			held++
		}
	}
	nested()
	if held != callers {
		t.Errorf("%d holders, want %d", held, callers)
	}
	t.Logf("Fair: %d holders of a semaphore of %d", held, limit)
}

func TestLockedIsNotOvertaken(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	other := made(t, NewLocked, srv.Client(), 1, Options{})
	rdb := interrupted(srv, "zrank", func() { mustNot(t, other) })
	must(t, made(t, NewLocked, rdb, 1, Options{}))
	mustNot(t, other)
}

func TestLockedGivesBackWhenItsLockEnded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client()
	other := made(t, NewLocked, srv.Client(), 1, Options{})
	rdb := interrupted(srv, "zrank", func() {
		// As if this caller had been paused for longer than the lock's lease.
		if err := admin.Del(t.Context(), "lock:sem").Err(); err != nil {
			t.Error(err)
		}
		must(t, other)
	})
	mustNot(t, made(t, NewLocked, rdb, 1, Options{}))
	if n := admin.ZCard(t.Context(), "sem:owner").Val(); n != 1 {
		t.Errorf("%d owners, want 1", n)
	}
}

func TestClocklessIsOvertakenUnlessScripted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	other := made(t, NewClockless, srv.Client(), 1, Options{})
	rdb := interrupted(srv, "zrank", func() { must(t, other) })
	must(t, made(t, NewClockless, rdb, 1, Options{}))

	srv.Restart()
	other = made(t, NewClockless, srv.Client(), 1, Options{Lua: true})
	rdb = interrupted(srv, "evalsha", func() { must(t, other) })
	mustNot(t, made(t, NewClockless, rdb, 1, Options{Lua: true}))
}

// TestSkewBeyondTheRestOfALease shows when the exact types over-admit: permits
// have a lease of 1 s and are held for 850 ms, and one caller's clock is ahead by
// more than the rest.
func TestSkewBeyondTheRestOfALease(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		if !v.clock {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			for _, skew := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
				srv, clock := redistest.Start(t), newHandClock()
				right := v.new(t, srv.Client(), 1, Options{Lease: time.Second, Clock: clock.now})
				ahead := v.new(t, srv.Client(), 1, Options{Lease: time.Second, Clock: clock.ahead(skew)})
				id := must(t, right)
				clock.forward(850 * time.Millisecond)
				if skew < 150*time.Millisecond {
					mustNot(t, ahead)
					release(t, right, id, true)
					continue
				}
				must(t, ahead) // while the first one is inside its lease
				if _, ok := right.(Refresher); ok {
					refresh(t, right, id, false)
				}
				release(t, right, id, false)
			}
		})
	}
}

func TestACallerBehindLosesItsOwnPermitEarly(t *testing.T) {
	t.Parallel()
	forThose(t, func(v variant) bool { return v.clock }, func(t *testing.T, v variant, srv *redistest.Server) {
		clock := newHandClock()
		behind := v.new(t, srv.Client(), 1, Options{Lease: time.Second, Clock: clock.ahead(-900 * time.Millisecond)})
		right := v.new(t, srv.Client(), 1, Options{Lease: time.Second, Clock: clock.now})
		id := must(t, behind)
		clock.forward(101 * time.Millisecond)
		must(t, right)
		release(t, behind, id, false)
	})
}

func TestAShorterLeaseThrowsTheOthersOut(t *testing.T) {
	t.Parallel()
	forThose(t, func(v variant) bool { return v.limit != 1 }, func(t *testing.T, v variant, srv *redistest.Server) {
		clock := newHandClock()
		long := v.new(t, srv.Client(), 5, Options{Lease: 10 * time.Second, Clock: clock.now})
		short := v.new(t, srv.Client(), 5, Options{Lease: 50 * time.Millisecond, Clock: clock.now})
		var ids []string
		for range 4 {
			ids = append(ids, must(t, long))
		}
		clock.forward(time.Second)
		must(t, short)
		for _, id := range ids {
			// Only Clockless keeps each permit's own lease.
			release(t, long, id, !v.clock)
		}
	})
}

// TestARefusedTryIsInTheWay stops a refused caller before it takes its entry
// out. Then a permit is released, and the next caller is refused all the same.
func TestARefusedTryIsInTheWay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Basic", "Fair", "Clockless"} {
		v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == name })]
		t.Run(name, func(t *testing.T) {
			srv, clock := redistest.Start(t), newHandClock()
			o := Options{Clock: func() time.Time { clock.forward(time.Millisecond); return clock.t }}
			holder := v.new(t, srv.Client(), 1, o)
			id := must(t, holder)
			rdb := interrupted(srv, "zrem", func() {
				release(t, holder, id, true)
				mustNot(t, holder) // although nobody holds a permit
			})
			mustNot(t, v.new(t, rdb, 1, o))
			must(t, holder)
		})
	}
}
