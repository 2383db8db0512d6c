package classic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

var (
	_ Semaphore = (*Lock)(nil)
	_ Semaphore = (*Basic)(nil)
	_ Refresher = (*Fair)(nil)
	_ Refresher = (*Locked)(nil)
	_ Refresher = (*Scripted)(nil)
	_ Refresher = (*Clockless)(nil)
)

// forEach runs a test for all variants, each on an empty database.
func forEach(t *testing.T, test func(t *testing.T, v variant, srv *redistest.Server)) {
	t.Helper()
	forThose(t, func(variant) bool { return true }, test)
}

// forThose runs a test for the variants that make the promise in question.
func forThose(t *testing.T, promise func(variant) bool, test func(t *testing.T, v variant, srv *redistest.Server)) {
	t.Helper()
	srv := redistest.Start(t)
	for _, v := range variants {
		if !promise(v) {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			expect.OK(t, srv.Client().FlushDB(t.Context()).Err())
			test(t, v, srv)
		})
	}
}

func TestAcquireUpToTheLimitAndRelease(t *testing.T) {
	t.Parallel()
	uuid4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		limit := 3
		if v.limit == 1 {
			limit = 1
		}
		sem := v.new(t, srv.Client(), limit, Options{})
		if _, ok := sem.(Refresher); ok != v.refresh {
			t.Errorf("%T is a Refresher: %v, but the book's: %v", sem, ok, v.refresh)
		}
		ids := map[string]bool{}
		for range limit {
			id := must(t, sem)
			if !uuid4.MatchString(id) || ids[id] {
				t.Errorf("id %q is no fresh UUID of version 4", id)
			}
			ids[id] = true
		}
		mustNot(t, sem)
		mustNot(t, sem)
		for id := range ids {
			release(t, sem, id, true)
			release(t, sem, id, false)
			must(t, sem)
			mustNot(t, sem)
		}
		release(t, sem, "nobody", false)
	})
}

func TestRefreshKeepsAPermitBeyondItsLease(t *testing.T) {
	t.Parallel()
	promise := func(v variant) bool { return v.clock && v.refresh }
	forThose(t, promise, func(t *testing.T, v variant, srv *redistest.Server) {
		clock := newHandClock()
		sem := v.new(t, srv.Client(), 1, Options{Lease: 10 * time.Second, Clock: clock.now})
		id := must(t, sem)
		for range 3 {
			clock.forward(9 * time.Second)
			refresh(t, sem, id, true)
			mustNot(t, sem)
		}
		clock.forward(10 * time.Second) // ends at, not after, the lease's length
		must(t, sem)
	})
}

func TestRefreshOfALostPermitIsFalseAndRevivesNothing(t *testing.T) {
	t.Parallel()
	promise := func(v variant) bool { return v.refresh }
	forThose(t, promise, func(t *testing.T, v variant, srv *redistest.Server) {
		rdb, clock := srv.Client(), newHandClock()
		sem := v.new(t, rdb, 1, Options{Lease: 20 * time.Millisecond, Clock: clock.now})
		lost := must(t, sem)
		clock.forward(time.Minute)
		var id string
		expect.Until(t, "the end of the lease", func() bool {
			var ok bool
			var err error
			id, ok, err = sem.Acquire(t.Context())
			return err == nil && ok
		})
		refresh(t, sem, lost, false)
		refresh(t, sem, lost, false) // the first has cleaned up what it touched
		release(t, sem, lost, false)
		for _, key := range []string{"sem", "sem:owner"} {
			if err := rdb.ZScore(t.Context(), key, lost).Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("the lost permit is in %s again (%v)", key, err)
			}
		}
		if v.clock {
			refresh(t, sem, id, true) // the present holder has noticed nothing
		}
	})
}

// TestNeverAboveTheLimit has goroutines compete for permits of the variants that
// promise to keep to the limit. (The others are in flaws_test.go.)
func TestNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	forThose(t, variant.exact, func(t *testing.T, v variant, srv *redistest.Server) {
		limit := 2
		if v.limit == 1 {
			limit = 1
		}
		var held, granted atomic.Int64
		rdb := srv.Client()
		var all sync.WaitGroup
		for range 8 {
			sem := v.new(t, rdb, limit, Options{Wait: time.Second})
			all.Go(func() {
				for range 25 {
					id, ok, err := sem.Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if !ok {
						continue
					}
					granted.Add(1)
					if n := held.Add(1); n > int64(limit) {
						t.Errorf("%d holders of %d", n, limit)
					}
					for range 3 { // time for the others to try
						rdb.Ping(t.Context())
					}
					held.Add(-1)
					if ok, err := sem.Release(t.Context(), id); err != nil || !ok {
						t.Errorf("Release = %v, %v", ok, err)
					}
				}
			})
		}
		all.Wait()
		if granted.Load() == 0 {
			t.Error("nobody got a permit")
		}
	})
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		rdb := srv.Client()
		sem := v.new(t, rdb, 1, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if id, ok, err := sem.Acquire(ctx); !errors.Is(err, context.Canceled) || ok || id != "" {
			t.Errorf("Acquire = %q, %v, %v", id, ok, err)
		}
		if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("left behind: %q", keys)
		}
		id := must(t, sem)
		if ok, err := sem.Release(ctx, id); !errors.Is(err, context.Canceled) || ok {
			t.Errorf("Release = %v, %v", ok, err)
		}
		if r, ok := sem.(Refresher); ok {
			if ok, err := r.Refresh(ctx, id); !errors.Is(err, context.Canceled) || ok {
				t.Errorf("Refresh = %v, %v", ok, err)
			}
		}
		release(t, sem, id, true)
	})
}

func TestWrongInput(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never asked
	defer func() { _ = rdb.Close() }()
	check := func(t *testing.T, err error, want string) {
		t.Helper()
		var in *ArgumentError
		if !errors.As(err, &in) || in.Package != "classic" || !strings.HasPrefix(err.Error(), "classic: "+want) {
			t.Errorf("error %v; want classic: %s…", err, want)
		}
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			for _, c := range []struct {
				rdb   redis.UniversalClient
				name  string
				limit int
				o     Options
				want  string
			}{
				{rdb, "", 1, Options{}, `name "": want `},
				{rdb, strings.Repeat("x", 513), 1, Options{}, `name "xxx`},
				{rdb, "a\nb", 1, Options{}, `name "a\nb": want `},
				{rdb, "a\xff", 1, Options{}, `name "a\xff": want `},
				{rdb, "a", 0, Options{}, "limit 0: want "},
				{rdb, "a", -1, Options{}, "limit -1: want "},
				{rdb, "a", 1, Options{Lease: -time.Second}, "lease -1s: want "},
				{rdb, "a", 1, Options{ScoreUnit: time.Minute}, "score unit 1m0s: want "},
				{rdb, "a", 1, Options{ScoreUnit: -1}, "score unit -1ns: want "},
				{nil, "a", 1, Options{}, "client nil: want "},
				{(*redis.Client)(nil), "a", 1, Options{}, "client nil: want "},
				{(*redis.ClusterClient)(nil), "a", 1, Options{}, "client nil: want "},
			} {
				if v.limit == 1 && strings.HasPrefix(c.want, "limit") {
					continue // takes none
				}
				_, err := v.make(c.rdb, c.name, c.limit, c.o)
				check(t, err, c.want)
			}
			sem := v.new(t, rdb, 1, Options{})
			_, err := sem.Release(t.Context(), "")
			check(t, err, `id "": want `)
			if r, ok := sem.(Refresher); ok {
				_, err := r.Refresh(t.Context(), "")
				check(t, err, `id "": want `)
			}
		})
	}
	limit := maxLimit // beyond it there is no int on a machine of 32 bits
	if limit++; limit > maxLimit {
		_, err := NewBasic(rdb, "a", limit, Options{})
		check(t, err, "limit 2147483648: want ")
	}
	_, err := NewLock(rdb, "a", Options{Wait: -1})
	check(t, err, "wait -1ns: want ")
	_, err = NewLocked(rdb, "a", 1, Options{LockLease: -time.Second})
	check(t, err, "lock lease -1s: want ")
	_, err = NewClockless(rdb, "a", 1, Options{Lease: time.Microsecond})
	check(t, err, "lease 1µs: want ")
	c, err := NewClockless(rdb, "a", 1, Options{})
	expect.OK(t, err)
	_, _, err = c.AcquireFor(t.Context(), 0)
	check(t, err, "lease 0s: want ")
	_, err = c.Extend(t.Context(), "x", -time.Second)
	check(t, err, "extension -1s: want ")
}

// TestOtherDataUnderTheNameIsAClearError also checks that the failed call leaves
// nothing behind, not even the counter of Fair.
func TestOtherDataUnderTheNameIsAClearError(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		rdb, failures := srv.Client(), 0
		for _, key := range []string{"sem", "sem:owner", "sem:counter", "lock:sem"} {
			expect.OK(t, rdb.FlushDB(t.Context()).Err())
			expect.OK(t, rdb.HSet(t.Context(), key, "some", "hash").Err())
			_, ok, err := v.new(t, rdb, 1, Options{Wait: 1}).Acquire(t.Context())
			if err == nil && ok {
				continue // a key that this type does not use
			}
			failures++
			if ok || !redis.HasErrorPrefix(errors.Unwrap(err), "WRONGTYPE") || !strings.HasPrefix(err.Error(), `classic: acquire "sem": `) {
				t.Errorf("%s: Acquire = %v, %v", key, ok, err)
			}
			if !strings.Contains(err.Error(), "another name") {
				t.Errorf("%s: %v says nothing to try", key, err)
			}
			if keys := rdb.Keys(t.Context(), "*").Val(); !slices.Equal(keys, []string{key}) {
				t.Errorf("%s: left behind %q", key, keys)
			}
		}
		if failures == 0 {
			t.Error("no foreign key was in the way")
		}
	})
}

// TestCluster uses names with the hash tag that the package comment asks for.
func TestCluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 3).Client()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			name := "{" + strings.ReplaceAll(v.name, " ", "") + "}"
			sem, err := v.make(rdb, name, 1, Options{Wait: 1})
			expect.OK(t, err)
			id := must(t, sem)
			mustNot(t, sem)
			if v.refresh {
				refresh(t, sem, id, true)
			}
			release(t, sem, id, true)
		})
	}
	fair, err := NewFair(rdb, "plain", 1, Options{})
	expect.OK(t, err)
	if _, _, err := fair.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "such as {name}") {
		t.Errorf("without a hash tag: %v", err)
	}
}

// missing reports whether an error lacks a text, or is there without one.
func missing(err error, want string) bool {
	return (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want)
}

// A client for one server works with some names at a node of a cluster, and one for a cluster with none at a single server.
// So each fails with all of them, before it changes anything, and says which client fits.
func TestAClientThatDoesNotFitItsServer(t *testing.T) {
	t.Parallel()
	cluster, single := redistest.StartCluster(t, 2), redistest.Start(t)
	one := redistest.StartClusterNode(t, nil)
	redistest.FormCluster(t, []*redistest.Server{one}, nil)
	node := redis.NewClient(&redis.Options{Addr: cluster.Nodes[0].Addr()})
	slots := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{single.Addr()}})
	t.Cleanup(func() { _, _ = node.Close(), slots.Close() })
	for _, v := range variants {
		for i := range 6 {
			for _, at := range []struct {
				rdb  redis.UniversalClient
				want string
			}{{node, "use redis.NewClusterClient"}, {slots, "use redis.NewClient,"}, {one.Client(), ""}} {
				s, err := v.make(at.rdb, fmt.Sprintf("{%s%d}", v.name, i), 1, Options{Wait: 1})
				expect.OK(t, err)
				_, ok, err := s.Acquire(t.Context())
				if ok != (at.want == "") || missing(err, at.want) {
					t.Errorf("%s %d: %v, %v; want %q", v.name, i, ok, err, at.want)
				}
				if _, err := s.Release(t.Context(), newID()); missing(err, at.want) {
					t.Errorf("%s %d: release: %v; want %q", v.name, i, err, at.want)
				}
			}
		}
	}
	for _, server := range append(cluster.Nodes, single) {
		if keys := server.Client().Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("left: %v", keys)
		}
	}
}

// TestAccessRules gives a user the rights that docs/choosing.md lists, and no
// others.
func TestAccessRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/choosing.md")
	expect.OK(t, err)
	var rule []any
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "ACL SETUSER classic ") {
			for _, word := range strings.Fields(line) {
				rule = append(rule, word)
			}
		}
	}
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		if err := srv.Client().Do(t.Context(), rule...).Err(); err != nil {
			t.Fatal(rule, err)
		}
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "classic", Password: "secret"})
		defer func() { _ = rdb.Close() }()
		sem := v.new(t, rdb, 1, Options{})
		id := must(t, sem)
		mustNot(t, sem)
		if v.refresh {
			refresh(t, sem, id, true)
		}
		release(t, sem, id, true)

		other, err := v.make(rdb, "other", 1, Options{Wait: 1})
		expect.OK(t, err)
		if _, ok, err := other.Acquire(t.Context()); ok || err == nil || !strings.Contains(err.Error(), "docs/choosing.md") {
			t.Errorf("a name without rights: %v, %v", ok, err)
		}
	})
}
