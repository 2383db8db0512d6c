//go:build unix

package httpengine_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/redistest"
)

// overBoth runs f on two servers with a store that survives a restart. In virtual time,
// with memory, leases are short; with Redis and real connections they are long, because a
// busy machine may stall.
func overBoth(t *testing.T, f func(t *testing.T, r *restartable, lease time.Duration)) {
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, overSameMemory(t), 3*time.Second) })
	})
	t.Run("Redis", func(t *testing.T) {
		f(t, overSameRedis(t, redistest.Start(t)), time.Minute)
	})
}

func TestPermitsAndWaitersSurviveARestart(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, lease time.Duration) {
		ctx := expect.Within(t)
		failed := make(chan struct{}, 1000)
		o := &sema.Options{Lease: lease, Observer: sema.Observer{RenewFailed: func(sema.Event) { failed <- struct{}{} }}}
		s := r.semaphore(1, o)
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		other := r.semaphore(1, o)
		got := make(chan *sema.Permit, 1)
		go func() {
			next, err := other.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		expect.Until(t, "a waiter", func() bool {
			st, err := s.State(ctx)
			expect.OK(t, err)
			return len(st.Waiters) == 1
		})
		for range 3 {
			r.kill()
			if lease == time.Minute { // the next automatic renewal is too late for this test
				r.start()
				expect.Until(t, "a renewal", func() bool { return p.Err() != nil || p.Renew(ctx) == nil })
			} else {
				<-failed
				r.start()
				before := p.Deadline()
				expect.Until(t, "a renewal", func() bool { return p.Err() != nil || p.Deadline().After(before) })
			}
			expect.OK(t, p.Err())
		}
		st, err := s.State(ctx)
		expect.OK(t, err)
		if len(st.Holders) != 1 || st.Holders[0].ID != p.ID() || st.Holders[0].Token != p.Token() {
			t.Errorf("%+v; want the permit %s as before", st, p.ID())
		}
		select {
		case next := <-got:
			t.Fatalf("granted %v beyond the limit", next)
		default:
		}
		expect.OK(t, p.Release())
		next := <-got
		if next == nil || next.Token() <= p.Token() {
			t.Fatalf("%+v", next)
		}
		expect.OK(t, next.Release())
		if st, err = s.State(ctx); err != nil || st.Used != 0 || len(st.Waiters) != 0 {
			t.Errorf("left over: %+v, %v", st, err)
		}
	})
}

// After a restart another process can release a permit by its id.
func TestAPermitIsReleasedByItsIDAfterARestart(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, _ time.Duration) {
		ctx := expect.Within(t)
		e := r.client(t)
		s, err := sema.New(e, t.Name(), 1, &sema.Options{Detached: true, Lease: time.Minute})
		expect.OK(t, err)
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		id := p.ID()
		expect.OK(t, e.Close())
		r.restart(t)
		other := r.semaphore(1, nil)
		resumed, err := other.Resume(ctx, id)
		expect.OK(t, err)
		if resumed.Token() != p.Token() {
			t.Errorf("token %d; want %d", resumed.Token(), p.Token())
		}
		expect.OK(t, resumed.Release())
		next, err := other.TryAcquire(ctx)
		expect.OK(t, err)
		expect.OK(t, next.Release())
	})
}

// An operator of the JSON API names the permit of a Go client by the id that the client has. That works in each life of its
// session, at the client's server and at another one.
func TestAnOperatorRevokesByTheClientsID(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, lease time.Duration) { revokesByID(t, r, r, lease) })
	overBoth(t, func(t *testing.T, r *restartable, lease time.Duration) {
		revokesByID(t, r, serve(t, r.newEngine, inMemory, nil), lease)
	})
}

func revokesByID(t *testing.T, r, at *restartable, lease time.Duration) {
	ctx := expect.Within(t)
	s := r.semaphore(2, &sema.Options{Lease: lease})
	operate := func(method, id, what string) int {
		answer := httptest.NewRecorder()
		at.s.ServeHTTP(answer, httptest.NewRequest(method, "http://localhost/v1/semaphores/"+url.PathEscape(t.Name())+"/holders/"+id+what, nil))
		return answer.Code
	}
	before, err := s.Acquire(ctx)
	expect.OK(t, err)
	r.restart(t)
	expect.Until(t, "a renewal", func() bool { return before.Renew(ctx) == nil })
	after, err := s.Acquire(ctx)
	expect.OK(t, err)
	waits, end := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.Acquire(waits)
	}()
	var queue []engine.Waiter
	expect.Until(t, "a ticket", func() bool {
		st, err := s.State(ctx)
		queue = st.Waiters
		return err == nil && len(queue) == 1
	})
	if status := operate(http.MethodDelete, queue[0].ID, ""); status != http.StatusNoContent {
		t.Errorf("taking %s from the queue: %d", queue[0].ID, status)
	}
	end()
	<-gone
	for _, p := range []*sema.Permit{before, after} {
		if status := operate(http.MethodPost, p.ID(), "/revoke"); status != http.StatusNoContent {
			t.Fatalf("revoking %s: %d", p.ID(), status)
		}
		if err := p.Renew(ctx); !errors.Is(err, sema.ErrRevoked) {
			t.Errorf("%s: %v", p.ID(), err)
		}
		_ = p.Release()
		expect.Until(t, "the end of the permit", func() bool { return operate(http.MethodDelete, p.ID(), "") == http.StatusGone })
	}
}

// A restarted memory engine assigns the same session names again. Nevertheless the old
// holder's permit is lost, and the new holder keeps its own.
func TestARestartWithoutStoreLosesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := serve(t, memory, inMemory, nil)
		ctx := expect.Within(t)
		o := &sema.Options{Lease: 2 * time.Second}
		s := r.semaphore(1, o)
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		r.restart(t)
		other := r.semaphore(1, o)
		next, err := other.Acquire(ctx)
		expect.OK(t, err)
		<-p.Context(ctx).Done()
		if p.Err() == nil || next.Err() != nil {
			t.Fatalf("the old holder: %v; the new one: %v", p.Err(), next.Err())
		}
		_ = p.Release() // fails: the permit was lost
		expect.OK(t, next.Err())
		expect.OK(t, next.Renew(ctx))
		expect.OK(t, next.Release())
	})
}

// The server is killed and restarted while many clients work. By their own clocks they
// never hold more than the limit, and in the end everything is free.
func TestTheLimitHoldsThroughRestarts(t *testing.T) {
	const limit, clients, restarts = 3, 8, 5
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, _ time.Duration) {
		ctx := expect.Within(t)
		work, stop := context.WithCancel(ctx)
		holds := &history.Holds{}
		var all sync.WaitGroup
		for i := range clients {
			// A release that is lost with the server keeps its permit taken for a lease.
			s := r.semaphore(limit, &sema.Options{Lease: 10 * time.Second})
			all.Go(func() {
				for n := 0; work.Err() == nil; n++ {
					hold := history.Hold{ID: fmt.Sprint(i, ".", n), Weight: 1, Slot: -1, Call: holds.Now()}
					p, err := s.Acquire(work)
					if err != nil {
						continue // the server is down, or the test has ended
					}
					hold.Return, hold.Token = holds.Now(), p.Token()
					select {
					case <-time.After(3 * time.Millisecond): // the work
					case <-p.Context(work).Done():
					}
					hold.Release, hold.Trusted = holds.Now(), p.Deadline().UnixNano()
					holds.Add(hold)
					_ = p.Release() // fails while the server is down
				}
			})
		}
		for range restarts {
			before := holds.Len()
			expect.Until(t, "50 more grants", func() bool { return holds.Len() >= before+50 })
			r.restart(t)
		}
		stop()
		all.Wait()
		expect.OK(t, holds.Check(limit, 0))
		s := r.semaphore(limit, nil)
		p, err := s.Acquire(ctx, sema.Weight(limit))
		expect.OK(t, err)
		expect.OK(t, p.Release())
		t.Logf("%d grants through %d restarts", holds.Len(), restarts)
	})
}
