package each_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/sematest"
)

func newGroup(t *testing.T, e sema.Engine, limit int, o *each.Options) *each.Group {
	t.Helper()
	g, err := each.New(e, "tenants", limit, o)
	expect.OK(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func acquire(t *testing.T, g *each.Group, name string) *sema.Permit {
	t.Helper()
	p, err := g.Acquire(t.Context(), name)
	expect.OK(t, err)
	t.Cleanup(func() { runtime.KeepAlive(p) }) // lest it is found unreleased
	return p
}

// Two pairs of prefix and name that made the same semaphore would wait for each other.
func TestNamesHaveSemaphoresOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := memengine.New()
		text := rapid.StringOfN(rapid.SampledFrom([]rune("a/b: é")), 1, 6, -1)
		taken := map[[2]string]bool{}
		for range 20 {
			prefix, name := text.Draw(t, "prefix"), text.Draw(t, "name")
			g, err := each.New(e, prefix, 1, nil)
			if (err != nil) != strings.Contains(prefix, "/") {
				t.Fatalf("prefix %q: %v", prefix, err)
			}
			if err != nil {
				continue
			}
			defer func() { _ = g.Close() }()
			pair := [2]string{prefix, name}
			p, err := g.TryAcquire(context.Background(), name)
			if (err != nil) != taken[pair] {
				t.Fatalf("%q: %v; taken: %v", pair, err, taken[pair])
			}
			if taken[pair] = true; err == nil && p.Name() != prefix+"/"+name {
				t.Fatalf("%q is called %q", pair, p.Name())
			}
		}
	})
}

func TestBadValuesAreRefused(t *testing.T) {
	e := memengine.New()
	for _, test := range []struct {
		e       sema.Engine
		prefix  string
		limit   int
		options *each.Options
		want    string
	}{
		{nil, "x", 1, nil, "sema: engine nil"},
		{(*memengine.Engine)(nil), "x", 1, nil, "sema: engine nil"},
		{(*redisengine.Engine)(nil), "x", 1, nil, "sema: engine nil"},
		{e, "", 1, nil, `each: prefix "":`},
		{e, "a/b", 1, nil, `each: prefix "a/b":`},
		{e, "a\nb", 1, nil, `sema: name "a\nb/x":`},
		{e, "\xff", 1, nil, `sema: name "\xff/x":`},
		{e, strings.Repeat("x", 254), 1, nil, "want at most 255 bytes"},
		{e, "x", 0, nil, "sema: limit 0:"},
		{e, "x", 1, &each.Options{Open: -1}, "each: Open -1:"},
		{e, "x", 1, &each.Options{Idle: 1}, "each: Idle 1ns: want at least 1ms"},
		{e, "x", 1, &each.Options{Semaphore: sema.Options{Lease: 1}}, "sema: lease 1ns"},
	} {
		g, err := each.New(test.e, test.prefix, test.limit, test.options)
		if !refused(err, "") || !strings.Contains(err.Error(), test.want) || g != nil {
			t.Errorf("%v; want %s", err, test.want)
		}
	}
}

// refused reports whether an error is an *ArgumentError, about what if that is not empty.
func refused(err error, what string) bool {
	argument, ok := errors.AsType[*sema.ArgumentError](err)
	return ok && (what == "" || argument.What == what)
}

func TestBadNamesAreRefused(t *testing.T) {
	e := &opened{Engine: sematest.New(t)}
	g := newGroup(t, e, 1, nil)
	longest := strings.Repeat("k", engine.MaxName-len("tenants/"))
	for _, name := range []string{"", longest + "k", "a\x00", "\xff", "a\u2028b"} {
		_, err := g.Acquire(t.Context(), name)
		_, tried := g.TryAcquire(t.Context(), name)
		did := g.Do(t.Context(), name, func(context.Context) error { return nil })
		for _, err := range []error{err, tried, did} {
			if !refused(err, "name") {
				t.Errorf("name %q: %v", name, err)
			}
		}
	}
	if open := e.open(); open != "" {
		t.Errorf("open after nothing but refusals: %s", open)
	}
	expect.OK(t, acquire(t, g, longest).Release())
}

func TestOptionsOfAnAcquisition(t *testing.T) {
	g := newGroup(t, sematest.New(t), 2, nil)
	if _, err := g.Acquire(t.Context(), "a", sema.Weight(0)); !refused(err, "weight") {
		t.Errorf("weight 0: %v", err)
	}
	heavy, ok := errors.AsType[*sema.WeightError](g.Do(t.Context(), "a", func(context.Context) error { return nil }, sema.Weight(3)))
	if !ok || heavy.Name != "tenants/a" {
		t.Errorf("weight 3 of 2: %v", heavy)
	}
	p, err := g.TryAcquire(t.Context(), "a", sema.Weight(2))
	expect.OK(t, err)
	_, err = g.Acquire(t.Context(), "a", sema.WaitAtMost(0))
	expect.Is(t, err, sema.ErrBusy)
	expect.OK(t, p.Release())
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		g := newGroup(t, e, 1, nil)
		p := acquire(t, g, "a")
		acquire(t, g, "b")
		ended := make(chan error, 2)
		for _, name := range []string{"a", "b"} {
			go func() {
				_, err := g.Acquire(t.Context(), name)
				ended <- err
			}()
		}
		e.AwaitWaiting(t.Context(), "tenants/a", 1)
		e.AwaitWaiting(t.Context(), "tenants/b", 1)
		ctx := p.Context(t.Context())
		expect.OK(t, g.Close())
		for range 2 {
			expect.Is(t, <-ended, sema.ErrClosed)
		}
		if err := context.Cause(ctx); !errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrClosed) {
			t.Error(err)
		}
		_, err := g.Acquire(t.Context(), "a")
		expect.Is(t, err, sema.ErrClosed)
		expect.Is(t, g.Do(t.Context(), "a", nil), sema.ErrClosed)
		expect.Is(t, p.Release(), sema.ErrReleased)
		expect.OK(t, g.Close())
		e.is(t, "")
		for _, name := range []string{"tenants/a", "tenants/b"} {
			if held := e.Held(name); len(held) > 0 {
				t.Errorf("%v held", held)
			}
		}
	})
}

// Holders work on, whoever waits is refused, and the Group ends with its last holder, its context or Close.
func TestShutdown(t *testing.T) {
	for _, end := range []string{"release", "context", "close"} {
		synctest.Test(t, func(t *testing.T) {
			e := &opened{Engine: sematest.New(t)}
			g := newGroup(t, e, 1, nil)
			holders := []*sema.Permit{acquire(t, g, "a"), acquire(t, g, "b")}
			waited, ended := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := g.Acquire(t.Context(), "a")
				waited <- err
			}()
			e.AwaitWaiting(t.Context(), "tenants/a", 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { ended <- g.Shutdown(ctx) }()
			expect.Is(t, <-waited, sema.ErrClosed)
			for _, name := range []string{"a", "c"} {
				_, err := g.TryAcquire(t.Context(), name)
				expect.Is(t, err, sema.ErrClosed)
			}
			expect.OK(t, holders[0].Release())
			time.Sleep(10 * time.Minute) // twenty leases
			expect.OK(t, holders[1].Err())
			select {
			case err := <-ended:
				t.Fatal("it did not wait:", err)
			default:
			}
			want := error(nil)
			switch end {
			case "release":
				expect.OK(t, holders[1].Release())
			case "context":
				cancel()
				want = context.Canceled
			case "close":
				expect.OK(t, g.Close())
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", end, err, want)
			}
			if err := holders[1].Err(); end != "release" && !errors.Is(err, sema.ErrLost) {
				t.Errorf("%s: the permit's error is %v", end, err)
			}
			expect.OK(t, g.Close())
			expect.OK(t, g.Shutdown(t.Context()))
			e.is(t, "")
		})
	}
}

// The context alone keeps the name in use.
func TestANameIsInUseWhileItsContextIs(t *testing.T) {
	e := &opened{Engine: sematest.New(t)}
	options := sema.Options{Renew: 20 * time.Millisecond}
	g := newGroup(t, e, 1, &each.Options{Idle: time.Millisecond, Semaphore: options})
	work := func() context.Context {
		p, err := g.Acquire(t.Context(), "a")
		expect.OK(t, err)
		return p.Context(t.Context())
	}()
	// A permit that was forgotten later is found and given back; so this one would have been.
	func() {
		_, err := g.Acquire(t.Context(), "b")
		expect.OK(t, err)
	}()
	expect.Until(t, "the other name is not in use", func() bool { runtime.GC(); return e.open() == "tenants/a" })
	expect.Until(t, "its permit is not held", func() bool { return len(e.Held("tenants/b")) == 0 })
	expect.OK(t, work.Err())
	expect.OK(t, g.Close())
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &opened{Engine: sematest.New(t)}
		g := newGroup(t, e, 1, &each.Options{Idle: time.Second})
		errOwn := errors.New("own")
		if err := g.Do(t.Context(), "a", func(context.Context) error { return errOwn }); err != errOwn {
			t.Error(err)
		}
		err := g.Do(t.Context(), "a", func(ctx context.Context) error {
			time.Sleep(time.Hour)
			e.is(t, "tenants/a")
			e.Lose("tenants/a")
			<-ctx.Done()
			return errOwn
		})
		expect.Is(t, err, sema.ErrLost)
		expect.Is(t, err, errOwn)
	})
}

// A wait under the name's own permit can never end; one for another name can.
func TestAWaitUnderTheNamesOwnPermitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, sematest.New(t), 1, nil)
		none := func(context.Context) error { return nil }
		expect.OK(t, g.Do(t.Context(), "a", func(ctx context.Context) error {
			nested, ok := errors.AsType[*sema.NestedError](g.Do(ctx, "a", none))
			if !ok || nested.Name != "tenants/a" {
				t.Errorf("%v", nested)
			}
			return g.Do(ctx, "b", none)
		}))
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
