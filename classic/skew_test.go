package classic

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// TestOverAdmission runs clients with different clocks against each type and
// counts the permits that were granted while the limit was held already. With
// -update the runs are ten times as long, and the figures become those of the
// comparison page.
func TestOverAdmission(t *testing.T) {
	t.Parallel()
	var figures skewFigures
	stall.Run(t, func(c *stall.Case) { figures = overAdmission(c) }) // calls have a bound in real time
	if *update {
		publish(t, skewFile, figures)
	}
}

func overAdmission(t testing.TB) skewFigures {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 12)
	spread := scene{clients: 12, limit: 4, hold: 100 * time.Millisecond, lease: 10 * time.Second, run: 1200 * time.Millisecond}
	near := scene{clients: 6, limit: 2, hold: 850 * time.Millisecond, lease: time.Second, run: 4 * time.Second, oneAhead: true}
	if *update {
		spread.run *= 10
		near.run *= 10
	}

	info, err := f.clients[0].InfoMap(t.Context(), "server").Result()
	expect.OK(t, err)
	out := skewFigures{
		Redis: info["Server"]["redis_version"], Clients: spread.clients, Limit: spread.limit,
		HoldMS: ms(spread.hold), LeaseMS: ms(spread.lease), RunMS: ms(spread.run),
		Near: nearEndOfHold{
			Clients: near.clients, Limit: near.limit,
			HoldMS: ms(near.hold), LeaseMS: ms(near.lease), RunMS: ms(near.run),
		},
	}
	for _, v := range variants {
		for _, skew := range []int{0, 10, 100, 1000} {
			r := f.play(t, v, spread, skew)
			out.Spread = append(out.Spread, r)
			switch {
			case v.exact() && r.Extra > 0:
				t.Errorf("%s at %d ms of skew: %d extra holders; it promises none", v.name, skew, r.Extra)
			case v.name == "Basic" && skew > 0 && r.Extra == 0,
				(v.name == "Fair" || v.name == "Clockless") && r.Extra == 0:
				t.Errorf("%s at %d ms of skew: no extra holders; its flaw is gone or not seen", v.name, skew)
			}
			if r.Acquired < spread.limit {
				t.Errorf("%s at %d ms of skew: only %d permits in the whole run", v.name, skew, r.Acquired)
			}
		}
	}
	t.Logf("%d clients, limit %d (Lock: 1), held about %v, lease %v, clocks spread over the skew:\n%s",
		spread.clients, spread.limit, spread.hold, spread.lease, table(out.Spread))

	for _, v := range variants {
		if !v.clock {
			continue // its leases end by Redis' clock, which is the right one
		}
		for _, skew := range []int{0, 100, 500} {
			r := f.play(t, v, near, skew)
			out.Near.Runs = append(out.Near.Runs, r)
			if v.exact() && (r.Extra > 0) != (skew == 500) {
				t.Errorf("%s, near the end of the lease, %d ms of skew: %d extra holders", v.name, skew, r.Extra)
			}
		}
	}
	t.Logf("%d clients, limit %d, held about %v of a lease of %v, one clock ahead by the skew:\n%s",
		near.clients, near.limit, near.hold, near.lease, table(out.Near.Runs))
	return out
}

// scene says what the clients of a run do.
type scene struct {
	clients, limit   int
	hold, lease, run time.Duration // virtual
	oneAhead         bool          // one clock is ahead; else all are spread
}

// fleet is the machines of the clients. Each has a connection and a network of
// its own.
type fleet struct {
	clients []*redis.Client
	legs    []func() // of each client's network, on the way there and on the way back; nil: no time passes
	runs    int
}

func newFleet(t testing.TB, srv *redistest.Server, n int) *fleet {
	f := &fleet{}
	for _, script := range []*redis.Script{lockAcquire, lockRelease, scriptedAcquire, clocklessAcquire} {
		// Otherwise the first run would take more requests than the others.
		expect.OK(t, script.Load(t.Context(), srv.Client()).Err())
	}
	f.legs = make([]func(), n)
	for i := range n {
		c := srv.Client()
		c.AddHook(redistest.Around(func(...string) func(error) {
			leg := f.legs[i]
			if leg == nil {
				return nil
			}
			leg()
			return func(error) { leg() }
		}))
		expect.OK(t, c.Ping(t.Context()).Err())
		f.clients = append(f.clients, c)
	}
	return f
}

// play runs one type at one skew. A request takes 2 to 8 ms, half of it on the
// way there. A client that was refused tries again after 5 to 25 ms.
func (f *fleet) play(t testing.TB, v variant, sc scene, skewMS int) skewRun {
	t.Helper()
	f.runs++
	name := fmt.Sprintf("run-%d", f.runs)
	if v.limit == 1 {
		sc.limit = 1
	}
	skew := time.Duration(skewMS) * time.Millisecond
	random := rand.New(rand.NewPCG(6, 11)) // the same in each run
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(random.Int64N(int64(hi-lo))) }
	w := &world{}
	r := skewRun{Type: v.name, SkewMS: skewMS}
	held := 0

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	places := random.Perm(sc.clients)
	actors := make([]func(), sc.clients)
	for i := range sc.clients {
		ahead := skew * time.Duration(places[i]) / time.Duration(sc.clients-1)
		if sc.oneAhead && ahead < skew {
			ahead = 0
		}
		o := Options{Lease: sc.lease, Clock: w.clock(ahead), Wait: 10 * time.Millisecond}
		if !v.clock {
			o.Lease = time.Hour // counted by Redis, in real time; nobody here outlives a lease
		}
		sem, err := v.make(f.clients[i], name, sc.limit, o)
		expect.OK(t, err)
		turnBy(sem, w)
		f.legs[i] = func() { w.sleep(between(time.Millisecond, 4*time.Millisecond)) }
		actors[i] = func() {
			w.sleep(between(0, 20*time.Millisecond))
			for w.now < sc.run {
				id, ok, err := sem.Acquire(ctx)
				if err != nil {
					t.Errorf("%s: %v", v.name, err)
					return
				}
				if !ok {
					w.sleep(between(5*time.Millisecond, 25*time.Millisecond))
					continue
				}
				r.Acquired++
				if held >= sc.limit {
					r.Extra++
				}
				held++
				r.Most = max(r.Most, held)
				w.sleep(between(sc.hold-sc.hold/20, sc.hold+sc.hold/20))
				held--
				if _, err := sem.Release(ctx, id); err != nil {
					t.Errorf("%s: %v", v.name, err)
					return
				}
				w.sleep(between(0, 20*time.Millisecond))
			}
		}
	}
	w.run(actors...)
	clear(f.legs)
	return r
}

// turnBy makes a semaphore wait for its lock in virtual time.
func turnBy(sem Semaphore, w *world) {
	lock, ok := sem.(*Lock)
	if l, is := sem.(*Locked); is {
		lock, ok = l.lock, true
	}
	if ok {
		lock.timer = timer{
			now:   w.clock(0),
			pause: func(_ context.Context, d time.Duration) error { w.sleep(d); return nil },
		}
	}
}

func table(runs []skewRun) string {
	s := fmt.Sprintf("%-14s %8s %8s %8s %8s", "", "skew ms", "granted", "extra", "most")
	for _, r := range runs {
		s += fmt.Sprintf("\n%-14s %8d %8d %8d %8d", r.Type, r.SkewMS, r.Acquired, r.Extra, r.Most)
	}
	return s
}

func ms(d time.Duration) int { return int(d / time.Millisecond) }

// world is virtual time. Goroutines take turns in it: one runs at a time. When
// all sleep, time jumps to the one that wakes first. Redis is a real one; the
// network between it and the callers is virtual. So a run is the same each time,
// and takes no longer than its requests.
type world struct {
	now  time.Duration
	wait sleepers
	turn int // ties wake in the order they fell asleep
	done chan struct{}
}

type sleeper struct {
	at   time.Duration
	turn int
	wake chan struct{}
}

// run starts the actors and returns when all have.
func (w *world) run(actors ...func()) {
	w.done = make(chan struct{})
	for _, actor := range actors {
		wake := w.enqueue(0)
		go func() {
			<-wake
			actor()
			w.next()
		}()
	}
	w.next()
	<-w.done
}

// sleep lets the others run for d of virtual time.
func (w *world) sleep(d time.Duration) {
	wake := w.enqueue(d)
	w.next()
	<-wake
}

func (w *world) enqueue(d time.Duration) chan struct{} {
	w.turn++
	wake := make(chan struct{}, 1)
	heap.Push(&w.wait, sleeper{w.now + d, w.turn, wake})
	return wake
}

func (w *world) next() {
	if len(w.wait) == 0 {
		close(w.done)
		return
	}
	s := heap.Pop(&w.wait).(sleeper)
	w.now = s.at
	s.wake <- struct{}{}
}

// clock is the clock of a machine that is ahead of the world's time.
func (w *world) clock(ahead time.Duration) func() time.Time {
	start := newHandClock().t
	return func() time.Time { return start.Add(w.now + ahead) }
}

type sleepers []sleeper

func (s sleepers) Len() int      { return len(s) }
func (s sleepers) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s sleepers) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].turn < s[j].turn
}
func (s *sleepers) Push(x any) { *s = append(*s, x.(sleeper)) }
func (s *sleepers) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
