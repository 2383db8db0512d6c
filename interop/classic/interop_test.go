//go:build interop

// Package classic lets the Python of Redis in Action and sema's package
// classic work on the same keys. Its tests need Python with redis-py and run
// by run.sh only.
package classic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema/classic"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// table counts what was exercised: who did what, on whose permit.
type table struct {
	rows  []string // kind and operation, in the order of their first use
	count map[string]map[string]int
}

func (x *table) add(k kind, actor, operation, owner string) {
	row := fmt.Sprintf("%-17s %s", k.name, operation)
	if x.count == nil {
		x.count = map[string]map[string]int{}
	}
	if x.count[row] == nil {
		x.count[row] = map[string]int{}
		x.rows = append(x.rows, row)
	}
	x.count[row][actor+" on "+owner]++
}

func (x *table) log(t *testing.T) {
	columns := []string{"Go on Go", "Go on Python", "Python on Go", "Python on Python"}
	s := fmt.Sprintf("%-36s", "")
	for _, c := range columns {
		s += fmt.Sprintf(" %16s", c)
	}
	for _, row := range x.rows {
		s += fmt.Sprintf("\n%-36s", row)
		for _, c := range columns {
			s += fmt.Sprintf(" %16d", x.count[row][c])
		}
	}
	t.Logf("exercised, how many times (who acts on whose permit):\n%s", s)
}

// pair is one client of each language on the same, empty semaphore.
func pair(t *testing.T, k kind, limit int, lease time.Duration) map[string]client {
	t.Helper()
	srv := redistest.Start(t)
	return map[string]client{
		"Go":     newOurs(t, srv, k, limit, lease),
		"Python": theirs{startPython(t, srv), k, limit, lease},
	}
}

func newOurs(t *testing.T, srv *redistest.Server, k kind, limit int, lease time.Duration) ours {
	t.Helper()
	sem, err := k.open(srv.Client(), limit, lease)
	expect.OK(t, err)
	return ours{t.Context(), sem}
}

func must(t *testing.T, c client) string {
	t.Helper()
	id, ok, err := c.acquire()
	if err != nil || !ok {
		t.Fatalf("%T.acquire = %q, %v, %v; want a permit", c, id, ok, err)
	}
	return id
}

func mustNot(t *testing.T, c client) {
	t.Helper()
	if id, ok, err := c.acquire(); err != nil || ok {
		t.Errorf("%T.acquire = %q, %v, %v; want a refusal", c, id, ok, err)
	}
}

func is(t *testing.T, what string, got bool, err error, want bool) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s = %v, %v; want %v", what, got, err, want)
	}
}

// TestEachDoesWhatTheOtherBegan has permits of one language refused, released
// and refreshed by the other.
func TestEachDoesWhatTheOtherBegan(t *testing.T) {
	done := &table{}
	defer done.log(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			limit := 4
			if k.lock {
				limit = 1
			}
			both := pair(t, k, limit, 10*time.Second)
			for _, way := range [][2]string{{"Go", "Python"}, {"Python", "Go"}, {"Go", "Go"}, {"Python", "Python"}} {
				var ids []string
				for i := range limit {
					who := way[i%2]
					ids = append(ids, must(t, both[who]))
					done.add(k, who, "acquire", who)
				}
				for i, who := range way {
					mustNot(t, both[who])
					done.add(k, who, "refused", way[1-i])
				}
				for i, id := range ids {
					holder, other := way[i%2], way[(i+1)%2]
					if k.refresh != "" {
						ok, err := both[other].refresh(id)
						is(t, other+" refreshes", ok, err, true)
						done.add(k, other, "refresh", holder)
					}
					ok, err := both[other].release(id)
					is(t, other+" releases", ok, err, true)
					done.add(k, other, "release", holder)
					for _, who := range []string{holder, other} {
						ok, err := both[who].release(id)
						is(t, who+" releases again", ok, err, false)
						done.add(k, who, "release, lost", holder)
						if k.refresh != "" {
							ok, err := both[who].refresh(id)
							is(t, who+" refreshes a lost one", ok, err, false)
							done.add(k, who, "refresh, lost", holder)
						}
					}
				}
			}
		})
	}
}

// TestLeasesEndForTheOther has a lease of one language end, and the other
// language get the permit.
func TestLeasesEndForTheOther(t *testing.T) {
	const lease = time.Second // locks know whole seconds only
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			both := pair(t, k, 1, lease)
			for _, way := range [][2]string{{"Go", "Python"}, {"Python", "Go"}} {
				holder, other := both[way[0]], both[way[1]]
				lost := must(t, holder)
				mustNot(t, other)
				var id string
				for deadline := time.Now().Add(10 * time.Second); id == ""; {
					got, ok, err := other.acquire()
					switch {
					case err != nil:
						t.Fatal(err)
					case ok:
						id = got
					case time.Now().After(deadline):
						t.Fatalf("%s never sees the lease of %s end", way[1], way[0])
					}
					time.Sleep(5 * time.Millisecond)
				}
				if k.refresh != "" {
					ok, err := holder.refresh(lost)
					is(t, way[0]+" refreshes what it lost", ok, err, false)
				}
				ok, err := holder.release(lost)
				is(t, way[0]+" releases what it lost", ok, err, false)
				ok, err = other.release(id)
				is(t, way[1]+" releases", ok, err, true)
			}
		})
	}
}

// TestFleet has Go and Python workers compete for the same permits. The exact
// kinds never go above the limit. In the end all permits of all kinds are back.
func TestFleet(t *testing.T) {
	const workers, rounds = 4, 100    // workers of each language
	const work = 2 * time.Millisecond // with a permit in hand
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			limit := 3
			if k.lock {
				limit = 1
			}
			srv := redistest.Start(t)
			var fleet []client
			for range workers {
				fleet = append(fleet, newOurs(t, srv, k, limit, 10*time.Second),
					theirs{startPython(t, srv), k, limit, 10 * time.Second})
			}
			var held, most atomic.Int64
			var granted [2]atomic.Int64 // Go, Python
			var all sync.WaitGroup
			for i, c := range fleet {
				all.Go(func() {
					for range rounds {
						id, ok, err := c.acquire()
						if err != nil {
							t.Error(err)
							return
						}
						if !ok {
							continue
						}
						granted[i%2].Add(1)
						n := held.Add(1)
						if n > int64(limit) && k.exact {
							t.Errorf("%d holders of %d", n, limit)
						}
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						time.Sleep(work)
						held.Add(-1)
						if _, err := c.release(id); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			t.Logf("limit %d, %d tries: Go got %d permits, Python %d, at most %d holders",
				limit, 2*workers*rounds, granted[0].Load(), granted[1].Load(), most.Load())
			if granted[0].Load() == 0 || granted[1].Load() == 0 {
				t.Error("one language got nothing")
			}
			for range limit {
				must(t, fleet[0])
			}
			mustNot(t, fleet[1])
		})
	}
}

// TestDeadPythonWithTheLock shows the flaw of 6.3.4 in the book's code: nobody
// gets a permit after a client died with the lock. Our Locked ends that for both.
func TestDeadPythonWithTheLock(t *testing.T) {
	srv := redistest.Start(t)
	victim := startPython(t, srv)
	var id *string
	if err := victim.call(&id, "lock_acquire", "sem", 1); err != nil || id == nil {
		t.Fatal(id, err)
	}
	expect.OK(t, victim.cmd.Process.Kill())
	locked := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.acquire == "locked_acquire" })]
	book := theirs{startPython(t, srv), locked, 1, time.Second}
	for range 20 {
		mustNot(t, book)
	}
	sem, err := classic.NewLocked(srv.Client(), "sem", 1, classic.Options{LockLease: time.Second})
	expect.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		id, ok, err := sem.Acquire(ctx)
		expect.OK(t, err)
		if ok {
			if _, err := sem.Release(ctx, id); err != nil {
				t.Error(err)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(t, book)
}

// perSecond is how many units of a kind's scores make a second.
func perSecond(k kind) float64 {
	if k.acquire == "port_acquire" {
		return 1000
	}
	return 1
}

// TestSameData compares what a permit of each language looks like in Redis.
func TestSameData(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			srv := redistest.Start(t)
			rdb := srv.Client()
			clients := []client{newOurs(t, srv, k, 1, 10*time.Second), theirs{startPython(t, srv), k, 1, 10 * time.Second}}
			var seen [2]string
			for i, c := range clients {
				expect.OK(t, rdb.FlushDB(t.Context()).Err())
				before := float64(time.Now().UnixMilli()) / 1e3 // whole milliseconds are rounded down
				id := must(t, c)
				after := float64(time.Now().UnixNano()) / 1e9
				for _, key := range rdb.Keys(t.Context(), "*").Val() {
					kind := rdb.Type(t.Context(), key).Val()
					seen[i] += key + " " + kind
					if kind == "string" {
						seen[i] += " " + strings.ReplaceAll(rdb.Get(t.Context(), key).Val(), id, "ID")
					} else {
						for _, z := range rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
							score := fmt.Sprint(z.Score)
							if now := z.Score / perSecond(k); now >= before && now <= after {
								score = "NOW"
							}
							seen[i] += fmt.Sprintf(" %s %s", strings.ReplaceAll(z.Member.(string), id, "ID"), score)
						}
					}
					seen[i] += fmt.Sprintf(" TTL %v; ", rdb.TTL(t.Context(), key).Val().Round(time.Second))
				}
			}
			for i := range seen { // KEYS has no order
				keys := strings.Split(seen[i], "; ")
				slices.Sort(keys)
				seen[i] = strings.Join(keys, "; ")
			}
			if seen[0] != seen[1] {
				t.Errorf("Go leaves\n  %s\nPython\n  %s", seen[0], seen[1])
			}
			t.Log(seen[0])
		})
	}
}
