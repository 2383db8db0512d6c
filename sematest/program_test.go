package sematest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// export is a program as users have one: it writes parts, one after another,
// while it has a permit. A part that was begun when the permit was lost is done
// again under a new one.
func export(ctx context.Context, engine sema.Engine, parts int, log io.Writer) error {
	jobs, err := sema.New(engine, "export", 1, nil)
	if err != nil {
		return err
	}
	defer func() { _ = jobs.Close() }()
	for part := 0; part < parts; {
		err := jobs.Do(ctx, func(ctx context.Context) error {
			for ; part < parts; part++ {
				fmt.Fprintln(log, "begin", part)
				select {
				case <-time.After(time.Minute): // the work
					fmt.Fprintln(log, "done", part)
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, sema.ErrLost) {
			return err
		}
	}
	return nil
}

// lines is what a program printed, safe to look at while it runs.
type lines struct{ c chan string }

func newLines() lines { return lines{make(chan string, 1000)} }

func (l lines) Write(b []byte) (int, error) {
	l.c <- string(b)
	return len(b), nil
}

func (l lines) all() (text string) {
	for {
		select {
		case s := <-l.c:
			text += s
		default:
			return text
		}
	}
}

func TestProgramLosesItsPermitMidWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		log, ended := newLines(), make(chan error, 1)
		go func() { ended <- export(t.Context(), engine, 3, log) }()

		time.Sleep(90 * time.Second) // in the midst of the second part
		engine.Lose("export")
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got, want := log.all(), "begin 0\ndone 0\nbegin 1\nbegin 1\ndone 1\nbegin 2\ndone 2\n"; got != want {
			t.Errorf("the program did\n%swant\n%s", got, want)
		}
	})
}

func TestRenewalsThatFailForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "jobs", 1, nil)
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		end := engine.Inject(sematest.Fault{On: "renew", Err: sematest.Unreachable(), Times: sematest.Always})
		began := time.Now()
		<-p.Context(t.Context()).Done()
		if d := time.Since(began); d < 20*time.Second || d > 30*time.Second {
			t.Errorf("lost after %v, want the lease of 30 s less its margin", d)
		}
		end()
		_ = p.Release()
	})
}

func TestErrorsOfTheRealOnes(t *testing.T) {
	for name, err := range map[string]*engine.Error{
		"unreachable": sematest.Unreachable(), "no answer": sematest.NoAnswer(), "full": sematest.Full(),
		"of the user": {Hint: "turn it on", Err: errors.New("it is off")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := sematest.New(t)
				sem, e := sema.New(store, "jobs", 1, nil)
				expect.OK(t, e)
				defer func() { _ = sem.Close() }()
				defer store.Inject(sematest.Fault{On: "acquire", Err: err, Times: sematest.Always})()
				began := time.Now()
				_, got := sem.Acquire(t.Context())
				var failure *engine.Error
				if !errors.As(got, &failure) || failure.Temporary != err.Temporary || failure.NotExecuted != err.NotExecuted ||
					failure.Hint != err.Hint || failure.Err != err.Err || failure.Name != "jobs" || failure.Op != "acquire" {
					t.Errorf("Acquire: %#v; want what was injected: %#v", got, err)
				}
				if d := time.Since(began); err.Temporary != (d >= 3*time.Second) {
					t.Errorf("failed after %v", d)
				}
			})
		})
	}
}

func TestTheNextCallOnly(t *testing.T) {
	store := sematest.New(t)
	sem := open(t, store, "jobs", 2, nil)
	store.Inject(sematest.Fault{Semaphore: "another", Err: sematest.Full()})
	store.Inject(sematest.Fault{On: "operate", Err: sematest.Full()})
	store.Inject(sematest.Fault{Semaphore: "jobs", On: "state", Err: sematest.Full()})
	p, err := sem.Acquire(t.Context())
	expect.OK(t, err)
	var failure *engine.Error
	if _, err := sem.State(t.Context()); !errors.As(err, &failure) {
		t.Errorf("State: %v", err)
	}
	if _, err := sem.State(t.Context()); err != nil {
		t.Errorf("State again: %v", err)
	}
	if err := operator(t, store, "jobs").Set(t.Context(), sema.Rule{Limit: 5}); !errors.As(err, &failure) || !failure.NotExecuted {
		t.Errorf("Set: %v", err)
	}
	if st, err := sem.State(t.Context()); st.Limit != 2 || err != nil {
		t.Errorf("limit %d, %v", st.Limit, err)
	}
	store.Inject(sematest.Fault{On: "release", Err: &engine.Error{Err: errors.New("lost")}, Executed: true})
	if err := p.Release(); !errors.As(err, &failure) || failure.NotExecuted {
		t.Errorf("Release: %v", err)
	}
	if held := store.Held("jobs"); len(held) != 0 {
		t.Errorf("it was carried out, yet held: %v", held)
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "jobs", 1, nil)
		engine.Inject(sematest.Fault{Delay: 100 * time.Millisecond})
		began := time.Now()
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		if d := time.Since(began); d != 100*time.Millisecond {
			t.Errorf("took %v", d)
		}
		expect.OK(t, p.Release())

		end := engine.Inject(sematest.Fault{On: "acquire", Delay: time.Hour, Times: sematest.Always})
		ended := make(chan error, 1)
		go func() {
			p, err := sem.Acquire(t.Context())
			if err == nil {
				err = p.Release()
			}
			ended <- err
		}()
		time.Sleep(time.Second)
		end()
		end()
		expect.OK(t, <-ended)
		if d := time.Since(began); d != 1100*time.Millisecond {
			t.Errorf("ended after %v, want as soon as the fault did", d)
		}
	})
}
