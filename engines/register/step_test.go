package register_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/register"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/loop"
	"sema/internal/protocol"
)

// steppedStore is a lockingStore with a clock that can be set.
type steppedStore struct {
	*lockingStore
	by          time.Duration
	there, back time.Duration // the way of a swap, and of its answer
	swaps       int           // that succeeded
}

func (s *steppedStore) Read(ctx context.Context, name string) (register.Row, error) {
	row, err := s.lockingStore.Read(ctx, name)
	row.Now += s.by.Microseconds()
	return row, err
}

func (s *steppedStore) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	by := s.by.Microseconds()
	time.Sleep(s.there)
	defer time.Sleep(s.back)
	now, ok, err := s.lockingStore.Swap(ctx, name, version, n, from-by, to-by)
	if ok {
		s.swaps++
	}
	return now + by, ok, err
}

func (s *steppedStore) Update(ctx context.Context, name string, first bool, f func(register.Row) (register.Next, error)) error {
	return s.lockingStore.Update(ctx, name, first, func(row register.Row) (register.Next, error) {
		row.Now += s.by.Microseconds()
		return f(row)
	})
}

// After the store's clock was set forward or back, new leases are not shorter, and tokens
// grow.
func TestSteppedClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 3 * time.Second, -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := &steppedStore{lockingStore: newLockingStore()}
			e := engineOn(t, store, nil)
			const lease = 20 * time.Second
			s := semaphoreOn(t, e, &sema.Options{Lease: lease, Renew: sema.NoRenewal})
			token := int64(0)
			for i := range 40 {
				if i == 20 {
					store.by = by
				}
				p, err := s.Acquire(t.Context())
				expect.OK(t, err)
				st, err := s.State(t.Context())
				expect.OK(t, err)
				if len(st.Holders) != 1 || st.Holders[0].Left < time.Until(p.Deadline()) {
					t.Fatalf("set by %v: %v is trusted for %v", by, st.Holders, time.Until(p.Deadline()))
				}
				if p.Token() <= token {
					t.Fatalf("set by %v: token %d after %d", by, p.Token(), token)
				}
				token = p.Token()
				expect.OK(t, p.Release())
				time.Sleep(time.Millisecond)
			}
			if store.swaps < 40 {
				t.Errorf("set by %v: only %d swaps of 80 steps and more", by, store.swaps)
			}
		})
	}
}

// The store's clock is set forward, and a process swaps without reading first. The swap tells it the new time,
// and it trusts the lease for no longer than the row says. A swap that waits for its row or its answer shortens nothing.
func TestAClockIsSetForwardBeforeASwap(t *testing.T) {
	for _, slow := range []struct{ there, back, by time.Duration }{
		{}, {by: 750 * time.Millisecond},
		{there: 600 * time.Millisecond}, {there: 600 * time.Millisecond, by: 350 * time.Millisecond},
		{back: 600 * time.Millisecond}, {back: 600 * time.Millisecond, by: 350 * time.Millisecond}, {back: 600 * time.Millisecond, by: 900 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &steppedStore{lockingStore: newLockingStore()}
			e := engineOn(t, store, nil)
			s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
			expect.OK(t, err)
			for i := range uint64(60) {
				kind := []protocol.Kind{protocol.Ask, protocol.Renew, protocol.Release}[i%3]
				id := engine.ID{Client: s.Client(), Number: 1 + i/3, Weight: 1}
				if store.there, store.back = 0, 0; i%20 == 16 || i%20 == 18 {
					store.there, store.back, store.by = slow.there, slow.back, store.by+slow.by
				}
				sent := time.Now()
				reply, err := s.Step(t.Context(), protocol.Call{Number: 1 + i, Requests: []protocol.Request{{Kind: kind, ID: id, Limit: 1, Lease: 4 * time.Second}}})
				expect.OK(t, err)
				row, err := store.Read(t.Context(), "x")
				expect.OK(t, err)
				trusted := reply.Answers[0].Lease - time.Since(sent)
				left, err := row.Lease(id.String())
				if kind != protocol.Release && (err != nil || left < trusted || left > trusted+time.Millisecond) || kind == protocol.Release && left > 0 {
					t.Errorf("%v: step %d: %v: the lease is trusted for %v, and in the row for %v; %v", slow, i, kind, trusted, left, err)
				}
			}
			if store.swaps < 30 {
				t.Errorf("%v: only %d swaps", slow, store.swaps)
			}
		})
	}
}

// After a crash has lost versions, new rows have other versions, even if the clock was set
// back: a process does not take them for its own lost ones.
func TestLostVersionsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &steppedStore{lockingStore: newLockingStore()}
		open := func() (*sema.Semaphore, *sema.Operator) {
			e := engineOn(t, store, nil)
			s := semaphoreOn(t, e, &sema.Options{Lease: time.Hour})
			o := opened.Operator(t, e, "x")
			return s, o
		}
		use := func(s *sema.Semaphore) {
			t.Helper()
			p, err := s.Acquire(t.Context())
			expect.OK(t, err)
			expect.OK(t, p.Release())
		}
		first, _ := open()
		_, other := open()
		use(first)
		store.by = -time.Hour
		for range 10 { // until it swaps without reading again
			use(first)
		}
		before := store.rows["x"]
		use(first)
		store.rows["x"] = before // the store loses two steps; two others follow
		expect.OK(t, other.Set(t.Context(), sema.Rule{Limit: 5}))
		expect.OK(t, other.Set(t.Context(), sema.Rule{Limit: 7}))
		use(first)
		if is, err := first.State(t.Context()); err != nil || is.Limit != 7 {
			t.Errorf("the limit is %d, not 7; %v", is.Limit, err)
		}
	})
}

// lateStore is a store on a network that may hold back a swap.
type lateStore struct {
	mapStore
	holds bool
	late  []func() (int64, bool, error)
}

func (s *lateStore) Swap(ctx context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	swap := func() (int64, bool, error) { return s.mapStore.Swap(ctx, name, version, n, from, to) }
	if s.holds {
		s.late = append(s.late, swap)
		return 0, false, errors.New("no answer")
	}
	return swap()
}

// A swap that comes late does nothing once its client has sent another call, even if that one changed nothing. And
// the row does not say so: what each process leaves there would be written with each step.
func TestALateSwapDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateStore{mapStore: mapStore{rows: map[string]register.Next{}}}
		for range 100 {
			e, err := register.New(store, nil)
			expect.OK(t, err)
			s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
			expect.OK(t, err)
			r := protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Hour}
			store.holds = true
			if _, err = s.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{r}}); err == nil {
				t.Fatal("answered")
			}
			store.holds, r.Kind = false, protocol.Release
			_, err = s.Step(t.Context(), protocol.Call{Number: 2, Fence: true, Requests: []protocol.Request{r}})
			expect.OK(t, err)
			if _, ok, err := store.late[len(store.late)-1](); ok || err != nil {
				t.Fatalf("a late swap was carried out; %v", err)
			}
			_, err = s.Step(t.Context(), protocol.Call{Number: 3, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: 5, Pin: true}}})
			expect.OK(t, err)
			expect.OK(t, e.Close())
		}
		if is := len(store.rows["x"].Data); is > 100 || len(store.late) != 100 {
			t.Errorf("%d bytes after %d late swaps", is, len(store.late))
		}
	})
}

// Processes that only poll notice a grant within one poll, also if they held a permit and
// did not wait at the poll before.
func TestPollingProcessesAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds, poll = 20, 50 * time.Millisecond
		store := newPolledStore()
		began := time.Now()
		var all sync.WaitGroup
		for range 2 {
			s := semaphoreOn(t, engineOn(t, store, &register.Options{Poll: poll}), &sema.Options{Lease: time.Hour})
			all.Go(func() {
				for range rounds {
					p, err := s.Acquire(t.Context())
					if err == nil {
						time.Sleep(time.Millisecond)
						err = p.Release()
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 2*rounds*(poll+2*time.Millisecond) {
			t.Errorf("%d rounds took %v", 2*rounds, took)
		}
	})
}

// busyStore says until a time that it is busy, or nothing.
type busyStore struct {
	*lockingStore
	until  time.Time
	silent bool
}

func (s *busyStore) busy(ctx context.Context) error {
	if s.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	if time.Now().Before(s.until) {
		return &engine.Error{Temporary: true, NotExecuted: true, Busy: true, Err: errors.New("too many clients")}
	}
	return nil
}

func (s *busyStore) Read(ctx context.Context, name string) (register.Row, error) {
	if err := s.busy(ctx); err != nil {
		return register.Row{}, err
	}
	return s.lockingStore.Read(ctx, name)
}

func (s *busyStore) Names(ctx context.Context) ([]string, error) {
	if err := s.busy(ctx); err != nil {
		return nil, err
	}
	return s.lockingStore.Names(ctx)
}

// State and List wait for a busy store, and not for one that says nothing.
func TestReadsWaitForABusyStore(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &busyStore{newLockingStore(), time.Now().Add(20 * time.Second), silent}
			e := engineOn(t, store, nil)
			s := semaphoreOn(t, e, nil)
			began := time.Now()
			for what, read := range map[string]func() error{
				"State": func() error { _, err := s.State(t.Context()); return err },
				"List": func() error {
					return loop.Repeat(t.Context(), func() error { _, err := e.List(t.Context()); return err })
				},
			} {
				switch err, took := read(), time.Since(began); {
				case !silent && err != nil:
					t.Errorf("%s: %v after %v", what, err, took)
				case silent && (!errors.Is(err, sema.ErrEngine) || took < 3*time.Second || took > 6*time.Second):
					t.Errorf("%s of a silent store: %v after %v", what, err, took)
				}
				if began = time.Now(); !silent {
					store.until = began.Add(20 * time.Second)
				}
			}
			time.Sleep(10 * time.Second) // until the reads end that went on without their callers
		})
	}
}

// sweptStore counts its sweeps.
type sweptStore struct {
	*lockingStore
	sweeps int
}

func (s *sweptStore) Sweep(context.Context) error { s.sweeps++; return nil }

// Processes that each use one new name do not look at all names each time.
func TestShortProcessesSweepSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 1500
		store := &sweptStore{lockingStore: newLockingStore()}
		for i := range all {
			e, err := register.New(store, nil)
			expect.OK(t, err)
			s, err := sema.New(e, strconv.Itoa(i), 1, nil)
			expect.OK(t, err)
			p, err := s.Acquire(t.Context())
			expect.OK(t, err)
			synctest.Wait()
			expect.OK(t, p.Release())
			expect.OK(t, s.Close())
			expect.OK(t, e.Close())
		}
		if store.sweeps == 0 || store.sweeps > all/10 {
			t.Errorf("%d sweeps in %d processes", store.sweeps, all)
		}
	})
}
