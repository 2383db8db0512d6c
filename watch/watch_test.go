package watch_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is an engine that counts its calls, and fails on demand.
type counting struct {
	protocol.Engine
	opened, closed, states, lists atomic.Int64
	atOnce, most                  atomic.Int64
	broken                        atomic.Bool
	takes                         time.Duration // the time of a State
	hidden                        []string      // further names in the result of List
}

var errBroken = &engine.Error{Op: "state", Err: errors.New("broken")}

func (e *counting) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	e.opened.Add(1)
	return &countingSession{s, e}, err
}

func (e *counting) List(ctx context.Context) ([]string, error) {
	e.lists.Add(1)
	if e.broken.Load() {
		return nil, errBroken
	}
	list, err := e.Engine.List(ctx)
	list = append(list, e.hidden...)
	slices.Sort(list)
	return list, err
}

type countingSession struct {
	protocol.Session
	e *counting
}

func (s *countingSession) State(ctx context.Context) (engine.State, error) {
	s.e.states.Add(1)
	s.e.most.Store(max(s.e.most.Load(), s.e.atOnce.Add(1)))
	defer s.e.atOnce.Add(-1)
	if s.e.takes > 0 {
		select {
		case <-time.After(s.e.takes):
		case <-ctx.Done():
		}
	}
	if s.e.broken.Load() {
		return engine.State{}, errBroken
	}
	return s.Session.State(ctx)
}

func (s *countingSession) Close() error {
	s.e.closed.Add(1)
	return s.Session.Close()
}

// bubble runs f in virtual time.
func bubble(t *testing.T, o *watch.Options, f func(t *testing.T, e *counting, w *watch.Watcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New()}
		w, err := watch.New(e, o)
		expect.OK(t, err)
		t.Cleanup(func() {
			w.Close()
			if opened, closed := e.opened.Load(), e.closed.Load(); opened != closed {
				t.Errorf("%d sessions opened, %d closed", opened, closed)
			}
		})
		f(t, e, w)
	})
}

func semaphore(t *testing.T, e protocol.Engine, name string, limit int, o *sema.Options) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, name, limit, o)
	expect.OK(t, err)
	t.Cleanup(func() { expect.OK(t, s.Close()) })
	return s
}

// operator makes an operator of a semaphore.
var operator = opened.Operator

// listener returns the events of a stream one by one.
type listener struct {
	t    *testing.T
	next func() (watch.Event, bool)
}

func listen(t *testing.T, w *watch.Watcher, of watch.Filter) *listener {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	next, stop := iter.Pull(w.Events(ctx, of))
	t.Cleanup(func() { stop(); cancel() })
	h := &listener{t, next}
	h.want("began")
	return h
}

// want checks the kinds of the next events and returns the last.
func (h *listener) want(kinds ...string) (e watch.Event) {
	h.t.Helper()
	for i, kind := range kinds {
		var ok bool
		if e, ok = h.next(); !ok || e.Kind != kind {
			h.t.Fatalf("event %d of %v is %+v (%v)", i, kinds, e, ok)
		}
	}
	return e
}

func TestALifeIsHeard(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		for _, of := range []watch.Filter{{Name: "x"}, {Prefixes: []string{"nobody", "x"}}, {}} {
			h := listen(t, w, of)
			s := semaphore(t, e, "x", 2, &sema.Options{Label: "job"})
			p := ignore(s.Acquire(t.Context(), sema.Weight(2)))
			if got := h.want("limit"); got.Limit != 2 || got.Pinned || got.Semaphore != "x" {
				t.Errorf("%+v", got)
			}
			got := h.want("granted")
			if got.Permit != p.ID() || got.Token != p.Token() || got.Weight != 2 || got.Client.Label != "job" {
				t.Errorf("%+v", got)
			}
			granted := make(chan *sema.Permit)
			go func() {
				p, _ := s.Acquire(context.Background())
				granted <- p
			}()
			waiter := h.want("queued")
			if waiter.Weight != 1 || waiter.Permit == p.ID() {
				t.Errorf("%+v", waiter)
			}
			o := operator(t, e, "x")
			expect.OK(t, o.Pause(t.Context()))
			h.want("paused")
			expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 1}))
			if got := h.want("limit"); got.Limit != 1 || !got.Pinned {
				t.Errorf("%+v", got)
			}
			expect.OK(t, p.Release())
			if got := h.want("released"); got.Permit != p.ID() || got.Held < time.Second {
				t.Errorf("%+v", got)
			}
			expect.OK(t, o.Unpause(t.Context()))
			second := <-granted
			got = h.want("unpaused", "granted")
			if got.Permit != waiter.Permit || got.Waited < 2*time.Second || got.Token != second.Token() {
				t.Errorf("%+v", got)
			}
			time.Sleep(time.Second / 3) // to be between two looks
			expect.OK(t, o.Revoke(t.Context(), second.ID()))
			<-second.Context(t.Context()).Done()
			_ = second.Release() // the error does not matter
			if got := h.want("released"); got.Permit != second.ID() {
				t.Errorf("%+v", got)
			}
			expect.OK(t, o.Unset(t.Context()))
			if got := h.want("limit"); got.Pinned {
				t.Errorf("%+v", got)
			}
			expect.OK(t, o.Remove(t.Context()))
			if got := h.want("removed"); got.Limit != 1 {
				t.Errorf("%+v", got)
			}
		}
	})
}

// Events have the key and what is taken of pools, and a summary has the numbers of waiting keys.
func TestKeysAreTold(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		h := listen(t, w, watch.Filter{Name: "x"})
		s := semaphore(t, e, "x", 3, &sema.Options{Caps: sema.Caps{2}, Pools: "gpu=1"})
		p := ignore(s.Acquire(t.Context(), sema.For("acme"), sema.Weight(2), sema.Take("gpu", 1)))
		if got := h.want("limit", "granted"); got.Key != "acme" || got.Takes != "gpu=1" {
			t.Errorf("%+v", got)
		}
		done := make(chan *sema.Permit, 3)
		wait := func(key string, n int) {
			go func() { done <- ignore(s.Acquire(context.Background(), sema.For(key), sema.Weight(n))) }()
			if got := h.want("queued"); got.Key != engine.Key(key) || got.Takes != "" {
				t.Errorf("%+v", got)
			}
		}
		wait("acme", 1)
		wait("beta", 2)
		list, _, err := w.Summaries(t.Context(), watch.Query{N: 1, Now: true})
		if err != nil || len(list) != 1 || list[0].Keys != (watch.Levels{2}) || list[0].InTurn != (watch.Levels{1}) || list[0].Full != (watch.Levels{1}) || list[0].Waiting != 2 {
			t.Errorf("%+v, %v", list, err)
		}
		expect.OK(t, p.Release())
		if got := h.want("released"); got.Key != "acme" || got.Takes != "gpu=1" {
			t.Errorf("%+v", got)
		}
		for range 2 {
			if got := h.want("granted"); got.Key == "" {
				t.Errorf("%+v", got)
			}
			expect.OK(t, (<-done).Release())
		}
	})
}

// Levels are counted apart, and a key is not in turn if all that wait below it are at their caps.
func TestLevelsOfKeysAreCounted(t *testing.T) {
	type k = engine.KeyState
	at := func(names ...string) engine.Key { return engine.Key(strings.Join(names, engine.KeySeparator)) }
	s := watch.Summarize("x", time.Time{}, engine.State{Keys: []engine.KeyState{
		k{Key: "", Waiting: 1, InTurn: true}, k{Key: "acme", Waiting: 3, InTurn: true}, k{Key: at("acme", ""), Waiting: 1, InTurn: true}, k{Key: at("acme", "alice"), Waiting: 1, Full: true},
		k{Key: "beta", Waiting: 1}, k{Key: at("beta", "bob"), Waiting: 1}, k{Key: at("beta", "bob", "gpt"), Waiting: 1, Full: true}, k{Key: "gamma", Held: 1},
		k{Key: "delta", Waiting: 1, Full: true}, k{Key: at("delta", "dora"), Waiting: 1, InTurn: true},
	}})
	if s.Keys != (watch.Levels{5, 4, 1}) || s.InTurn != (watch.Levels{2, 2, 0}) || s.Full != (watch.Levels{1, 1, 1}) {
		t.Errorf("keys %v, in turn %v, full %v", s.Keys, s.InTurn, s.Full)
	}
}

func ignore[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The permit of a dead holder ends with its lease, and not with a release.
func TestALostPermitIsNotCalledReleased(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		s := semaphore(t, e, "x", 1, &sema.Options{Lease: 10 * time.Second, Renew: sema.NoRenewal, Detached: true})
		h := listen(t, w, watch.Filter{Name: "x"})
		p := ignore(s.Acquire(t.Context()))
		h.want("limit", "granted")
		e2 := h.want("ended")
		if e2.Permit != p.ID() || e2.Held < 8*time.Second {
			t.Errorf("%+v", e2)
		}
	})
}

func TestARevokedHolderThatDoesNotListen(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		raw := ignore(e.Open("x", engine.Client{Label: "silent"}, func(protocol.Notification) {}))
		id := engine.ID{Client: raw.Client(), Number: 1, Weight: 1}
		ignore(raw.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.Ask, ID: id, Limit: 1, Lease: time.Minute}}}))
		h := listen(t, w, watch.Filter{Name: "x"})
		expect.OK(t, operator(t, e, "x").Revoke(t.Context(), id.String()))
		if got := h.want("revoked"); got.Permit != id.String() || got.Client.Label != "silent" {
			t.Errorf("%+v", got)
		}
		h.want("ended")
		expect.OK(t, raw.Close())
	})
}

func TestAStreamSaysThatTheEngineIsAway(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		o := operator(t, e, "x")
		expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 1}))
		one, all := listen(t, w, watch.Filter{Name: "x"}), listen(t, w, watch.Filter{})
		e.broken.Store(true)
		if got := one.want("unreachable"); !errors.Is(got.Err, errBroken) {
			t.Errorf("%+v", got)
		}
		all.want("unreachable", "unreachable") // from the semaphore and from the list
		expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 2}))
		e.broken.Store(false)
		one.want("reachable", "limit")
		var kinds []string
		for range 3 {
			got, _ := all.next()
			kinds = append(kinds, got.Kind)
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []string{"limit", "reachable", "reachable"}) {
			t.Error(kinds)
		}
	})
}

func TestASlowListenerIsToldHowMuchItMissed(t *testing.T) {
	bubble(t, &watch.Options{Buffer: 10}, func(t *testing.T, e *counting, w *watch.Watcher) {
		h := listen(t, w, watch.Filter{Name: "x"})
		s := semaphore(t, e, "x", 100, nil)
		for range 30 {
			p := ignore(s.Acquire(t.Context()))
			time.Sleep(2 * time.Second)
			expect.OK(t, p.Release())
			time.Sleep(2 * time.Second)
		}
		// The events are limit, and 30 times granted and released.
		if got := h.want("missed"); got.Missed != 51 {
			t.Errorf("%+v", got)
		}
		for range 5 {
			h.want("granted", "released")
		}
	})
}

// A hundred listeners cost as many looks as one.
func TestListenersShareLooks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		expect.OK(t, operator(t, e, "x").Set(t.Context(), sema.Rule{Limit: 1}))
		ctx, cancel := context.WithCancel(t.Context())
		for range 100 {
			go func() {
				for range w.Events(ctx, watch.Filter{Name: "x"}) {
				}
			}()
		}
		synctest.Wait()
		before := e.states.Load()
		time.Sleep(60 * time.Second)
		if n := e.states.Load() - before; n < 55 || n > 61 {
			t.Errorf("%d looks in a minute", n)
		}
		cancel()
		synctest.Wait()
		before = e.states.Load()
		time.Sleep(2 * time.Minute)
		if n := e.states.Load() - before; n != 0 {
			t.Errorf("%d looks without listeners", n)
		}
		if opened, closed := e.opened.Load(), e.closed.Load(); opened != closed+1 { // the test's own session is open
			t.Errorf("%d sessions opened, %d closed: an idle session is still open", opened, closed)
		}
	})
}

func TestSummaries(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		if page, total, err := w.Summaries(t.Context(), watch.Query{N: 10}); len(page) != 0 || total != 0 || err != nil {
			t.Errorf("empty: %v %d %v", page, total, err)
		}
		for i := range 25 {
			name := fmt.Sprintf("job-%02d", i)
			s, o := semaphore(t, e, name, 30, nil), operator(t, e, name)
			expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 30}))
			if i > 0 {
				ignore(s.Acquire(t.Context(), sema.Weight(i)))
			}
			if i == 7 {
				ignore(s.Acquire(t.Context(), sema.Weight(23)))
				expect.OK(t, o.Pause(t.Context()))
				for range 3 {
					go func() { _, _ = s.Acquire(context.Background()) }()
				}
			}
			if i == 9 {
				time.Sleep(time.Second)
				go func() { _, _ = s.Acquire(context.Background(), sema.Weight(30)) }()
				time.Sleep(time.Second)
			}
		}
		time.Sleep(5 * time.Second)
		names := func(q watch.Query) (list []string, total int) {
			page, total, err := w.Summaries(t.Context(), q)
			expect.OK(t, err)
			for _, s := range page {
				list = append(list, s.Name)
			}
			return list, total
		}
		for _, c := range []struct {
			q     watch.Query
			first string
			n     int
			total int
		}{
			{watch.Query{N: 10}, "job-00", 10, 25},
			{watch.Query{N: 10, After: "job-09"}, "job-10", 10, 25},
			{watch.Query{N: 10, After: "job-095"}, "job-10", 10, 25},
			{watch.Query{N: 10, After: "z"}, "", 0, 25},
			{watch.Query{N: 10, Skip: 20}, "job-20", 5, 25},
			{watch.Query{N: 10, Skip: 99}, "", 0, 25},
			{watch.Query{N: 10, Skip: -1}, "job-00", 10, 25},
			{watch.Query{}, "job-00", 25, 25},
			{watch.Query{Filter: "B-1", N: 3}, "job-10", 3, 10},
			{watch.Query{Filter: "none", N: 3}, "", 0, 0},
			{watch.Query{Prefixes: []string{"job-2", "x", "job-11"}, N: 9}, "job-11", 6, 6},
			{watch.Query{Order: "use", N: 2}, "job-07", 2, 25},
			{watch.Query{Order: "use", N: 2, Skip: 1}, "job-24", 2, 25},
			{watch.Query{Order: "waiting", N: 2}, "job-07", 2, 25},
			{watch.Query{Order: "oldest", N: 2}, "job-07", 2, 25},
		} {
			list, total := names(c.q)
			first := ""
			if len(list) > 0 {
				first = list[0]
			}
			if first != c.first || len(list) != c.n || total != c.total {
				t.Errorf("%+v: %v of %d", c.q, list, total)
			}
		}
		page, _, err := w.Summaries(t.Context(), watch.Query{Filter: "job-07"})
		expect.OK(t, err)
		s := page[0]
		if s.Limit != 30 || s.Used != 30 || !s.Pinned || !s.Paused || s.Holders != 2 || s.Waiting != 3 || s.Oldest < 5*time.Second || s.Err != nil {
			t.Errorf("%+v", s)
		}
		var argument *engine.ArgumentError
		for _, q := range []watch.Query{{Order: "size"}, {Order: "use", After: "x"}} {
			if _, _, err := w.Summaries(t.Context(), q); !errors.As(err, &argument) {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// With ten thousand semaphores, a page costs only the looks at its rows, a round respects its
// rate, and few sessions stay open.
func TestTenThousandSemaphores(t *testing.T) {
	bubble(t, &watch.Options{Linger: 70 * time.Second}, func(t *testing.T, e *counting, w *watch.Watcher) {
		e.takes = time.Millisecond
		for i := range 10_000 {
			s := ignore(e.Engine.Open(fmt.Sprintf("s%05d", i), engine.Client{}, func(protocol.Notification) {}))
			ignore(s.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: i + 1, Pin: true}}}))
			expect.OK(t, s.Close())
		}
		page, total, err := w.Summaries(t.Context(), watch.Query{N: 50, Skip: 5000})
		if err != nil || total != 10_000 || len(page) != 50 || page[0].Limit != 5001 {
			t.Fatalf("%v %d %v", page, total, err)
		}
		if n := e.states.Load(); n != 50 {
			t.Errorf("%d looks for a page of 50", n)
		}
		began := time.Now()
		if _, _, err := w.Summaries(t.Context(), watch.Query{Order: "use", N: 50}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("a round takes %v", took)
		}
		began = time.Now()
		if _, _, err := w.Summaries(t.Context(), watch.Query{Order: "use", N: 50}); err != nil || time.Since(began) > time.Second {
			t.Errorf("a second page takes %v, %v", time.Since(began), err)
		}
		time.Sleep(time.Minute)
		if open := e.opened.Load() - e.closed.Load(); open > 256+8 {
			t.Errorf("%d sessions are open", open)
		}
		if most := e.most.Load(); most > 8 {
			t.Errorf("%d looks at once", most)
		}
		before := e.states.Load()
		time.Sleep(time.Minute)
		after := e.states.Load()
		time.Sleep(20 * time.Minute)
		if n := e.states.Load() - after; n != 0 || after-before > 20*1000 {
			t.Errorf("%d looks while rounds continue, and %d after that", after-before, n)
		}
		if open := e.opened.Load() - e.closed.Load(); open != 0 {
			t.Errorf("%d sessions are still open", open)
		}
	})
}

// follower records the looks that it receives.
type follower struct {
	mu    sync.Mutex
	looks []watch.Look
}

func (f *follower) add(l watch.Look) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks = append(f.looks, l)
}

func (f *follower) list() []watch.Look {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.looks)
}

func TestFollowersAreToldOfAllLooks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		sem := semaphore(t, e, "x", 3, &sema.Options{Label: "job"})
		expect.OK(t, operator(t, e, "x").Set(t.Context(), sema.Rule{Limit: 3}))
		f := &follower{}
		ctx, stop := context.WithCancel(t.Context())
		w.Follow(ctx, false, f.add)
		time.Sleep(time.Hour)
		if n := e.states.Load(); n != 0 {
			t.Errorf("%d looks without a call that needs them", n)
		}
		ignore(w.State(t.Context(), "x"))
		p := ignore(sem.Acquire(t.Context(), sema.Weight(2)))
		time.Sleep(10 * time.Second)
		ignore(w.State(t.Context(), "x"))
		found := f.list()
		if len(found) != 2 || found[0].Since != 0 || found[1].Since != 10*time.Second || found[1].Used != 2 || len(found[1].State.Holders) != 1 {
			t.Fatalf("%+v", found)
		}
		if events := found[1].Events; len(events) != 1 || events[0].Kind != "granted" || events[0].Held != 10*time.Second {
			t.Errorf("%+v", events)
		}
		stop()
		time.Sleep(time.Second)
		w.Follow(t.Context(), true, f.add)
		expect.OK(t, p.Release())
		time.Sleep(time.Hour)
		if n := len(f.list()) - 2; n < 700 || n > 725 {
			t.Errorf("%d looks in an hour", n)
		}
	})
}

// The wait of a granted event lasts until the grant, and not only until the look before it.
func TestAWaitIsAsLongAsItWas(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		sem, other := semaphore(t, e, "x", 1, nil), semaphore(t, e, "x", 1, nil)
		p := ignore(sem.Acquire(t.Context()))
		granted := make(chan *sema.Permit)
		go func() { granted <- ignore(other.Acquire(t.Context())) }()
		f := &follower{}
		w.Follow(t.Context(), false, f.add)
		time.Sleep(2 * time.Second)
		ignore(w.State(t.Context(), "x"))
		time.Sleep(3 * time.Second)
		expect.OK(t, p.Release())
		<-granted
		time.Sleep(4 * time.Second)
		ignore(w.State(t.Context(), "x"))
		for _, event := range f.list()[1].Events {
			if event.Kind == "granted" && event.Waited != 5*time.Second {
				t.Errorf("waited %v", event.Waited)
			}
		}
	})
}

// With Soon, a page in any order uses the looks so far and does not wait.
func TestAPageThatDoesNotWait(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		for i := range 3000 {
			expect.OK(t, operator(t, e, fmt.Sprintf("s%05d", i)).Set(t.Context(), sema.Rule{Limit: i + 1}))
		}
		query := watch.Query{
			N: 50, Soon: true, Rank: func(s watch.Summary) float64 { return float64(s.Limit) },
			Match: func(s watch.Summary) bool { return s.Limit != 2999 },
		}
		page, total, err := w.Summaries(t.Context(), query)
		if err != nil || total != 3000 || len(page) != 50 || page[0].Looked.IsZero() {
			t.Fatalf("%v %d %v", page, total, err)
		}
		if n := e.states.Load(); n > 50+8 {
			t.Errorf("%d looks for a page of 50", n)
		}
		time.Sleep(5 * time.Second)
		if got := w.Totals(nil); got != (watch.Totals{Listed: 3000, Looked: 3000}) {
			t.Errorf("%+v", got)
		}
		if got := w.Totals([]string{"s0000", "x"}); got.Listed != 10 {
			t.Errorf("%+v", got)
		}
		page, total, err = w.Summaries(t.Context(), query)
		if err != nil || total != 2999 || page[0].Name != "s02999" || page[1].Name != "s02997" {
			t.Errorf("%v %d %v", page[:2], total, err)
		}
	})
}

// The rows of a page do not change while the first round looks at other semaphores.
func TestAPageStaysAsItIsDuringTheFirstRound(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		for i := range 3000 {
			expect.OK(t, operator(t, e, fmt.Sprintf("s%05d", i)).Set(t.Context(), sema.Rule{Limit: 1}))
		}
		for range 4 {
			page, _, err := w.Summaries(t.Context(), watch.Query{Skip: 2000, N: 50, Order: "use", Soon: true})
			if err != nil || page[0].Name != "s02000" || page[49].Name != "s02049" {
				t.Fatalf("%s to %s, %v", page[0].Name, page[49].Name, err)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestState(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		s := semaphore(t, e, "x", 3, nil)
		ignore(s.Acquire(t.Context()))
		st, err := w.State(t.Context(), "x")
		if err != nil || st.Used != 1 {
			t.Fatalf("%+v %v", st, err)
		}
		ignore(s.Acquire(t.Context()))
		if st, _, err := w.Recent(t.Context(), "x"); err != nil || st.Used != 1 {
			t.Errorf("recent: %+v %v", st, err)
		}
		if st, err := w.State(t.Context(), "x"); err != nil || st.Used != 2 {
			t.Errorf("a snapshot from before the call: %+v %v", st, err)
		}
		if st, err := w.State(t.Context(), "nobody"); err != nil || st.Limit != 0 {
			t.Errorf("%+v %v", st, err)
		}
		var argument *engine.ArgumentError
		if _, err := w.State(t.Context(), "a\nb"); !errors.As(err, &argument) {
			t.Error(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := w.State(ended, "x"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		e.broken.Store(true)
		if _, err := w.State(t.Context(), "x"); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if _, _, err := w.Summaries(t.Context(), watch.Query{Order: "use"}); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		e.broken.Store(false)
	})
}

// A failed look at one semaphore leaves the rest of the page intact.
func TestASemaphoreThatCannotBeRead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, w *watch.Watcher) {
		e.hidden = []string{"", "bad\x00name"} // from other programs' keys in the store
		expect.OK(t, operator(t, e, "x").Set(t.Context(), sema.Rule{Limit: 3}))
		expect.OK(t, operator(t, e, "y").Set(t.Context(), sema.Rule{Limit: 3}))
		failing := &oneFails{counting: e, name: "x"}
		w2, err := watch.New(failing, nil)
		expect.OK(t, err)
		defer w2.Close()
		for _, q := range []watch.Query{{N: 10}, {Order: "use", N: 10}, {}} {
			page, total, err := w2.Summaries(t.Context(), q)
			if err != nil || total != 2 || len(page) != 2 || page[0].Name != "x" || !errors.Is(page[0].Err, errBroken) || page[1].Limit != 3 || page[1].Err != nil {
				t.Errorf("%+v: %+v %d %v", q, page, total, err)
			}
		}
	})
}

// oneFails is an engine that fails to open one semaphore.
type oneFails struct {
	*counting
	name string
}

func (e *oneFails) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if name == e.name {
		return nil, errBroken
	}
	return e.counting.Open(name, who, notify)
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New(), takes: time.Hour}
		w, err := watch.New(e, &watch.Options{Timeout: 2 * time.Hour})
		expect.OK(t, err)
		expect.OK(t, operator(t, e, "x").Set(t.Context(), sema.Rule{Limit: 1}))
		ended := make(chan error, 4)
		go func() { _, err := w.State(context.Background(), "x"); ended <- err }()
		go func() { _, _, err := w.Summaries(context.Background(), watch.Query{}); ended <- err }()
		for _, of := range []watch.Filter{{Name: "x"}, {}} {
			go func() {
				for range w.Events(context.Background(), of) {
				}
				ended <- engine.ErrClosed
			}()
		}
		synctest.Wait()
		w.Close()
		w.Close()
		for range 4 {
			expect.Is(t, <-ended, engine.ErrClosed)
		}
		if _, err := w.State(context.Background(), "x"); !errors.Is(err, engine.ErrClosed) {
			t.Error(err)
		}
		for e := range w.Events(context.Background(), watch.Filter{}) {
			t.Errorf("%+v of a closed Watcher", e)
		}
	})
}
