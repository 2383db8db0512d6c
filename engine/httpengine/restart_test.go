//go:build unix

package httpengine_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/engine/memengine"
	"sema/internal/redistest"
	"sema/lab/expect"
	"sema/server"
)

// restartable is a server that can be killed and started again at the same
// address.
type restartable struct {
	tb   testing.TB
	addr string
	over func() engine.Engine // another process's engine each time

	http *http.Server
	s    *server.Server
	e    engine.Engine
	done chan struct{}
}

func startRestartable(tb testing.TB, over func() engine.Engine) *restartable {
	r := &restartable{tb: tb, addr: "127.0.0.1:0", over: over}
	r.start()
	tb.Cleanup(r.kill)
	return r
}

func (r *restartable) start() {
	l, err := net.Listen("tcp", r.addr)
	expect.OK(r.tb, err)
	r.addr, r.e = l.Addr().String(), r.over()
	r.s = server.New(r.e, nil)
	r.http, r.done = &http.Server{Handler: r.s}, make(chan struct{})
	go func() { defer close(r.done); _ = r.http.Serve(l) }()
}

// kill cuts all connections, as kill -9 does. What the process then leaves
// behind in this test is closed.
func (r *restartable) kill() {
	if r.http == nil {
		return
	}
	_ = r.http.Close()
	<-r.done
	r.s.Close()
	_ = r.e.Close()
	r.http = nil
}

func (r *restartable) url() string { return "http://" + r.addr }

func overSameRedis(t *testing.T) (*redistest.Server, func() engine.Engine) {
	s := redistest.Start(t)
	return s, func() engine.Engine { return redisAt(t, s) }
}

func ctxOf(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func semaphore(tb testing.TB, e sema.Engine, limit int, o *sema.Options) *sema.Semaphore {
	s, err := sema.New(e, tb.Name(), limit, o)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPermitsAndWaitersSurviveARestart(t *testing.T) {
	_, over := overSameRedis(t)
	r := startRestartable(t, over)
	ctx := ctxOf(t)
	failed := make(chan struct{}, 1000)
	o := &sema.Options{Lease: 3 * time.Second, Observer: sema.Observer{RenewFailed: func(sema.RenewFailed) { failed <- struct{}{} }}}
	s := semaphore(t, client(t, r.url()), 1, o)
	p, err := s.Acquire(ctx)
	expect.OK(t, err)
	other := semaphore(t, client(t, r.url()), 1, o)
	got := make(chan *sema.Permit, 1)
	go func() {
		next, err := other.Acquire(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	untilWaiters(t, s, 1)
	for range 3 {
		r.kill()
		<-failed
		r.start()
		before := p.Deadline()
		for p.Err() == nil && !p.Deadline().After(before) {
			time.Sleep(5 * time.Millisecond) // its own renewal is what is waited for
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
}

func untilWaiters(t *testing.T, s *sema.Semaphore, n int) {
	t.Helper()
	for {
		st, err := s.State(ctxOf(t))
		expect.OK(t, err)
		if len(st.Waiters) == n {
			return
		}
		time.Sleep(5 * time.Millisecond) // the store shows no event
	}
}

// Another process releases, by its id, what was acquired before the restart.
func TestAPermitIsReleasedByItsIDAfterARestart(t *testing.T) {
	_, over := overSameRedis(t)
	r := startRestartable(t, over)
	ctx := ctxOf(t)
	e := client(t, r.url())
	s, err := sema.New(e, t.Name(), 1, &sema.Options{Detached: true, Lease: time.Minute})
	expect.OK(t, err)
	p, err := s.Acquire(ctx)
	expect.OK(t, err)
	id := p.ID()
	expect.OK(t, e.Close())
	r.kill()
	r.start()
	other := semaphore(t, client(t, r.url()), 1, nil)
	resumed, err := other.Resume(ctx, id)
	expect.OK(t, err)
	if resumed.Token() != p.Token() {
		t.Errorf("token %d; want %d", resumed.Token(), p.Token())
	}
	expect.OK(t, resumed.Release())
	next, err := other.TryAcquire(ctx)
	expect.OK(t, err)
	expect.OK(t, next.Release())
}

// A memory engine gives out the same session names again after a restart.
func TestARestartThatForgetsLosesPermits(t *testing.T) {
	r := startRestartable(t, func() engine.Engine { return memengine.New() })
	ctx := ctxOf(t)
	o := &sema.Options{Lease: 2 * time.Second}
	s := semaphore(t, client(t, r.url()), 1, o)
	p, err := s.Acquire(ctx)
	expect.OK(t, err)
	r.kill()
	r.start()
	other := semaphore(t, client(t, r.url()), 1, o)
	next, err := other.Acquire(ctx)
	expect.OK(t, err)
	<-p.Context(ctx).Done()
	if p.Err() == nil || next.Err() != nil {
		t.Fatalf("the old holder: %v; the new one: %v", p.Err(), next.Err())
	}
	_ = p.Release() // says that it was lost
	expect.OK(t, next.Err())
	expect.OK(t, next.Renew(ctx))
	expect.OK(t, next.Release())
}

// Many clients work while the server is killed and comes back. At no time do
// more hold than the limit, by their own clocks, and in the end all is free.
func TestTheLimitHoldsThroughRestarts(t *testing.T) {
	const limit, clients = 3, 8
	_, over := overSameRedis(t)
	r := startRestartable(t, over)
	ctx := ctxOf(t)
	work, stop := context.WithCancel(ctx)
	var held, most, grants atomic.Int64
	var all sync.WaitGroup
	for range clients {
		s := semaphore(t, client(t, r.url()), limit, &sema.Options{Lease: 2 * time.Second})
		all.Go(func() {
			for work.Err() == nil {
				p, err := s.Acquire(work)
				if err != nil {
					continue // the server is away, or the test is over
				}
				n := held.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				grants.Add(1)
				select {
				case <-time.After(3 * time.Millisecond): // the work
				case <-p.Context(work).Done():
				}
				held.Add(-1)
				_ = p.Release() // fails while the server is away
			}
		})
	}
	for range 5 {
		before := grants.Load()
		for grants.Load() < before+50 {
			time.Sleep(time.Millisecond) // the grants are what is waited for
		}
		r.kill()
		r.start()
	}
	stop()
	all.Wait()
	if most.Load() > limit {
		t.Errorf("%d held at a time; the limit is %d", most.Load(), limit)
	}
	s := semaphore(t, client(t, r.url()), limit, nil)
	p, err := s.AcquireN(ctx, limit)
	expect.OK(t, err)
	expect.OK(t, p.Release())
	t.Logf("%d grants through 5 restarts", grants.Load())
}
