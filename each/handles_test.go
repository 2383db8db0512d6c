package each_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/client"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
	"sema/sematest"
)

func TestNamesAreOpenWhileInUseAndIdleForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		var told []string
		g := newGroup(t, e, 1, &each.Options{Open: 3, Idle: 10 * time.Second, Semaphore: sema.Options{Observer: sema.Observer{Failed: func(o sema.Event) { told = append(told, o.Semaphore) }}}})
		held := acquire(t, g, "held")
		expect.OK(t, acquire(t, g, "a").Release())
		time.Sleep(6 * time.Second)
		expect.OK(t, acquire(t, g, "b").Release())
		e.is(t, "tenants/a tenants/b tenants/held")
		time.Sleep(4 * time.Second)
		e.is(t, "tenants/b tenants/held") // a was idle for ten seconds
		expect.OK(t, acquire(t, g, "b").Release())
		time.Sleep(6 * time.Second)
		e.is(t, "tenants/b tenants/held") // b was used again
		time.Sleep(time.Hour)
		e.is(t, "tenants/held")
		expect.OK(t, held.Err())

		// With all in use a further name has to go away; a used one has not.
		second, third := acquire(t, g, "2"), acquire(t, g, "3")
		_, err := g.Acquire(t.Context(), "4")
		expect.Is(t, err, each.ErrTooMany)
		expect.Is(t, err, sema.ErrBusy)
		if !slices.Equal(told, []string{"tenants/4"}) {
			t.Errorf("told of failures at %q", told)
		}
		if _, err := g.TryAcquire(t.Context(), "3"); !errors.Is(err, sema.ErrBusy) || errors.Is(err, each.ErrTooMany) {
			t.Error(err)
		}
		for _, p := range []*sema.Permit{second, third} {
			expect.OK(t, p.Release())
		}
		acquire(t, g, "4")
		e.is(t, "tenants/3 tenants/4 tenants/held") // the one that was idle for longer had to go
	})
}

// The sweep begins anew after everything was closed for room or for idleness.
func TestASingleNameIsClosedWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		g := newGroup(t, e, 1, &each.Options{Open: 1, Idle: 10 * time.Second})
		expect.OK(t, acquire(t, g, "a").Release())
		time.Sleep(9 * time.Second)
		expect.OK(t, acquire(t, g, "b").Release())
		time.Sleep(9 * time.Second)
		e.is(t, "tenants/b")
		time.Sleep(time.Second)
		e.is(t, "")
		expect.OK(t, acquire(t, g, "a").Release())
		e.is(t, "tenants/a")
		time.Sleep(10 * time.Second)
		e.is(t, "")
	})
}

// A caller that waits keeps the name in use, and the Semaphore open under it.
func TestAWaiterKeepsItsNameOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		g := newGroup(t, e, 1, &each.Options{Open: 1, Idle: time.Second})
		operator, err := sema.Operate(e.Engine, "tenants/a")
		expect.OK(t, err)
		defer func() { _ = operator.Close() }()
		expect.OK(t, operator.Set(t.Context(), sema.Rule{Limit: 1}))
		expect.OK(t, operator.Pause(t.Context()))
		served := make(chan error)
		go func() { served <- g.Do(t.Context(), "a", func(context.Context) error { return nil }) }()
		e.AwaitWaiting(t.Context(), "tenants/a", 1)
		time.Sleep(time.Minute)
		_, err = g.Acquire(t.Context(), "b")
		expect.Is(t, err, each.ErrTooMany)
		e.is(t, "tenants/a")
		expect.OK(t, operator.Unpause(t.Context()))
		expect.OK(t, <-served)
	})
}

// opened notes which semaphores are open.
type opened struct {
	*sematest.Engine
	mu    sync.Mutex
	names map[string]int
}

func (e *opened) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names == nil {
		e.names = map[string]int{}
	}
	e.names[name]++
	return &openedSession{s, e, name}, nil
}

// open lists which are open, each as often as it is.
func (e *opened) open() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e.names)) {
		all = append(all, slices.Repeat([]string{name}, e.names[name])...)
	}
	return strings.Join(all, " ")
}

// is checks which are open once all of the bubble is quiet.
func (e *opened) is(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := e.open(); got != want {
		t.Errorf("open: %s; want %s", got, want)
	}
}

type openedSession struct {
	protocol.Session
	e    *opened
	name string
}

func (s *openedSession) Close() error {
	s.e.mu.Lock()
	s.e.names[s.name]--
	s.e.mu.Unlock()
	return s.Session.Close()
}

// Few handles for many names: they are opened and closed all the time, and none under its user.
func TestChurn(t *testing.T) {
	g := newGroup(t, memengine.New(), 2, &each.Options{Open: 8, Idle: time.Millisecond})
	within := expect.Within(t)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for range 1000 {
				p, err := g.Acquire(within, fmt.Sprint(r.IntN(30)))
				if err != nil {
					t.Error(err)
					return
				}
				ctx := p.Context(t.Context())
				if r.IntN(8) == 0 {
					runtime.Gosched()
				}
				if err := context.Cause(ctx); err != nil {
					t.Errorf("closed under its user: %v", err)
				}
				if err := p.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// One name after the other: each finds room, for those that are being closed only make it wait.
func TestManyNamesOneAfterTheOther(t *testing.T) {
	g := newGroup(t, memengine.New(), 1, &each.Options{Open: 50})
	for i := range 5000 {
		expect.OK(t, g.Do(expect.Within(t), fmt.Sprint(i), func(context.Context) error { return nil }))
	}
}

// With the engine away nothing can be closed that owes it something. A further name fails as any
// acquisition does then, and those that come later find room.
func TestNamesWaitForRoomAsForTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		g := newGroup(t, e, 1, &each.Options{Open: 1})
		end := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		quick := sema.AnswerWithin(50 * time.Millisecond)
		for _, name := range []string{"a", "b"} { // a is being closed, b is idle
			_, err := g.Acquire(t.Context(), name, quick)
			expect.Is(t, err, sema.ErrEngine)
		}
		for _, bound := range []sema.AcquireOption{quick, sema.WaitAtMost(50 * time.Millisecond)} {
			came := time.Now()
			_, err := g.Acquire(t.Context(), "c", bound)
			failure, ok := errors.AsType[*engine.Error](err)
			if !ok || failure.Name != "tenants/c" || failure.Op != "open" || time.Since(came) != 50*time.Millisecond {
				t.Errorf("%v after %v, want 50ms", err, time.Since(came))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Acquire(ctx, "c"); !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the context ends: %v", err)
		}
		time.AfterFunc(time.Second, end)
		expect.OK(t, acquire(t, g, "c").Release())
	})
}

// What a caller waited for room counts within the bound of its wait. Only the engine's first answer is awaited beyond it.
func TestTheBoundOfAWaitCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		g := newGroup(t, e, 1, &each.Options{Open: 1})
		end := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		for _, name := range []string{"a", "b"} { // a is being closed, which takes three seconds, b is idle
			_, err := g.Acquire(t.Context(), name, sema.AnswerWithin(50*time.Millisecond))
			expect.Is(t, err, sema.ErrEngine)
		}
		began := time.Now()
		_, err := g.Acquire(t.Context(), "c", sema.WaitAtMost(2990*time.Millisecond))
		if took := time.Since(began); err == nil || took > 2990*time.Millisecond+client.Patience {
			t.Errorf("%v after %v", err, took)
		}
		end()
	})
}

// Close waits for an engine that is dead for three seconds in all, however many names owe it
// something: permits that are held, asks that were cancelled, handles that are being closed.
func TestShutdownWithADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		g := newGroup(t, e, 1, &each.Options{Open: 1})
		defer e.Inject(sematest.Fault{Err: sematest.NoAnswer(), Times: sematest.Always})()
		for _, name := range []string{"a", "b"} { // which takes the place of a
			_, err := g.Acquire(t.Context(), name, sema.AnswerWithin(100*time.Millisecond))
			expect.Is(t, err, sema.ErrEngine)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := g.Shutdown(ctx); time.Since(began) > 350*time.Millisecond {
			t.Errorf("took %v: %v", time.Since(began), err)
		}
	})
}

// A name is open until the engine knows of its cooldown.
func TestACooldownOutlivesIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		g := newGroup(t, e, 1, nil)
		p := acquire(t, g, "a")
		healed := e.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})
		p.RetryAfter(10 * time.Minute)
		expect.Is(t, p.Release(), sema.ErrEngine)
		time.Sleep(90 * time.Second) // the name is idle for longer than Idle
		healed()
		time.Sleep(30 * time.Second)
		_, err := g.TryAcquire(t.Context(), "a")
		expect.Is(t, err, sema.ErrBusy)
	})
}

func TestCloseWithADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		const lease = 6 * time.Second
		g := newGroup(t, e, 2, &each.Options{Open: 50, Semaphore: sema.Options{Lease: lease}})
		for i := range 20 {
			acquire(t, g, fmt.Sprint("held ", i))
		}
		e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+i)*time.Millisecond)
				defer cancel()
				if _, err := g.Acquire(ctx, fmt.Sprint("cancelled ", i)); !errors.Is(err, sema.ErrEngine) && !errors.Is(err, each.ErrTooMany) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		began := time.Now()
		expect.OK(t, g.Close())
		if took := time.Since(began); took > client.Patience {
			t.Errorf("Close took %v, want %v at most", took, client.Patience)
		}
	})
}

func TestCloseEndsTheWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		g := newGroup(t, e, 1, &each.Options{Open: 1})
		e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		for _, name := range []string{"a", "b"} {
			_, err := g.Acquire(t.Context(), name, sema.AnswerWithin(time.Millisecond))
			expect.Is(t, err, sema.ErrEngine)
		}
		ended, began := make(chan error), time.Now()
		go func() {
			_, err := g.Acquire(t.Context(), "c")
			ended <- err
		}()
		synctest.Wait()
		go func() { _ = g.Close() }()
		if err := <-ended; !errors.Is(err, sema.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestEachNameHasALimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := map[string]int{"large": 3, "none": -1}
		g := newGroup(t, sematest.New(t), 1, &each.Options{LimitOf: func(name string) int { return limits[name] }})
		for name, want := range map[string]int{"large": 3, "other": 1} {
			for range want {
				acquire(t, g, name)
			}
			if _, err := g.TryAcquire(t.Context(), name); !errors.Is(err, sema.ErrBusy) {
				t.Errorf("%s: %v after %d", name, err, want)
			}
		}
		if _, err := g.Acquire(t.Context(), "none"); !refused(err, "limit") {
			t.Error(err)
		}
		expect.OK(t, g.Close())
	})
}
