package admit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// limited is a limiter of a Group that is called jobs, in a bubble.
func limited(t *testing.T, limit int, o *each.Options, l JobOptions) (*sematest.Engine, *Jobs) {
	t.Helper()
	e := sematest.New(t)
	return e, another(t, e, limit, o, l)
}

// another is another process's limiter of the same engine.
func another(t *testing.T, e *sematest.Engine, limit int, o *each.Options, l JobOptions) *Jobs {
	t.Helper()
	group, err := each.New(e, "jobs", limit, o)
	expect.OK(t, err)
	t.Cleanup(func() { _ = group.Close() })
	l.Group = group
	limiter, err := NewJobs("test", l)
	expect.OK(t, err)
	return limiter
}

// semOf is a semaphore that is open until the test ends.
func semOf(t *testing.T, e sema.Engine, name string, limit int, o *sema.Options) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, name, limit, o)
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, s.Close()) })
	return s
}

// job is a job of a key that works for so long.
func (l *Jobs) job(ctx context.Context, key string, d time.Duration) error {
	return l.Do(ctx, Job{Key: []string{key}, Weight: 1}, func(context.Context) error { time.Sleep(d); return nil })
}

func wantPostponed(t *testing.T, err, because error) *Postponed {
	t.Helper()
	var p *Postponed
	if !errors.As(err, &p) || !errors.Is(err, because) {
		t.Fatalf("%v; want it postponed: %v", err, because)
	}
	return p
}

func TestAJobWaitsAndGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 1, nil, JobOptions{Wait: 2 * time.Second, Back: 4 * time.Second})
		go l.job(t.Context(), "a", time.Second)
		synctest.Wait()
		expect.OK(t, l.job(t.Context(), "a", 10*time.Second)) // waited a second
		go l.job(t.Context(), "a", 10*time.Second)
		synctest.Wait()
		began := time.Now()
		p := wantPostponed(t, l.job(t.Context(), "a", 0), sema.ErrBusy)
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("waited %v; want 2s", d)
		}
		if p.After < 2*time.Second || p.After > 4*time.Second {
			t.Errorf("back for %v; want 2s … 4s", p.After)
		}
		if !strings.HasPrefix(p.Error(), "test: goes back to its queue: ") {
			t.Error(p)
		}
		expect.OK(t, l.job(t.Context(), "b", 0)) // another key
		time.Sleep(10 * time.Second)
	})
}

// Wait bounds the wait in the queue, and not the way to the engine.
func TestAJobWithAShortWaitFindsAFreePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := limited(t, 1, nil, JobOptions{Wait: time.Millisecond})
		e.Inject(sematest.Fault{Delay: 20 * time.Millisecond, Times: sematest.Always})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { expect.OK(t, l.job(ctx, "a", time.Second)) }()
		time.Sleep(100 * time.Millisecond)
		err := l.job(ctx, "a", 0)
		wantPostponed(t, err, sema.ErrBusy)
		wantPostponed(t, err, context.DeadlineExceeded) // by which jobs know that they waited
		time.Sleep(2 * time.Second)
		expect.OK(t, l.job(ctx, "a", 0))
	})
}

// A job that has a deadline of its own goes back before that would make it fail.
func TestAJobGoesBackBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 1, nil, JobOptions{Wait: time.Minute})
		go l.job(t.Context(), "a", time.Hour)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		wantPostponed(t, l.job(ctx, "a", 0), sema.ErrBusy)
		expect.OK(t, ctx.Err())
		time.Sleep(time.Hour)
	})
	synctest.Test(t, func(t *testing.T) { // of an engine that says nothing
		e, l := limited(t, 1, nil, JobOptions{Wait: time.Millisecond})
		healed := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		wantPostponed(t, l.job(ctx, "a", 0), sema.ErrEngine)
		expect.OK(t, ctx.Err())
		healed()
	})
	synctest.Test(t, func(t *testing.T) { // of an engine that falls silent while the job waits behind another of its key
		e := sematest.New(t)
		s := semOf(t, e, "jobs", 2, &sema.Options{Caps: sema.Caps{1}})
		l, err := NewJobs("test", JobOptions{Semaphore: s})
		expect.OK(t, err)
		go l.job(t.Context(), "a", 5*time.Second)
		time.Sleep(time.Millisecond)
		go l.job(t.Context(), "a", 0)
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
		defer cancel()
		time.AfterFunc(20*time.Millisecond, func() {
			time.AfterFunc(2*time.Second, e.Inject(sematest.Fault{Delay: time.Minute, Times: sematest.Always}))
		})
		began := time.Now()
		if err := l.job(ctx, "a", 0); time.Since(began) > 400*time.Millisecond {
			t.Errorf("waited %v of 800ms: %v", time.Since(began), err)
		}
		time.Sleep(10 * time.Second)
	})
}

// A function of the user's that panics leaves no place of its job behind.
func TestAPanicLeavesNoJobBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := false
		_, l := limited(t, 1, &each.Options{Idle: time.Second, LimitOf: func(string) int {
			if bad {
				panic("a user's mistake")
			}
			return 1
		}}, JobOptions{})
		go l.job(t.Context(), "a", 3*time.Second)
		synctest.Wait()
		wantPostponed(t, l.job(t.Context(), "a", 0), sema.ErrBusy)
		time.Sleep(10 * time.Second) // the name is closed again
		bad = true
		func() {
			defer func() { _ = recover() }()
			_ = l.job(t.Context(), "a", 0)
		}()
		if bad = false; l.Full("a") {
			t.Error("full, though nobody waits")
		}
	})
}

// After one has waited in vain only one of its key waits; the others take what is
// free, and go back at once otherwise. When permits come again, more may wait.
func TestRoomOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 2, nil, JobOptions{Wait: 10 * time.Second})
		ctx := t.Context()
		var held sync.WaitGroup
		for range 2 {
			held.Go(func() { expect.OK(t, l.job(ctx, "a", time.Minute)) })
		}
		synctest.Wait()
		for range 5 { // nothing is known yet: all may wait
			held.Go(func() { wantPostponed(t, l.job(ctx, "a", 0), sema.ErrBusy) })
		}
		synctest.Wait()
		if l.Full("a") {
			t.Error("full before anybody waited in vain")
		}
		time.Sleep(20 * time.Second)
		if l.Full("a") {
			t.Error("full though nobody waits")
		}
		held.Go(func() { wantPostponed(t, l.job(ctx, "a", 0), sema.ErrBusy) })
		synctest.Wait()
		if !l.Full("a") || l.Full("b") {
			t.Error("one of a waits: want a full, and b not")
		}
		began := time.Now()
		wantPostponed(t, l.job(ctx, "a", 0), sema.ErrBusy)
		if d := time.Since(began); d != 0 {
			t.Errorf("one more waited for %v; want it back at once", d)
		}
		held.Wait()

		// With free permits a crowd finds all of them, though one may wait.
		var done atomic.Int64
		for range 10 {
			held.Go(func() {
				if l.job(ctx, "a", time.Second) == nil {
					done.Add(1)
				}
			})
		}
		held.Wait()
		if n := done.Load(); n < 2 {
			t.Errorf("%d found a permit; want 2 or more", n)
		}
		for range 10 { // each grant doubles the room
			expect.OK(t, l.job(ctx, "a", 0))
		}
		if n := len(l.rooms.byKey); n != 0 {
			t.Errorf("%d keys are remembered; want none", n)
		}
	})
}

func TestKeysAreForgotten(t *testing.T) {
	r := newRooms()
	for i := range 5 * many {
		key := string(rune(i))
		r.enter(key)
		r.leave(key, false)
	}
	if n := len(r.byKey); n > many {
		t.Errorf("%d keys are remembered; want %d at most", n, many)
	}
}

func TestWeightsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 3, nil, JobOptions{})
		work := func(context.Context) error { time.Sleep(time.Minute); return nil }
		go l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 2}, work)
		synctest.Wait()
		wantPostponed(t, l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 2}, work), sema.ErrBusy)
		go l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 1}, work)
		time.Sleep(2 * time.Minute)

		// What can never be is no reason to try again.
		var heavy *sema.WeightError
		var argument *sema.ArgumentError
		if err := l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 4}, work); !errors.As(err, &heavy) {
			t.Errorf("weight 4 of 3: %v", err)
		}
		for _, key := range [][]string{nil, {""}, {"a\x01b"}, {"a", "", "b"}, {"a", "b", "c", "d", "e"}} {
			if err := l.Do(t.Context(), Job{Key: key, Weight: 1}, work); !errors.As(err, &argument) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	})
}

// Users of one organisation do not hold each other up, until the organisation is full. A job without a
// key counts for the limit alone.
func TestPathsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		s := semOf(t, e, "jobs", 3, &sema.Options{Caps: sema.Caps{2, 1}})
		l, err := NewJobs("test", JobOptions{Semaphore: s})
		expect.OK(t, err)
		do := func(d time.Duration, key ...string) error {
			return l.Do(t.Context(), Job{Key: key, Weight: 1}, func(context.Context) error { time.Sleep(d); return nil })
		}
		go do(time.Minute, "acme", "alice")
		synctest.Wait()
		wantPostponed(t, do(0, "acme", "alice"), sema.ErrBusy)
		go do(time.Minute, "acme", "alice")
		synctest.Wait()
		if !l.Full("acme", "alice") || l.Full("acme", "bob") || l.Full("acme") || l.Full() {
			t.Error("one of alice waits: want alice full, and nobody else")
		}
		go do(time.Minute, "acme", "bob")
		synctest.Wait()
		wantPostponed(t, do(0, "acme", "carol"), sema.ErrBusy) // acme holds two
		expect.OK(t, do(0))
		var got []engine.Key
		for _, p := range e.Held("jobs") {
			got = append(got, p.Key)
		}
		if want := []engine.Key{"acme\x01alice", "acme\x01bob"}; !slices.Equal(got, want) {
			t.Errorf("held by %v, want %v", got, want)
		}
		expect.OK(t, do(0, "globex", "alice"))
		time.Sleep(time.Hour)
	})
}

// A job whose permit is lost is cancelled, and goes back whatever it returns: a queue may know that error, and drop the job.
func TestALostPermitPostponesAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := limited(t, 1, nil, JobOptions{})
		drop := errors.New("drop this job")
		for _, verdict := range []error{nil, drop} {
			err := l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 1}, func(ctx context.Context) error {
				e.Lose("jobs/a")
				<-ctx.Done()
				expect.Is(t, context.Cause(ctx), sema.ErrLost)
				return verdict
			})
			if wantPostponed(t, err, sema.ErrLost); errors.Is(err, drop) || verdict != nil && !strings.Contains(err.Error(), drop.Error()) {
				t.Errorf("after %v: %v", verdict, err)
			}
		}
		// One that gave its permit back itself is done.
		expect.OK(t, l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 1}, func(ctx context.Context) error { return sema.PermitFrom(ctx).Release() }))
	})
}

// One that was held for too long has failed: it would be so again.
func TestAJobThatHoldsTooLongFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 1, &each.Options{Semaphore: sema.Options{MaxHold: time.Second}}, JobOptions{})
		err := l.Do(t.Context(), Job{Key: []string{"a"}, Weight: 1}, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		expect.Is(t, err, sema.ErrHeldTooLong)
		expect.Is(t, err, context.Canceled)
		if p := (*Postponed)(nil); errors.As(err, &p) {
			t.Errorf("postponed: %v", err)
		}
	})
}

// While the engine is away jobs go back, and each has kept its worker for Wait at
// most.
func TestJobsGoBackInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := limited(t, 1, nil, JobOptions{Wait: time.Second})
		end := e.Inject(sematest.Fault{Times: sematest.Always, Err: sematest.Unreachable()})
		for range 3 {
			began := time.Now()
			wantPostponed(t, l.job(t.Context(), "a", 0), sema.ErrEngine)
			if d := time.Since(began); d > time.Second {
				t.Errorf("waited %v", d)
			}
		}
		end()
		expect.OK(t, l.job(t.Context(), "a", 0))
	})
}

// After its limiter was closed, a job goes back to the queue, for another
// process.
func TestJobsGoBackWhenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := limited(t, 1, nil, JobOptions{})
		expect.OK(t, l.options.Group.Close())
		wantPostponed(t, l.job(t.Context(), "a", 0), sema.ErrClosed)
	})
}

func TestBadJobOptions(t *testing.T) {
	s := semOf(t, sematest.New(t), "jobs", 1, nil)
	for _, bad := range []JobOptions{{}, {Semaphore: s, Group: &each.Group{}}, {Semaphore: s, Wait: -1}, {Semaphore: s, Back: -1}} {
		var argument *sema.ArgumentError
		if _, err := NewJobs("test", bad); !errors.As(err, &argument) || argument.Package != "test" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Long jobs of two keys share a total of one. Those of a come first in the queue and
// are many more; those of b are worked on all the same.
func TestNoJobStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		queue := make(chan string, 1000)
		for range 100 {
			queue <- "a"
		}
		for range 10 {
			queue <- "b"
		}
		var mu sync.Mutex
		done := map[string]int{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for range 3 {
			l := another(t, e, 1, nil, JobOptions{Back: 10 * time.Second})
			for range 3 {
				all.Go(func() {
					for ctx.Err() == nil {
						key := <-queue
						err := l.job(ctx, key, 30*time.Second)
						var p *Postponed
						if errors.As(err, &p) {
							all.Go(func() { time.Sleep(p.After); queue <- key })
							continue
						}
						mu.Lock()
						done[key]++
						enough := done["a"]+done["b"] >= 20
						mu.Unlock()
						if enough {
							cancel()
						}
					}
				})
			}
		}
		all.Wait()
		if done["a"] < 3 || done["b"] < 3 {
			t.Errorf("%v are done; want 3 of each at least", done)
		}
	})
}

// A flood of a tenant whose cap is reached does not block the next tenant, which has free permits:
// though the jobs of the flood were first in the queue, and there are only so many workers. The flood goes on
// meanwhile.
func TestAFloodLeavesWorkersToOthers(t *testing.T) {
	const workers, flood, others = 10, 60, 20
	for _, work := range []time.Duration{100 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := sematest.New(t)
			s := semOf(t, e, "jobs", 4, &sema.Options{Caps: sema.Caps{2}})
			l, err := NewJobs("test", JobOptions{Semaphore: s})
			expect.OK(t, err)
			queue := make(chan string, flood+others)
			for range flood {
				queue <- "a"
			}
			for range others {
				queue <- "b"
			}
			var mu sync.Mutex
			var done []string
			var all, back sync.WaitGroup
			all.Add(flood + others)
			for range workers {
				back.Go(func() {
					for key := range queue {
						err := l.job(t.Context(), key, work)
						if err == nil {
							mu.Lock()
							done = append(done, key)
							mu.Unlock()
							all.Done()
							continue
						}
						p := wantPostponed(t, err, sema.ErrBusy)
						back.Go(func() {
							time.Sleep(p.After)
							queue <- key
						})
					}
				})
			}
			began := time.Now()
			all.Wait()
			took := time.Since(began)
			close(queue)
			back.Wait()
			if place := slices.Index(done, "b"); place > 10 {
				t.Errorf("jobs of %v: the first of the others was done as number %d of %d", work, place+1, len(done))
			}
			if least := flood / 2 * work; took > 2*least {
				t.Errorf("jobs of %v: %v for all, want less than twice %v", work, took, least)
			}
		})
	}
}

// While nothing is free for anybody, jobs wait for what comes free.
func TestAFloodWaitsIfNobodyElseCouldRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		s := semOf(t, e, "jobs", 4, &sema.Options{Caps: sema.Caps{4}})
		l, err := NewJobs("test", JobOptions{Semaphore: s})
		expect.OK(t, err)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { expect.OK(t, l.job(t.Context(), "a", 300*time.Millisecond)) })
		}
		all.Wait()
	})
}
