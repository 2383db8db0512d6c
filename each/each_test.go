package sema_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sema"
	"sema/engine/memengine"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

func newKeys(t *testing.T, e sema.Engine, limit int, o *sema.KeysOptions) *sema.Keys {
	t.Helper()
	k, err := sema.NewKeys(e, "tenants", limit, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func acquireKey(t *testing.T, k *sema.Keys, key string) *sema.Permit {
	t.Helper()
	p, err := k.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(p) }) // lest it is found unreleased
	return p
}

func TestKeysHaveNamesOfTheirOwn(t *testing.T) {
	e := memengine.New()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("a/b: é")), 1, 6, -1)
		names := map[string][2]string{}
		for range 20 {
			prefix, key := text.Draw(t, "prefix"), text.Draw(t, "key")
			k, err := sema.NewKeys(e, prefix, 1, nil)
			if (err != nil) != strings.Contains(prefix, "/") {
				t.Fatalf("prefix %q: %v", prefix, err)
			}
			if err != nil {
				continue
			}
			name, err := k.Name(key)
			if err != nil {
				t.Fatal(err)
			}
			pair := [2]string{prefix, key}
			if other, ok := names[name]; ok && other != pair {
				t.Fatalf("%q and %q make the same name %q", pair, other, name)
			}
			names[name] = pair
		}
	})
}

func TestKeysRefuseBadValues(t *testing.T) {
	e := memengine.New()
	for want, do := range map[string]func() (*sema.Keys, error){
		"sema: engine nil":                     func() (*sema.Keys, error) { return sema.NewKeys(nil, "x", 1, nil) },
		`sema: prefix "":`:                     func() (*sema.Keys, error) { return sema.NewKeys(e, "", 1, nil) },
		`sema: prefix "a/b":`:                  func() (*sema.Keys, error) { return sema.NewKeys(e, "a/b", 1, nil) },
		`sema: prefix "a\nb":`:                 func() (*sema.Keys, error) { return sema.NewKeys(e, "a\nb", 1, nil) },
		`sema: prefix "\xff":`:                 func() (*sema.Keys, error) { return sema.NewKeys(e, "\xff", 1, nil) },
		"want at most 253 bytes":               func() (*sema.Keys, error) { return sema.NewKeys(e, strings.Repeat("x", 254), 1, nil) },
		"sema: limit 0:":                       func() (*sema.Keys, error) { return sema.NewKeys(e, "x", 0, nil) },
		"sema: number of open keys -1":         func() (*sema.Keys, error) { return sema.NewKeys(e, "x", 1, &sema.KeysOptions{Open: -1}) },
		"sema: idle time 1ns: want at least 1": func() (*sema.Keys, error) { return sema.NewKeys(e, "x", 1, &sema.KeysOptions{Idle: 1}) },
		"sema: lease 1ns": func() (*sema.Keys, error) {
			return sema.NewKeys(e, "x", 1, &sema.KeysOptions{Options: sema.Options{Lease: 1}})
		},
	} {
		k, err := do()
		var argument *sema.ArgumentError
		if !errors.As(err, &argument) || !strings.Contains(err.Error(), want) || k != nil {
			t.Errorf("%v; want %s", err, want)
		}
	}
	k := newKeys(t, e, 1, nil)
	longest := strings.Repeat("k", sema.MaxName-len("tenants/"))
	for _, key := range []string{"", longest + "k", "a\x00", "\xff", "a\u2028b"} {
		_, err := k.Acquire(t.Context(), key)
		_, err2 := k.TryAcquire(t.Context(), key)
		err3 := k.Use(key, func(*sema.Semaphore) error { return nil })
		err4 := k.Do(t.Context(), key, func(context.Context) error { return nil })
		for _, err := range []error{err, err2, err3, err4} {
			var argument *sema.ArgumentError
			if !errors.As(err, &argument) || argument.What != "key" {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
	if k.Len() != 0 {
		t.Errorf("%d open after nothing but refusals", k.Len())
	}
	if err := acquireKey(t, k, longest).Release(); err != nil {
		t.Error(err)
	}
	if _, err := k.AcquireN(t.Context(), "a", 0); err == nil {
		t.Error("weight 0 was taken")
	}
	var heavy *sema.WeightError
	if _, err := k.AcquireN(t.Context(), "a", 2); !errors.As(err, &heavy) || heavy.Name != "tenants/a" {
		t.Errorf("weight 2 of 1: %v", err)
	}
}

// A tenant with very many callers delays another one's first caller by one hold at most.
func TestABusyKeyDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		s, err := sema.New(e, "api", 3, &sema.Options{PerKey: 2})
		expect.OK(t, err)
		var callers sync.WaitGroup
		work := func(key string, n int) {
			for range n {
				callers.Go(func() {
					if err := s.For(key).Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil }); err != nil {
						t.Error(err)
					}
				})
			}
		}
		work("busy", 200)
		work("also busy", 200)
		e.AwaitWaiting(t.Context(), "api", 1)
		time.Sleep(5*time.Second + 500*time.Millisecond)
		began := time.Now()
		p, err := s.For("quiet").Acquire(t.Context())
		expect.OK(t, err)
		expect.OK(t, p.Release())
		if d := time.Since(began); d > time.Second {
			t.Errorf("the quiet tenant waited %v, want no more than one hold", d)
		}
		callers.Wait()
		expect.OK(t, s.Close())
	})
}

func TestKeysClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, nil)
		p := acquireKey(t, k, "a")
		acquireKey(t, k, "b")
		ended := make(chan error, 2)
		for _, key := range []string{"a", "b"} {
			go func() {
				_, err := k.Acquire(t.Context(), key)
				ended <- err
			}()
		}
		e.AwaitWaiting(t.Context(), "tenants/a", 1)
		e.AwaitWaiting(t.Context(), "tenants/b", 1)
		ctx := p.Context(t.Context())
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, sema.ErrClosed) {
				t.Error(err)
			}
		}
		if err := context.Cause(ctx); !errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrClosed) {
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
		for _, name := range []string{"tenants/a", "tenants/b"} {
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
	k := newKeys(t, e, 1, &sema.KeysOptions{Idle: time.Millisecond, Options: options})
	func() {
		if _, err := k.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}()
	expect.Until(t, "the key is not in use", func() bool { runtime.GC(); return k.Len() == 0 })
	expect.Until(t, "no permit is held", func() bool { return len(e.Held("tenants/a")) == 0 })
}

// The context alone keeps the key in use.
func TestAKeyIsInUseWhileItsContextIs(t *testing.T) {
	e := sematest.New(t)
	k := newKeys(t, e, 1, &sema.KeysOptions{Idle: time.Millisecond})
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
		if _, err := k.TryAcquire(t.Context(), "a"); !errors.Is(err, sema.ErrBusy) {
			t.Error(err)
		}
		_ = k.Close()
	})
}

func TestKeysDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 1, nil)
		errOwn := errors.New("own")
		if err := k.Do(t.Context(), "a", func(context.Context) error { return errOwn }); err != errOwn {
			t.Error(err)
		}
		err := k.Do(t.Context(), "a", func(ctx context.Context) error {
			e.Lose("tenants/a")
			<-ctx.Done()
			return errOwn
		})
		if !errors.Is(err, sema.ErrLost) || !errors.Is(err, errOwn) {
			t.Error(err)
		}
	})
}
