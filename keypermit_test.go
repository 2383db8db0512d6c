package sema_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/lab/expect"
	"sema/sematest"
)

func TestLossOfEitherEndsTheCombinedPermit(t *testing.T) {
	for _, lost := range []string{"tenants", "tenants/a"} {
		synctest.Test(t, func(t *testing.T) {
			e := sematest.New(t)
			k := newKeys(t, e, 1, &sema.KeysOptions{Total: 1})
			p := acquireKey(t, k, "a")
			type key struct{}
			ctx := p.Context(context.WithValue(t.Context(), key{}, "value"))
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if ctx.Err() != nil || p.Err() != nil || ctx.Value(key{}) != "value" {
				t.Fatal(ctx.Err(), p.Err(), ctx.Value(key{}))
			}
			e.Lose(lost)
			<-child.Done()
			if err := context.Cause(child); !errors.Is(err, sema.ErrLost) || !errors.Is(p.Err(), sema.ErrLost) {
				t.Errorf("%s lost: cause %v, %v", lost, err, p.Err())
			}
			if late := p.Context(t.Context()); !errors.Is(context.Cause(late), sema.ErrLost) {
				t.Errorf("%s lost: a context made later ends with %v", lost, context.Cause(late))
			}
			if err := p.Release(); !errors.Is(err, sema.ErrLost) {
				t.Errorf("%s lost: Release: %v", lost, err)
			}
			if err := p.Release(); !errors.Is(err, sema.ErrReleased) {
				t.Errorf("%s lost: Release again: %v", lost, err)
			}
			if err := acquireKey(t, k, "a").Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACombinedPermitIsReleasedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 3, &sema.KeysOptions{Total: 5, Options: sema.Options{Slots: true}})
		p, err := k.TryAcquireN(t.Context(), "a", 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx := p.Context(t.Context())
		key, total := e.Held("tenants/a"), e.Held("tenants")
		if len(key) != 1 || len(total) != 1 || key[0].Weight != 2 || total[0].Weight != 2 || key[0].ID != p.ID() || p.Weight() != 2 || p.Token() == 0 || p.Slot() != 0 {
			t.Errorf("%v, %v; %v of weight %d, token %d, slot %d", key, total, p.ID(), p.Weight(), p.Token(), p.Slot())
		}
		if d := time.Until(p.Deadline()); d < 20*time.Second || d > 30*time.Second {
			t.Errorf("deadline in %v", d)
		}
		if err := p.Release(); err != nil {
			t.Error(err)
		}
		if err := context.Cause(ctx); !errors.Is(err, sema.ErrReleased) || !errors.Is(p.Err(), sema.ErrReleased) {
			t.Errorf("cause %v, %v", err, p.Err())
		}
		if err := p.Release(); !errors.Is(err, sema.ErrReleased) {
			t.Errorf("Release again: %v", err)
		}
		if n := len(e.Held("tenants/a")) + len(e.Held("tenants")); n > 0 {
			t.Errorf("%d held", n)
		}
	})
}

// Whoever does not get the total does not keep the key's permit.
func TestWaitsForTheTotalEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, &sema.KeysOptions{Total: 1, Options: sema.Options{Lease: 10 * time.Second}})
		first := acquireKey(t, k, "a")
		if _, err := k.TryAcquire(t.Context(), "b"); !errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("TryAcquire: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := k.Acquire(ctx, "b"); !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		synctest.Wait()
		if n := len(e.Held("tenants/b")); n > 0 {
			t.Errorf("%d of b held", n)
		}

		// The key's permit is lost while its caller waits for the total.
		ended := make(chan error, 1)
		go func() {
			_, err := k.Acquire(t.Context(), "b")
			ended <- err
		}()
		e.AwaitWaiting(t.Context(), "tenants", 1)
		e.Lose("tenants/b")
		if err := <-ended; !errors.Is(err, sema.ErrLost) || !errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("lost while waiting: %v", err)
		}
		synctest.Wait()

		// The engine goes away meanwhile, and the caller does as well.
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			_, err := k.Acquire(ctx, "b")
			ended <- err
		}()
		e.AwaitWaiting(t.Context(), "tenants", 1)
		end := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
		began := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the end of the wait took %v", d)
		}
		end()
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		if err := acquireKey(t, k, "b").Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestKeysClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, &sema.KeysOptions{Total: 2})
		p := acquireKey(t, k, "a")
		acquireKey(t, k, "b")
		ended := make(chan error, 2)
		for _, key := range []string{"a", "c"} { // one waits for its key, one for the total
			go func() {
				_, err := k.Acquire(t.Context(), key)
				ended <- err
			}()
		}
		e.AwaitWaiting(t.Context(), "tenants/a", 1)
		e.AwaitWaiting(t.Context(), "tenants", 1)
		ctx := p.Context(t.Context())
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, sema.ErrClosed) {
				t.Error(err)
			}
		}
		if err := context.Cause(ctx); !errors.Is(err, sema.ErrClosed) {
			t.Error(err)
		}
		_, err := k.Acquire(t.Context(), "a")
		if err2 := k.Use("a", func(*sema.Semaphore) error { return nil }); !errors.Is(err, sema.ErrClosed) || !errors.Is(err2, sema.ErrClosed) {
			t.Error(err, err2)
		}
		if err := p.Release(); !errors.Is(err, sema.ErrReleased) {
			t.Error(err)
		}
		if err := k.Close(); err != nil || k.Len() != 0 {
			t.Error(err, k.Len())
		}
		for _, name := range []string{"tenants", "tenants/a", "tenants/b", "tenants/c"} {
			if held := e.Held(name); len(held) > 0 {
				t.Errorf("%v held", held)
			}
		}
	})
}

// A permit of a key that the program lost sight of comes back, and its key is
// idle from then on.
func TestAForgottenKeyPermitComesBack(t *testing.T) {
	e := sematest.New(t)
	options := sema.Options{Renew: 20 * time.Millisecond} // a permit is watched from its first renewal on
	k := newKeys(t, e, 1, &sema.KeysOptions{Total: 1, Idle: time.Millisecond, Options: options})
	func() {
		if _, err := k.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}()
	expect.Until(t, "the key is not in use", func() bool { runtime.GC(); return k.Len() == 0 })
	expect.Until(t, "no permit is held", func() bool { return len(e.Held("tenants/a"))+len(e.Held("tenants")) == 0 })
}

// The context alone keeps the key in use.
func TestAKeyIsInUseWhileItsContextIs(t *testing.T) {
	e := sematest.New(t)
	k := newKeys(t, e, 1, &sema.KeysOptions{Total: 1, Idle: time.Millisecond})
	work := func() context.Context {
		p, err := k.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return p.Context(t.Context())
	}()
	collect(t)
	if work.Err() != nil || k.Len() != 1 {
		t.Errorf("%v; %d open", work.Err(), k.Len())
	}
	expect.OK(t, k.Close())
}

func TestUseKeepsTheKeyOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, &sema.KeysOptions{Idle: time.Second})
		errOwn := errors.New("own")
		err := k.Use("a", func(s *sema.Semaphore) error {
			time.Sleep(time.Hour)
			o, err := sema.Operate(e, s.Name())
			if err == nil {
				err = o.SetLimit(t.Context(), 3)
			}
			if err != nil {
				return err
			}
			if s.Name() != "tenants/a" {
				t.Errorf("name %q", s.Name())
			}
			return errOwn
		})
		if err != errOwn {
			t.Error(err)
		}
		for range 3 { // as many as an operator allowed
			acquireKey(t, k, "a")
		}
		if _, err := k.TryAcquire(t.Context(), "a"); !errors.Is(err, sema.ErrUnavailable) {
			t.Error(err)
		}
		_ = k.Close()
	})
}

func TestKeysDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, &sema.KeysOptions{Total: 1})
		errOwn := errors.New("own")
		if err := k.Do(t.Context(), "a", func(context.Context) error { return errOwn }); err != errOwn {
			t.Error(err)
		}
		err := k.Do(t.Context(), "a", func(ctx context.Context) error {
			e.Lose("tenants")
			<-ctx.Done()
			return errOwn
		})
		if !errors.Is(err, sema.ErrLost) || !errors.Is(err, errOwn) {
			t.Error(err)
		}
	})
}
