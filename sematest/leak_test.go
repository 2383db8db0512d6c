package sematest_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// forgets is a function that forgets to release.
func forgets(t *testing.T, sem *sema.Semaphore) *sema.Permit {
	p, err := sem.Acquire(t.Context(), sema.Weight(2))
	expect.OK(t, err)
	t.Cleanup(func() { runtime.KeepAlive(p) })
	return p
}

func TestWhatWasNotReleasedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := &told{TB: t}
		engine := sematest.New(test)
		sem, err := sema.New(engine, "jobs", 9, nil)
		expect.OK(t, err)
		p := forgets(t, sem)
		other, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, other.Release())
		said := test.end()
		if len(said) != 1 {
			t.Fatalf("told %d times: %q", len(said), said)
		}
		expect.Has(t, said[0], p.ID(), `"jobs"`, "weight 2", "sematest_test.forgets\n", "leak_test.go:")
		// The place is the user's, not this package's.
		if first := strings.Split(said[0], "\n")[1]; !strings.HasSuffix(first, ".forgets") {
			t.Errorf("the place begins with %s", first)
		}
		_ = sem.Close()
	})
}

// A crowd acquires at once, so that most do not carry their own call.
func TestPlacesOfACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := &told{TB: t}
		engine := sematest.New(test)
		engine.Inject(sematest.Fault{Delay: 20 * time.Millisecond, Times: sematest.Always})
		sem, err := sema.New(engine, "jobs", 100, nil)
		expect.OK(t, err)
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() { forgets(t, sem) })
		}
		crowd.Wait()
		for _, said := range test.end() {
			if !strings.Contains(said, "sematest_test.forgets\n") || strings.Contains(said, "one of these places") {
				t.Fatal(said)
			}
		}
		if n := len(test.errors); n != 50 {
			t.Errorf("told of %d permits, want 50", n)
		}
		_ = sem.Close()
	})
}

// What is released, lost, given back by Close or meant to stay is not named.
func TestWhatIsNoLeak(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, e *sematest.Engine, sem *sema.Semaphore, p *sema.Permit){
		"released": func(t *testing.T, _ *sematest.Engine, _ *sema.Semaphore, p *sema.Permit) { expect.OK(t, p.Release()) },
		"lost":     func(_ *testing.T, e *sematest.Engine, _ *sema.Semaphore, _ *sema.Permit) { e.Lose("jobs") },
		"closed":   func(t *testing.T, _ *sematest.Engine, sem *sema.Semaphore, _ *sema.Permit) { expect.OK(t, sem.Close()) },
		"by its id": func(t *testing.T, e *sematest.Engine, _ *sema.Semaphore, p *sema.Permit) {
			expect.OK(t, operator(t, e, "jobs").Release(t.Context(), p.ID()))
		},
		"released in vain": func(t *testing.T, e *sematest.Engine, _ *sema.Semaphore, p *sema.Permit) {
			end := e.Inject(sematest.Fault{Times: sematest.Always, Err: sematest.Unreachable()})
			_ = p.Release()
			t.Cleanup(end)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test := &told{TB: t}
				engine := sematest.New(test)
				sem, err := sema.New(engine, "jobs", 9, nil)
				expect.OK(t, err)
				do(t, engine, sem, forgets(t, sem))
				if said := test.end(); len(said) > 0 {
					t.Error(said)
				}
				_ = sem.Close()
			})
		})
	}
}

func TestDetachedPermitsAreMeantToStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem, err := sema.New(engine, "jobs", 9, &sema.Options{Detached: true})
		expect.OK(t, err)
		_, err = sem.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, sem.Close())
		if n := len(engine.Held("jobs")); n != 1 {
			t.Errorf("%d held", n)
		}
	})
}

// A wait that is cancelled at the moment of its grant gives the permit back in
// the background; the end of the test waits for that.
func TestCancelledWaitsAreNoLeak(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			test := &told{TB: t}
			engine := sematest.New(test)
			sem, err := sema.New(engine, "jobs", 1, nil)
			expect.OK(t, err)
			p, err := sem.Acquire(t.Context())
			expect.OK(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				if p, err := sem.Acquire(ctx); err == nil {
					_ = p.Release()
				}
				close(ended)
			}()
			engine.AwaitWaiting(t.Context(), "jobs", 1)
			go cancel()
			expect.OK(t, p.Release())
			<-ended
			if said := test.end(); len(said) > 0 {
				t.Fatal(said)
			}
			_ = sem.Close()
		})
	}
}

func TestUseThatMakesNoSense(t *testing.T) {
	full := sematest.Full()
	for want, do := range map[string]func(e *sematest.Engine){
		"nobody holds a permit of \"jobs\"": func(e *sematest.Engine) { e.Lose("jobs") },
		"0 permits of \"jobs\" held, want 1: context deadline exceeded": func(e *sematest.Engine) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			e.AwaitHeld(ctx, "jobs", 1)
		},
		"want Times of at least": func(e *sematest.Engine) { e.Inject(sematest.Fault{Times: -2}) },
		"a Delay of at least":    func(e *sematest.Engine) { e.Inject(sematest.Fault{Delay: -1}) },
		`fault on "x": want no On, or acquire, renew, release, operate, state`: func(e *sematest.Engine) { e.Inject(sematest.Fault{On: "x"}) },
		"Executed wants":    func(e *sematest.Engine) { e.Inject(sematest.Fault{Err: full, Executed: true}) },
		"Executed wants an": func(e *sematest.Engine) { e.Inject(sematest.Fault{Executed: true}) },
	} {
		test := &told{TB: t}
		expect.Has(t, test.fatal(func() { do(sematest.New(test)) }), want)
		test.end()
	}
}
