package sema_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

// wantArgument fails the test if err is no *ArgumentError about what.
func wantArgument(t *testing.T, err error, what string) {
	t.Helper()
	var refused *sema.ArgumentError
	if !errors.As(err, &refused) || refused.What != what {
		t.Errorf("%v; want an *ArgumentError about the %s", err, what)
	}
}

// Caps that cannot be are refused before anything is asked of the engine.
func TestBadCapsAreRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, _ *sema.Semaphore) {
		o, above := operator(t, e), engine.MaxLimit
		above++ // below 0 where an int has 32 bits
		for _, bad := range []sema.Caps{{-1}, {2, -1}, {0, 0, -1}, {above}, {0, above}} {
			_, err := sema.New(e, "y", 1, &sema.Options{Caps: bad})
			wantArgument(t, err, "cap")
			wantArgument(t, o.Set(t.Context(), sema.Rule{Caps: bad}), "cap")
		}
		wantArgument(t, o.Set(t.Context(), sema.Rule{Limit: 1, Caps: sema.Caps{1}}, "acme"), "caps")
		if n := e.calls.Load(); n != 0 {
			t.Errorf("the engine was asked %d times", n)
		}
	})
}

// The error of a path shows all of it, in the same words for an acquisition and for a rule.
func TestErrorsOfPaths(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		for _, c := range []struct {
			path []string
			want string
		}{
			{[]string{""}, `sema: key "": want names that are not empty, without control characters`},
			{[]string{"", "alice"}, `sema: key "/alice": want names that are not empty`},
			{[]string{"a", "b", "c", "d"}, `sema: key "a/b/c/d": want at most 3 names, not 4`},
		} {
			_, err := s.TryAcquire(t.Context(), sema.For(c.path...))
			if of := operator(t, e).Set(t.Context(), sema.Rule{Limit: 1}, c.path...); err == nil || of == nil || err.Error() != c.want || of.Error() != c.want {
				t.Errorf("%q: %v and %v, want %s", c.path, err, of, c.want)
			}
		}
	})
}

// Paths that cannot be are refused as well.
func TestBadPathsAreRefused(t *testing.T) {
	half := strings.Repeat("x", 127) // two and what is between them are one key of 255 bytes
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		o := operator(t, e)
		for _, bad := range [][]string{
			{"a", "b", "c", "d"}, {""}, {"", ""}, {"", "a"}, {"a", "", "c"}, {"a\x01b"}, {"a", "b\x01c"}, {"a", "b\x01"}, {"a", "b\tc"}, {"a", "\xff"},
			{half, half + "x"}, {half, half, "x"}, {half + half + "xx"},
		} {
			_, err := s.Acquire(t.Context(), sema.For(bad...))
			wantArgument(t, err, "key")
			_, err = s.TryAcquire(t.Context(), sema.For(bad...))
			wantArgument(t, err, "key")
			wantArgument(t, s.Do(t.Context(), func(context.Context) error { return nil }, sema.For(bad...)), "key")
			wantArgument(t, o.Set(t.Context(), sema.Rule{Limit: 1}, bad...), "key")
			wantArgument(t, o.Unset(t.Context(), bad...), "key")
		}
		if n := e.calls.Load(); n != 0 {
			t.Errorf("the engine was asked %d times", n)
		}
		wantArgument(t, o.Set(t.Context(), sema.Rule{Limit: 1}, "a", ""), "key") // a rule is of the key that it names
		for _, good := range [][]string{{"a", "b", "c"}, {half, half}, {half + half + "x"}, {"a/b", "ü"}, {"acme", ""}, {"acme", "", ""}} {
			p, err := s.Acquire(t.Context(), sema.For(good...))
			expect.OK(t, err)
			st, err := s.State(t.Context())
			expect.OK(t, err)
			for good[len(good)-1] == "" { // a user that is optional needs no code of its own: it is the caller of its organisation
				good = good[:len(good)-1]
			}
			if key := st.Holders[0].Key; fmt.Sprint(key.Names()) != fmt.Sprint(good) || sema.ReadOptions(sema.For(good...)).Key != key {
				t.Errorf("held for %q, want %q", key.Names(), good)
			}
			expect.OK(t, p.Release())
		}
	})
}

// A process that insists on its caps is told those of all levels.
func TestOtherCapsOfAnyLevelAreToldOf(t *testing.T) {
	e := memengine.New()
	for _, caps := range []sema.Caps{{20, 4}, {20, 5}, {20}, {}} {
		strict, err := sema.New(e, "llm", 50, &sema.Options{Caps: caps, OnConflict: sema.LimitStrict})
		expect.OK(t, err)
		p, err := strict.Acquire(t.Context(), sema.For("acme", "alice"))
		if caps == (sema.Caps{20, 4}) { // it is the first
			expect.OK(t, err)
			defer func() { expect.OK(t, errors.Join(p.Release(), strict.Close())) }()
			continue
		}
		var told *sema.LimitError
		if !errors.As(err, &told) || *told != (sema.LimitError{Name: "llm", Stored: 50, Wanted: 50, StoredCaps: sema.Caps{20, 4}, WantedCaps: caps}) {
			t.Errorf("%v: %+v", err, told)
		}
		if text := fmt.Sprint(err); caps[1] == 5 && text != `sema: "llm" has limit 50 and caps 20,4, not 50 and caps 20,5` {
			t.Error(text)
		}
		expect.OK(t, strict.Close())
	}
}

// A wait under a permit of its own is refused by the limit alone: a cap may be raised meanwhile, for one key.
func TestAWaitForAKeyUnderItsOwnPermit(t *testing.T) {
	bubble(t, &sema.Options{Caps: sema.Caps{1, 1}}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		o := operator(t, e)
		expect.OK(t, s.Do(t.Context(), func(ctx context.Context) error {
			_, err := s.Acquire(ctx, sema.For("acme", "bob"))
			refuses(t, err, sema.NestedError{Name: "x", Held: 1, Weight: 1, Limit: 1})
			expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 2}))
			p, err := s.TryAcquire(ctx, sema.For("initech")) // the process sees the limit
			expect.OK(t, err)
			expect.OK(t, p.Release())
			_, err = s.Acquire(ctx, sema.For("acme", "bob"), sema.WaitAtMost(time.Second))
			wantOnly(t, err, sema.ErrBusy, nil)
			time.Sleep(time.Second) // the ticket of one that waited
			return nil
		}, sema.For("acme", "alice")))
	})
}

// An event has the path that For was given.
func TestThePathOfAnEvent(t *testing.T) {
	var paths [][]string
	s, err := sema.New(memengine.New(), "llm", 5, &sema.Options{Observer: sema.Observer{Acquired: func(e sema.Event) { paths = append(paths, e.Path) }}})
	expect.OK(t, err)
	work := func(context.Context) error { return nil }
	for _, path := range [][]string{nil, {"acme"}, {"acme", "alice", "large"}} {
		expect.OK(t, s.Do(t.Context(), work, sema.For(path...)))
		if got := paths[len(paths)-1]; fmt.Sprint(got) != fmt.Sprint(path) {
			t.Errorf("path %q, want %q", got, path)
		}
	}
	expect.OK(t, s.Close())
}

// A tenant with very many callers delays another one's first caller by one hold at most.
func TestABusyKeyDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := sematest.New(t)
		s, err := sema.New(e, "api", 3, &sema.Options{Caps: sema.Caps{2}})
		expect.OK(t, err)
		var callers sync.WaitGroup
		work := func(key string, n int) {
			for range n {
				callers.Go(func() {
					if err := s.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil }, sema.For(key)); err != nil {
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
		p, err := s.Acquire(t.Context(), sema.For("quiet"))
		expect.OK(t, err)
		expect.OK(t, p.Release())
		if d := time.Since(began); d > time.Second {
			t.Errorf("the quiet tenant waited %v, want no more than one hold", d)
		}
		callers.Wait()
		expect.OK(t, s.Close())
	})
}
