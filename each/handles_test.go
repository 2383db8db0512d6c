package sema_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engine/memengine"
	"sema/internal/client"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

func TestKeysAreOpenWhileInUseAndIdleForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		k := newKeys(t, e, 1, &sema.KeysOptions{Open: 3, Idle: 10 * time.Second})
		held := acquireKey(t, k, "held")
		if err := acquireKey(t, k, "a").Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if err := acquireKey(t, k, "b").Release(); err != nil {
			t.Fatal(err)
		}
		e.is(t, k, "tenants/a tenants/b tenants/held")
		time.Sleep(4 * time.Second)
		e.is(t, k, "tenants/b tenants/held") // a was idle for ten seconds
		if err := acquireKey(t, k, "b").Release(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		e.is(t, k, "tenants/b tenants/held") // b was used again
		time.Sleep(time.Hour)
		e.is(t, k, "tenants/held")
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}

		// With all in use a further key has to go away; a used one has not.
		second, third := acquireKey(t, k, "2"), acquireKey(t, k, "3")
		if _, err := k.Acquire(t.Context(), "4"); !errors.Is(err, sema.ErrTooManyKeys) || !errors.Is(err, sema.ErrBusy) {
			t.Errorf("a fourth key: %v", err)
		}
		if _, err := k.TryAcquire(t.Context(), "3"); errors.Is(err, sema.ErrTooManyKeys) {
			t.Error(err)
		}
		for _, p := range []*sema.Permit{second, third} {
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		}
		acquireKey(t, k, "4")
		e.is(t, k, "tenants/3 tenants/4 tenants/held") // the one that was idle for longer had to go
	})
}

// opened notes which semaphores are open.
type opened struct {
	*sematest.Engine
	mu    sync.Mutex
	names map[string]int
}

func (e *opened) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
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

// is checks which are open once all is quiet.
func (e *opened) is(t *testing.T, k *sema.Keys, want string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := strings.Fields(want)
	if len(e.names) != len(wanted) || k.Len() != len(wanted) {
		t.Errorf("open: %v, Len %d; want %s", e.names, k.Len(), want)
	}
	for _, name := range wanted {
		if e.names[name] != 1 {
			t.Errorf("%s is open %d times", name, e.names[name])
		}
	}
}

type openedSession struct {
	engine.Session
	e    *opened
	name string
}

func (s *openedSession) Close() error {
	s.e.mu.Lock()
	if s.e.names[s.name]--; s.e.names[s.name] == 0 {
		delete(s.e.names, s.name)
	}
	s.e.mu.Unlock()
	return s.Session.Close()
}

// Few handles for many keys: they are opened and closed all the time, and none
// under its user.
func TestKeysUnderChurn(t *testing.T) {
	e := memengine.New()
	k := newKeys(t, e, 2, &sema.KeysOptions{Open: 8, Idle: time.Millisecond})
	within := expect.Within(t)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for range 1000 {
				p, err := k.Acquire(within, fmt.Sprint(r.IntN(30)))
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
	if n := k.Len(); n > 8 {
		t.Errorf("%d open, want 8 at most", n)
	}
}

// One key after the other: each finds room, for those that are being closed only
// make it wait.
func TestManyKeysOneAfterTheOther(t *testing.T) {
	k := newKeys(t, memengine.New(), 1, &sema.KeysOptions{Open: 50})
	for i := range 5000 {
		expect.OK(t, k.Do(expect.Within(t), fmt.Sprint(i), func(context.Context) error { return nil }))
	}
}

// With the engine away nothing can be closed that owes it something. A further key
// fails as any acquisition does then, and those that come later find room.
func TestKeysWaitForRoomAsForTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, &sema.KeysOptions{Open: 1})
		end := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		quick := sema.AnswerWithin(t.Context(), 50*time.Millisecond)
		var failure *engine.Error
		for _, key := range []string{"a", "b"} { // a is being closed, b is idle
			if _, err := k.Acquire(quick, key); !errors.As(err, &failure) {
				t.Errorf("%s: %v", key, err)
			}
		}
		came := time.Now()
		if _, err := k.Acquire(quick, "c"); !errors.As(err, &failure) || failure.Name != "tenants/c" || failure.Op != "open" || time.Since(came) != 50*time.Millisecond {
			t.Errorf("%v after %v, want 50ms", err, time.Since(came))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Acquire(ctx, "c"); !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the context ends: %v", err)
		}
		time.AfterFunc(time.Second, end)
		expect.OK(t, acquireKey(t, k, "c").Release())
	})
}

// Close waits for an engine that is dead for three seconds in all, however many keys owe it
// something: permits that are held, asks that were cancelled, handles that are being
// closed.
func TestKeysCloseWithADeadEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		const lease = 6 * time.Second
		k := newKeys(t, e, 2, &sema.KeysOptions{Open: 50, Options: sema.Options{Lease: lease}})
		for i := range 20 {
			acquireKey(t, k, fmt.Sprint("held ", i))
		}
		e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+i)*time.Millisecond)
				defer cancel()
				if _, err := k.Acquire(ctx, fmt.Sprint("cancelled ", i)); !errors.Is(err, sema.ErrEngine) && !errors.Is(err, sema.ErrTooManyKeys) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		began := time.Now()
		expect.OK(t, k.Close())
		if took := time.Since(began); took > client.Patience {
			t.Errorf("Close took %v, want %v at most", took, client.Patience)
		}
	})
}

func TestEachKeyHasALimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := map[string]int{"large": 3, "none": -1}
		k := newKeys(t, sematest.New(t), 1, &sema.KeysOptions{LimitOf: func(key string) int { return limits[key] }})
		for key, want := range map[string]int{"large": 3, "other": 1} {
			for range want {
				acquireKey(t, k, key)
			}
			if _, err := k.TryAcquire(t.Context(), key); !errors.Is(err, sema.ErrBusy) {
				t.Errorf("%s: %v after %d", key, err, want)
			}
		}
		var argument *sema.ArgumentError
		if _, err := k.Acquire(t.Context(), "none"); !errors.As(err, &argument) || argument.What != "limit" {
			t.Error(err)
		}
		expect.OK(t, k.Close())
	})
}
