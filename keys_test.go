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

	"pgregory.net/rapid"

	"sema"
	"sema/engine/memengine"
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

func acquireKey(t *testing.T, k *sema.Keys, key string) *sema.KeyPermit {
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
		"sema: total -1:":                      func() (*sema.Keys, error) { return sema.NewKeys(e, "x", 1, &sema.KeysOptions{Total: -1}) },
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

// Two of each, five in all; weights, cancellations, tries; as often as the
// bubble's time allows. Nobody is left behind, and nothing.
func TestKeysKeepBothLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 2, &sema.KeysOptions{Total: 5, Open: 40})
		var mu sync.Mutex
		held, all, got := map[string]int{}, 0, 0
		take := func(key string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[key] += n
			all += n
			got++
			if held[key] > 2 || all > 5 {
				t.Errorf("%d of %s, %d in all", held[key], key, all)
			}
		}
		give := func(key string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[key] -= n
			all -= n
		}
		var callers sync.WaitGroup
		for i := range 40 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for range 50 {
					key, n := fmt.Sprint(r.IntN(6)), 1+r.IntN(2)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					acquire := k.AcquireN
					switch r.IntN(4) {
					case 0:
						acquire = k.TryAcquireN
					case 1:
						ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
					}
					p, err := acquire(ctx, key, n)
					cancel()
					if err != nil {
						if !errors.Is(err, sema.ErrUnavailable) {
							t.Error(err)
						}
						continue
					}
					take(key, n)
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
					give(key, n)
					if err := p.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		if got < 1000 {
			t.Errorf("%d of 2000 got a permit", got)
		}
		for _, name := range []string{"tenants", "tenants/0", "tenants/1", "tenants/2", "tenants/3", "tenants/4", "tenants/5"} {
			if p := e.Held(name); len(p) > 0 {
				t.Errorf("left over: %v", p)
			}
		}
	})
}

// A tenant with very many callers has its limit of them in the queue for the
// total, and no more: another tenant's first caller waits for these at most.
func TestABusyKeyDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		k := newKeys(t, e, 2, &sema.KeysOptions{Total: 3})
		var callers sync.WaitGroup
		work := func(key string, n int) {
			for range n {
				callers.Go(func() {
					if err := k.Do(t.Context(), key, func(context.Context) error { time.Sleep(time.Second); return nil }); err != nil {
						t.Error(err)
					}
				})
			}
		}
		work("busy", 200)
		work("also busy", 200)
		e.AwaitWaiting(t.Context(), "tenants/busy", 1)
		time.Sleep(5*time.Second + 500*time.Millisecond)
		began := time.Now()
		if err := acquireKey(t, k, "quiet").Release(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the quiet tenant waited %v, want no more than two turns", d)
		}
		callers.Wait()
	})
}
