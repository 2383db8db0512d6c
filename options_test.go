package sema_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
)

// A bad option fails before anything is asked of the engine.
func TestABadOptionIsRefusedAtOnce(t *testing.T) {
	for what, options := range map[string][]sema.AcquireOption{
		"weight":   {sema.Weight(0)},
		"key":      {sema.For("")},
		"label":    {sema.Label("two\nlines")},
		"priority": {sema.Priority(25 * time.Hour)},
	} {
		bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
			_, err := s.Acquire(t.Context(), options...)
			_, err2 := s.TryAcquire(t.Context(), options...)
			err3 := s.Do(t.Context(), func(context.Context) error { return nil }, options...)
			for _, err := range []error{err, err2, err3} {
				var refused *sema.ArgumentError
				if !errors.As(err, &refused) || refused.What != what {
					t.Errorf("%s: %v", what, err)
				}
			}
			if n := e.calls.Load(); n != 0 {
				t.Errorf("%s: the engine was asked %d times", what, n)
			}
		})
	}
}

// Of several options of one kind the last one counts, and For() and the zero option ask for nothing.
func TestTheLastOptionOfAKindCounts(t *testing.T) {
	bubble(t, &sema.Options{Caps: sema.Caps{1}}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p, err := s.Acquire(t.Context(), sema.AcquireOption{}, sema.Weight(0), sema.Weight(1), sema.For(""), sema.For("a"),
			sema.Label("one\ntwo"), sema.Label("job 7"), sema.Priority(-1), sema.Priority(0))
		expect.OK(t, err)
		st, err := s.State(t.Context())
		expect.OK(t, err)
		if h := st.Holders[0]; h.Key != "a" || h.Client.Label != "job 7" || h.Weight != 1 {
			t.Errorf("%+v", h)
		}
		expect.OK(t, p.Release())
		p, err = s.Acquire(t.Context(), sema.For("a"), sema.For())
		expect.OK(t, err)
		if st, err = s.State(t.Context()); err != nil || st.Holders[0].Key != "" {
			t.Errorf("%+v, %v", st, err)
		}
		expect.OK(t, p.Release())
	})
}

// WaitAtMost bounds the wait alone: that of Do leaves the work its time.
func TestTheWaitIsBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, s.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}, sema.WaitAtMost(time.Second)))
		held := acquire(t, s)
		for most, want := range map[time.Duration]time.Duration{time.Second: time.Second, 0: 0, -time.Second: 0} {
			began := time.Now()
			_, err := s.Acquire(t.Context(), sema.WaitAtMost(most))
			wantOnly(t, err, sema.ErrBusy, nil)
			if took := time.Since(began); took != want { // in virtual time
				t.Errorf("it took %v, want %v", took, want)
			}
		}
		time.Sleep(time.Second) // the ticket of the last one that waited is not kept for longer
		e.slow.Store(int64(time.Hour))
		_, err := s.Acquire(t.Context(), sema.WaitAtMost(time.Second)) // nobody knows whether a permit is free
		wantOnly(t, err, sema.ErrEngine, nil)
		e.slow.Store(0)
		_ = held.Release()
	})
}

// The bound is for the queue, and not for the way to the engine: what is free is granted.
func TestABoundShorterThanTheWayToTheEngine(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(5 * time.Millisecond))
		for _, most := range []time.Duration{0, 1, time.Millisecond} {
			p, err := s.Acquire(t.Context(), sema.WaitAtMost(most))
			expect.OK(t, err)
			began := time.Now()
			_, err = s.Acquire(t.Context(), sema.WaitAtMost(most))
			wantOnly(t, err, sema.ErrBusy, nil)
			if took := time.Since(began); took > 10*time.Millisecond { // in virtual time
				t.Errorf("it took %v", took)
			}
			expect.OK(t, p.Release())
		}
	})
}

// What no program can handle panics, and says what is wrong.
func TestMisusePanics(t *testing.T) {
	ctx, work := t.Context(), func(context.Context) error { return nil }
	sem := semOf(t, memengine.New(), "x", 1, nil)
	var none *sema.Semaphore
	for what, do := range map[string]func(){
		"Do without a function":   func() { _ = sem.Do(ctx, nil) },
		"Acquire of a zero value": func() { _, _ = new(sema.Semaphore).Acquire(ctx) },
		"Do of a zero value":      func() { _ = new(sema.Semaphore).Do(ctx, work) },
		"TryAcquire of nil":       func() { _, _ = none.TryAcquire(ctx) },
		"Resume of a zero value":  func() { _, _ = new(sema.Semaphore).Resume(ctx, "a-1-1") },
		"State of a zero value":   func() { _, _ = new(sema.Semaphore).State(ctx) },
		"Close of a zero value":   func() { _ = new(sema.Semaphore).Close() },
		"Shutdown of nil":         func() { _ = none.Shutdown(ctx) },
		"Pause of a zero value":   func() { _ = new(sema.Operator).Pause(ctx) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "sema: ") {
					t.Errorf("%s: %s", what, said)
				}
			}()
			do()
			t.Errorf("%s: no panic", what)
		}()
	}
	if st, err := sem.State(ctx); err != nil || st.Used != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

// An option costs no memory.
func TestAllocationsOfAnAcquisition(t *testing.T) {
	sem := semOf(t, memengine.New(), "x", 2, &sema.Options{Keep: time.Second, Caps: sema.Caps{2}})
	ctx, tenant := t.Context(), "tenant"
	for what, acquire := range map[string]func() (*sema.Permit, error){
		"no option": func() (*sema.Permit, error) { return sem.Acquire(ctx) },
		"For":       func() (*sema.Permit, error) { return sem.Acquire(ctx, sema.For(tenant)) },
		"Weight":    func() (*sema.Permit, error) { return sem.Acquire(ctx, sema.Weight(2)) },
	} {
		pair := func() {
			p, err := acquire()
			expect.OK(t, err)
			expect.OK(t, p.Release())
		}
		if n := testing.AllocsPerRun(1000, pair); n != 2 {
			t.Errorf("%s: %v allocations, want 2", what, n)
		}
	}
}

// The package stays one that is read in a sitting: each exported name is one to learn.
func TestTheNamesOfThePackage(t *testing.T) {
	const most = 86
	files, err := filepath.Glob("*.go")
	expect.OK(t, err)
	var names []string
	add := func(name string) {
		if ast.IsExported(name) {
			names = append(names, name)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		expect.OK(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if ofExported(d) {
					add(d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						add(s.Name.Name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							add(n.Name)
						}
					}
				}
			}
		}
	}
	if len(names) > most || len(names) < most/2 {
		t.Errorf("%d exported names, want at most %d: %v", len(names), most, names)
	}
	t.Logf("%d exported names", len(names))
}

// ofExported reports whether a function is a method of an exported type, or of none.
func ofExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}

// Operators see which program has a permit, also if its author gave no label.
func TestWithoutALabelThePermitHasTheNameOfTheProgram(t *testing.T) {
	sem := semOf(t, memengine.New(), "db", 2, nil)
	if _, err := sem.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := sem.State(t.Context())
	expect.OK(t, err)
	if got, want := state.Holders[0].Client.Label, filepath.Base(os.Args[0]); got != want {
		t.Errorf("the permit has the label %q, want %q", got, want)
	}
}

// The engine may notify of its end while New is still at it. Whatever is done
// meanwhile succeeds, or says that the engine was closed.
func TestNewWhileTheEngineCloses(t *testing.T) {
	for range 200 {
		e := memengine.New()
		ended := func(what string, err error, also ...error) {
			for _, allowed := range append(also, nil, sema.ErrClosed) {
				if errors.Is(err, allowed) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				s, err := sema.New(e, "x", 1, nil)
				ended("New", err)
				if err != nil {
					return
				}
				p, err := s.TryAcquire(t.Context())
				ended("TryAcquire", err, sema.ErrBusy)
				if err == nil {
					ended("Release", p.Release(), sema.ErrLost)
				}
				ended("Close", s.Close())
			})
		}
		all.Go(func() { ended("closing the engine", e.Close()) })
		all.Wait()
	}
}

// An engine that could not be made is refused at once, not at the first call.
func TestAnEngineThatIsNone(t *testing.T) {
	for name, e := range map[string]sema.Engine{"nil": nil, "memengine": (*memengine.Engine)(nil), "redisengine": (*redisengine.Engine)(nil)} {
		for what, try := range map[string]func() error{
			"New":     func() error { _, err := sema.New(e, "x", 1, nil); return err },
			"Operate": func() error { _, err := sema.Operate(e, "x"); return err },
		} {
			var refused *sema.ArgumentError
			if err := try(); !errors.As(err, &refused) || refused.What != "engine" || refused.Value != nil {
				t.Errorf("%s of a nil engine, %s: %v", what, name, err)
			}
		}
	}
}

// What another process keeps is asked back, and meanwhile the engine has answered: nobody may take that
// for an engine that is away.
func TestAnEngineThatRecallsHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		var both []*sema.Semaphore
		for range 2 {
			s := semOf(t, e, "x", 1, &sema.Options{Keep: 10 * time.Millisecond})
			both = append(both, s)
		}
		p := acquire(t, both[0])
		time.Sleep(10 * time.Millisecond)
		for what, option := range map[string]sema.AcquireOption{
			"the engine's answer bounded": sema.AnswerWithin(100 * time.Millisecond),
			"the wait bounded":            sema.WaitAtMost(50 * time.Millisecond),
		} {
			if _, err := both[1].TryAcquire(t.Context(), option); !errors.Is(err, sema.ErrBusy) || errors.Is(err, sema.ErrEngine) {
				t.Errorf("%s: %v", what, err)
			}
		}
		expect.OK(t, p.Release())
	})
}

// A wait under a permit of the same semaphore ends with its bound, and the semaphore goes on.
func TestABoundedWaitUnderAPermitOfTheSame(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 2}))
		a := acquire(t, s)
		b, err := s.TryAcquire(t.Context())
		expect.OK(t, err)
		_, err = s.Acquire(a.Context(t.Context()), sema.WaitAtMost(time.Second))
		wantOnly(t, err, sema.ErrBusy, nil)
		expect.OK(t, errors.Join(a.Release(), b.Release()))
	})
}

// Bounds as short as the engine's answers: each caller has a permit, or is told that none was free in time.
func TestAShortBoundOfTheWait(t *testing.T) {
	s := semOf(t, memengine.New(), "x", 1, nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 300 {
				p, err := s.Acquire(t.Context(), sema.WaitAtMost(100*time.Microsecond))
				if err == nil {
					expect.OK(t, p.Release())
				} else if !errors.Is(err, sema.ErrBusy) || strings.Contains(err.Error(), "%!") {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A bound of three seconds or more for the engine's answer changes nothing, also where a patient caller waits
// longer; nor does one of 0 in front of a shorter one.
func TestALongBoundOfTheAnswerChangesNothing(t *testing.T) {
	bubble(t, &sema.Options{Patient: true}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(time.Hour))
		for _, c := range []struct {
			options []sema.AcquireOption
			want    time.Duration
		}{
			{[]sema.AcquireOption{sema.AnswerWithin(10 * time.Second)}, time.Minute},
			{[]sema.AcquireOption{sema.AnswerWithin(time.Second), sema.AnswerWithin(0)}, time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			_, err := s.Acquire(ctx, c.options...)
			cancel()
			if took := time.Since(began); !errors.Is(err, sema.ErrEngine) || took != c.want {
				t.Errorf("%v after %v, want %v", err, took, c.want)
			}
		}
	})
}

// A caller that goes before those who wait is not refused because of them.
func TestPriorityIsNotRefusedForThoseBehindIt(t *testing.T) {
	bubble(t, &sema.Options{MaxWaiting: 2}, func(t *testing.T, _ *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _, _ = s.Acquire(ctx) })
			synctest.Wait()
		}
		var busy *sema.BusyError
		if _, err := s.Acquire(t.Context(), sema.WaitAtMost(time.Second)); !errors.As(err, &busy) {
			t.Errorf("a third caller: %v", err)
		}
		quick := make(chan error, 1)
		go func() {
			p, err := s.Acquire(t.Context(), sema.Priority(time.Hour))
			if err == nil {
				err = p.Release()
			}
			quick <- err
		}()
		synctest.Wait()
		expect.OK(t, p.Release())
		expect.OK(t, <-quick)
		cancel()
		all.Wait()
	})
}

// A permit that was lost is lost, also when its Semaphore has been closed since.
func TestALossOutlivesItsSemaphore(t *testing.T) {
	bubble(t, &sema.Options{MaxHold: time.Second}, func(t *testing.T, _ *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		<-p.Context(t.Context()).Done()
		expect.OK(t, s.Close())
		expect.Is(t, p.Release(), sema.ErrHeldTooLong)
		expect.Is(t, p.Release(), sema.ErrReleased)
	})
}
