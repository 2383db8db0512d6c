package sema_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/fileengine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// crowd is callers of a Semaphore with a limit of 1, each with work of a second.
type crowd struct {
	*testing.T
	s    *sema.Semaphore
	done chan error
	n    int
}

func newCrowd(t *testing.T, e sema.Engine, o *sema.Options) *crowd {
	t.Helper()
	s, err := sema.New(e, "x", 1, o)
	expect.OK(t, err)
	return &crowd{T: t, s: s, done: make(chan error, 10_000)}
}

// come has n callers of a key come, one after the other, who wait as long as it takes.
func (c *crowd) come(n int, key string) {
	for range n {
		c.n++
		go func() { c.done <- c.work(key, 0) }()
		time.Sleep(time.Millisecond) // callers of one moment have no order
	}
}

// work is what a caller does that waits for d; 0: for as long as it takes.
func (c *crowd) work(key string, d time.Duration) error {
	ctx, cancel := context.WithCancel(c.Context())
	if d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	defer cancel()
	options := []sema.AcquireOption{}
	if key != "" {
		options = append(options, sema.For(key))
	}
	p, err := c.s.Acquire(ctx, options...)
	if err == nil {
		time.Sleep(time.Second)
		err = p.Release()
	}
	return err
}

// refused reports whether the next caller, who waits for d, is refused at once, and with which
// estimate.
func (c *crowd) refused(key string, d time.Duration) (after time.Duration, refused bool) {
	c.Helper()
	done := make(chan error, 1)
	go func() { done <- c.work(key, d) }()
	time.Sleep(time.Millisecond)
	select {
	case err := <-done:
		var busy *sema.BusyError
		if !errors.As(err, &busy) || !errors.Is(err, sema.ErrBusy) || errors.Is(err, context.DeadlineExceeded) || busy.Name != "x" {
			c.Fatalf("refused with %v", err)
		}
		return busy.RetryAfter, true
	default:
		c.n++
		go func() { c.done <- <-done }()
		return 0, false
	}
}

// waiting is how many wait, as operators see it.
func (c *crowd) waiting() int {
	c.Helper()
	st, err := c.s.State(c.Context())
	expect.OK(c.T, err)
	return st.Waiting()
}

// settle waits until n more callers are done, and wants so many of them served.
func (c *crowd) settle(n, served int) {
	c.Helper()
	for ; n > 0; n-- {
		c.n--
		if err := <-c.done; err == nil {
			served--
		} else if !errors.Is(err, context.DeadlineExceeded) {
			c.Error(err)
		}
	}
	if served != 0 {
		c.Errorf("%d more should have been served", served)
	}
}

// end is settle of all.
func (c *crowd) end(served int) {
	c.Helper()
	c.settle(c.n, served)
	expect.OK(c.T, c.s.Close())
}

func TestNoMoreWaitThanMaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, memengine.New(), &sema.Options{MaxWaiting: 3})
		c.come(4, "") // one of them holds
		if after, refused := c.refused("", 0); !refused || after != 0 {
			t.Errorf("refused: %v, with %v before anybody was served", refused, after)
		}
		if n := c.waiting(); n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.come(1, "") // in the place of the one that is served
		if after, refused := c.refused("", 0); !refused || after < 2*time.Second || after > 6*time.Second {
			t.Errorf("refused: %v, told %v; four waits of a second are before it", refused, after)
		}
		if _, err := c.s.TryAcquire(t.Context()); err == nil || errors.As(err, new(*sema.BusyError)) {
			t.Errorf("a try fails with %v", err)
		}
		c.end(5)
	})
}

// Callers that come together have no answer yet: none is refused before the engine has said that
// they have to wait.
func TestMaxWaitingRefusesNobodyThatIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New()}
		e.slow.Store(int64(time.Millisecond))
		s, err := sema.New(e, "x", 50, &sema.Options{MaxWaiting: 1})
		expect.OK(t, err)
		results := make(chan error, 60)
		for range 60 {
			go func() {
				_, err := s.Acquire(t.Context())
				results <- err
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		served, refused := 0, 0
		for range len(results) {
			if err := <-results; err == nil {
				served++
			} else if errors.As(err, new(*sema.BusyError)) {
				refused++
			}
		}
		if served != 50 || refused != 9 {
			t.Errorf("%d served and %d refused; want 50 and 9, and one that waits", served, refused)
		}
		expect.OK(t, s.Close())
		<-results
	})
}

func TestWhoCannotBeServedBeforeItsDeadlineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, memengine.New(), nil)
		c.come(10, "")
		if _, refused := c.refused("", time.Second/2); refused {
			t.Error("refused before anybody was served")
		}
		time.Sleep(5*time.Second + time.Second/4)
		synctest.Wait() // one works, and four wait
		if after, refused := c.refused("", 3*time.Second); !refused || after < 2*time.Second || after > 8*time.Second {
			t.Errorf("refused: %v, told %v; want some five seconds", refused, after)
		}
		if n := c.waiting(); n != 4 {
			t.Errorf("%d wait, want 4", n)
		}
		for _, d := range []time.Duration{6 * time.Second, 0} {
			if _, refused := c.refused("", d); refused {
				t.Errorf("a caller that waits %v is refused", d)
			}
		}
		c.end(12)
	})
}

func TestALoneCallerIsNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, memengine.New(), &sema.Options{MaxWaiting: 1})
		c.come(2, "")
		c.settle(2, 2)
		for range 3 { // a wait takes a second, and nobody is before it
			c.come(1, "")
			if _, refused := c.refused("", time.Second/2); refused {
				t.Error("refused, and nobody is before it")
			}
			c.settle(2, 1)
		}
		c.end(0)
	})
}

// An estimate is forgotten when nobody has been served for longer than it says, and learns nothing of a pause.
func TestAnOldEstimateRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		c := newCrowd(t, e, nil)
		c.come(4, "")
		c.settle(4, 4)
		o := operator(t, e)
		expect.OK(t, o.Pause(t.Context()))
		c.come(3, "")
		time.Sleep(time.Minute) // it says nothing of how long a wait takes without a pause
		expect.OK(t, o.Unpause(t.Context()))
		c.settle(1, 1)
		if _, refused := c.refused("", 5*time.Second); refused {
			t.Error("one wait of a second is before it, and it is refused")
		}
		c.settle(3, 3)
		p := acquire(t, c.s) // and works for a long time
		c.come(4, "")
		if _, refused := c.refused("", 3*time.Second); !refused {
			t.Error("four waits of a second are before it, and it is not refused")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, refused := c.refused("", 3*time.Second); refused {
			t.Error("nobody has been served for longer than the estimate says, and it is refused")
		}
		expect.OK(t, p.Release())
		c.end(4)
	})
}

// After one hold of four seconds, in which a caller waited, others hold for 10 ms each. Callers with a deadline of three
// seconds are not refused for long, though others are always before them.
func TestAStallIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		other, s := newCrowd(t, e, nil).s, newCrowd(t, e, nil).s
		p := acquire(t, other)
		waited := make(chan *sema.Permit)
		go func() { waited <- acquire(t, s) }()
		time.Sleep(4 * time.Second)
		expect.OK(t, p.Release())
		expect.OK(t, (<-waited).Release())
		ctx, stop := context.WithCancel(t.Context())
		for range 12 {
			go func() {
				for ctx.Err() == nil {
					if q, err := other.Acquire(ctx); err == nil {
						time.Sleep(10 * time.Millisecond)
						expect.OK(t, q.Release())
					}
				}
			}()
		}
		began := time.Now()
		for served := 0; served < 3; {
			within, cancel := context.WithTimeout(ctx, 3*time.Second)
			q, err := s.Acquire(within)
			cancel()
			if err == nil {
				expect.OK(t, q.Release())
				served++
			} else if !errors.Is(err, sema.ErrBusy) {
				t.Fatal(err)
			}
			if time.Since(began) > 12*time.Second {
				t.Fatalf("%d of 3 served in 12 s", served)
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		synctest.Wait()
		time.Sleep(time.Second)
		expect.OK(t, s.Close())
		expect.OK(t, other.Close())
	})
}

func TestAnUnfairCallerIsNotRefusedForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sema.New(memengine.New(), "x", 5, &sema.Options{Unfair: true, MaxWaiting: 1})
		expect.OK(t, err)
		p := acquire(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = s.Acquire(ctx, sema.Weight(5)) }()
		synctest.Wait()
		q, err := s.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, q.Release())
		expect.OK(t, p.Release())
		cancel()
		synctest.Wait()
		expect.OK(t, s.Close())
	})
}

func TestEachKeyHasItsOwnLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, memengine.New(), &sema.Options{MaxWaiting: 4})
		c.come(5, "a")
		if _, refused := c.refused("a", 0); !refused {
			t.Error("four of its key are before it, and it is not refused")
		}
		if _, refused := c.refused("b", 0); refused {
			t.Error("nobody of its key is before it, and it is refused")
		}
		c.settle(3, 3) // one of b among them
		c.come(1, "b")
		if _, refused := c.refused("a", time.Second); !refused {
			t.Error("it has a second, and three of its key are before it")
		}
		if _, refused := c.refused("b", time.Second); refused {
			t.Error("nobody was served in the line of its key while it waited, and it is refused")
		}
		c.end(4) // and the last of b gives up
	})
}

// A client does not know the other's callers, but their tickets at the engine.
func TestMaxWaitingCountsTheTicketsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		c, others := newCrowd(t, e, &sema.Options{MaxWaiting: 2}), newCrowd(t, e, nil)
		others.come(3, "")
		if _, refused := c.refused("", 0); !refused {
			t.Error("two of others wait, and it is not refused")
		}
		if n := c.waiting(); n != 2 {
			t.Errorf("%d wait: what was refused has a ticket", n)
		}
		others.settle(2, 2)
		if _, refused := c.refused("", 0); refused {
			t.Error("one works, and it is refused")
		}
		others.end(1)
		c.end(1)
	})
}

func TestTheTicketsOfOthersAreBeforeADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		c, others := newCrowd(t, e, nil), newCrowd(t, e, nil)
		others.come(2, "")
		c.come(1, "") // waits for two seconds, with one before it
		others.settle(2, 2)
		others.come(2, "")
		c.settle(1, 1)
		others.come(1, "") // two wait
		if _, refused := c.refused("", 2*time.Second); !refused {
			t.Error("it has two seconds, and two are before it")
		}
		if n := c.waiting(); n != 2 {
			t.Errorf("%d wait: what was refused has a ticket", n)
		}
		if _, refused := c.refused("", 4*time.Second); refused {
			t.Error("it has four seconds, and is refused")
		}
		others.end(3)
		c.end(1)
	})
}

// Ten times as many callers come as can be served: 5,000 a second for 20 ms of work with a limit of
// 10. Each has 500 ms to wait. With MaxWaiting = 10 × 100 ms ÷ 20 ms the served callers wait 100 ms,
// and the limit is in use.
func TestOverload(t *testing.T) {
	for _, clients := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			const each, seconds = 5, 3
			e := memengine.New()
			var all []*sema.Semaphore
			for range clients {
				s, err := sema.New(e, "x", 10, &sema.Options{MaxWaiting: 50})
				expect.OK(t, err)
				all = append(all, s)
			}
			served, inVain := make(chan time.Duration, each*1000*seconds), make(chan time.Duration, each*1000*seconds)
			for n := range each * 1000 * seconds {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					came := time.Now()
					p, err := all[n%clients].Acquire(ctx)
					if err != nil {
						inVain <- time.Since(came)
						return
					}
					served <- time.Since(came)
					time.Sleep(20 * time.Millisecond)
					expect.OK(t, p.Release())
				}()
				if n%each == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			waits, late := drain(served), drain(inVain)
			if n, possible := len(waits), 500*seconds; n < possible*95/100 {
				t.Errorf("%d clients: %d of %d were served", clients, n, possible)
			}
			slices.Sort(waits)
			slices.Sort(late)
			if p50 := waits[len(waits)/2]; p50 > 150*time.Millisecond {
				t.Errorf("%d clients: half of those served waited %v and longer", clients, p50)
			}
			if at := late[len(late)*99/100]; at > 0 {
				t.Errorf("%d clients: of a hundred refused one waited %v", clients, at)
			}
			for _, s := range all {
				expect.OK(t, s.Close())
			}
		})
	}
}

// drain is all that a channel has.
func drain[T any](c chan T) (all []T) {
	for range len(c) {
		all = append(all, <-c)
	}
	return all
}

// BenchmarkOverload sends ten times as many callers as a semaphore can serve: 5,000 a second for
// 20 ms of work with a limit of 10. Each has 500 ms to wait. "unknown" hides the deadline from
// the Semaphore, which then refuses nobody early. "deadline" lets it know, and "waiting" adds
// MaxWaiting. In the rows of "two" two clients share the limit.
//
//	go test -run '^$' -bench Overload -benchtime 1x .
func BenchmarkOverload(b *testing.B) {
	engines := []struct {
		name string
		open func(b *testing.B) func() sema.Engine // another client's way to the same store
	}{
		{"memory", func(*testing.B) func() sema.Engine {
			e := memengine.New()
			return func() sema.Engine { return e }
		}},
		{"files", func(b *testing.B) func() sema.Engine {
			dir := b.TempDir()
			return func() sema.Engine {
				e, err := fileengine.New(dir, nil)
				expect.OK(b, err)
				return e
			}
		}},
		{"redis", func(b *testing.B) func() sema.Engine {
			addr := redistest.Start(b).Addr()
			return func() sema.Engine {
				c := redis.NewClient(&redis.Options{Addr: addr})
				b.Cleanup(func() { _ = c.Close() })
				e, err := redisengine.New(c, nil)
				expect.OK(b, err)
				return e
			}
		}},
	}
	for _, e := range engines {
		for _, clients := range []string{"one", "two"} {
			for _, bound := range []string{"unknown", "deadline", "waiting"} {
				b.Run(e.name+"/"+clients+"/"+bound, func(b *testing.B) { overload(b, e.open(b), clients == "two", bound) })
			}
		}
	}
}

const (
	overloadLimit = 10
	overloadWork  = 20 * time.Millisecond
	overloadWait  = 500 * time.Millisecond
	overloadEach  = time.Millisecond // five callers come in each
)

func overload(b *testing.B, open func() sema.Engine, two bool, bound string) {
	o := &sema.Options{}
	if bound == "waiting" {
		o.MaxWaiting = int(overloadLimit * 100 * time.Millisecond / overloadWork)
	}
	clients := 1
	if two {
		clients = 2
	}
	var all []*sema.Semaphore
	for range clients {
		e := open()
		s, err := sema.New(e, b.Name(), overloadLimit, o)
		expect.OK(b, err)
		b.Cleanup(func() { _ = s.Close(); _ = e.Close() })
		all = append(all, s)
	}
	var served, refused []time.Duration
	var held time.Duration // by those served
	var late int
	var took time.Duration
	for b.Loop() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		began := time.Now()
		settled := began.Add(time.Second) // what comes before is not counted
		for n, end := 0, began.Add(4*time.Second); time.Now().Before(end); {
			for ; time.Duration(n/5)*overloadEach < time.Since(began); n++ {
				s := all[n%len(all)]
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(b.Context(), overloadWait)
					defer cancel()
					if bound == "unknown" {
						ctx, cancel = context.WithCancel(b.Context())
						defer cancel()
						defer time.AfterFunc(overloadWait, cancel).Stop()
					}
					came := time.Now()
					p, err := s.Acquire(ctx)
					waited := time.Since(came)
					if err == nil {
						time.Sleep(overloadWork)
						_ = p.Release()
					}
					work := time.Since(came) - waited
					if came.Before(settled) {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					var busy *sema.BusyError
					switch {
					case err == nil:
						served, held = append(served, waited), held+work
					case errors.As(err, &busy):
						refused = append(refused, waited)
					default:
						refused = append(refused, waited)
						late++
					}
				})
			}
			time.Sleep(overloadEach)
		}
		took += time.Since(settled)
		wg.Wait()
	}
	slices.Sort(served)
	slices.Sort(refused)
	ms := func(of []time.Duration, part float64) float64 {
		if len(of) == 0 {
			return 0
		}
		return of[int(part*float64(len(of)-1))].Seconds() * 1000
	}
	b.ReportMetric(ms(served, .5), "served-p50-ms")
	b.ReportMetric(ms(served, .99), "served-p99-ms")
	b.ReportMetric(ms(refused, .5), "refused-p50-ms")
	b.ReportMetric(100*float64(late)/float64(max(1, len(served)+late)), "waited-in-vain-%")
	b.ReportMetric(float64(len(served))/took.Seconds(), "served/s")
	b.ReportMetric(100*held.Seconds()/overloadLimit/took.Seconds(), "in-use-%") // of the limit: a busy machine makes the work longer
	b.ReportMetric(0, "ns/op")
}
