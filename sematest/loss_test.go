package sematest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// A lost permit is nobody's before its holder has let go of it, or its lease has
// ended.
func TestALostPermitIsFreeWhenItsHolderKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "jobs", 1, &sema.Options{Lease: 10 * time.Second})
		first, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		engine.Held("jobs")[0].Lose()
		synctest.Wait()
		expect.Is(t, first.Err(), sema.ErrLost)
		if _, err := sem.TryAcquire(t.Context()); !errors.Is(err, sema.ErrBusy) {
			t.Errorf("somebody else has it: %v", err)
		}
		expect.Is(t, first.Release(), sema.ErrLost)
		second, err := sem.TryAcquire(t.Context())
		expect.OK(t, err)

		engine.Lose("jobs")
		began := time.Now()
		third, err := sem.Acquire(t.Context()) // the second is never released
		expect.OK(t, err)
		if waited := time.Since(began); waited < time.Second || waited > 10*time.Second+time.Millisecond {
			t.Errorf("it came %v after the loss, want the end of the lease", waited)
		}
		expect.Is(t, second.Err(), sema.ErrLost)
		expect.OK(t, third.Release())
	})
}

func TestAReleaseBeforeTheLossIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "jobs", 1, nil)
		for range 500 {
			p, err := sem.Acquire(t.Context())
			expect.OK(t, err)
			held, lost := engine.Held("jobs")[0], make(chan struct{})
			go func() {
				held.Lose()
				close(lost)
			}()
			if err := p.Release(); err != nil && !errors.Is(err, sema.ErrLost) {
				t.Fatal(err)
			}
			<-lost
			held.Lose() // changes nothing
		}
		p, err := sem.TryAcquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, p.Release())
	})
}

// A permit that another process has taken up is lost there.
func TestAResumedPermitIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		options := &sema.Options{Detached: true}
		first, err := sema.New(engine, "jobs", 1, options)
		expect.OK(t, err)
		p, err := first.Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, first.Close())
		engine.Lose("jobs") // nobody has it: nothing happens yet
		second := open(t, engine, "jobs", 1, options)
		if _, err := second.Resume(t.Context(), p.ID()); !errors.Is(err, sema.ErrLost) {
			t.Errorf("a lost permit was resumed: %v", err)
		}
		expect.Is(t, operator(t, engine, "jobs").Release(t.Context(), p.ID()), sema.ErrLost)

		p, err = second.Acquire(t.Context())
		expect.OK(t, err)
		third := open(t, engine, "jobs", 1, options)
		p, err = third.Resume(t.Context(), p.ID())
		expect.OK(t, err)
		engine.Lose("jobs")
		<-p.Context(t.Context()).Done()
		_ = p.Release()
	})
}

// With the engine out of reach a loss is known when it is back.
func TestALossThatCannotBeToldYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "jobs", 1, nil)
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		end := engine.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})
		engine.Lose("jobs")
		synctest.Wait()
		expect.OK(t, p.Err())
		end()
		<-p.Context(t.Context()).Done()
		expect.Is(t, p.Release(), sema.ErrLost)
	})
}
