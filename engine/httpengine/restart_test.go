//go:build unix

package httpengine_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engine/enginetest"
	"sema/engine/httpengine"
	"sema/engine/memengine"
	"sema/internal/redistest"
	"sema/lab/expect"
	"sema/lab/pipenet"
	"sema/server"
)

// restartable is a server that can be killed and started again at the same
// address.
type restartable struct {
	tb     testing.TB
	over   func() engine.Engine // another process's engine each time
	listen func() net.Listener

	mu       sync.Mutex
	listener net.Listener
	http     *http.Server
	s        *server.Server
	e        engine.Engine
	done     chan struct{}
}

// start starts the server, which over Redis is at the same port again.
func (r *restartable) start() {
	l := r.listen()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.e = l, r.over()
	r.s = server.New(r.e, nil)
	h, done := &http.Server{Handler: r.s}, make(chan struct{})
	r.http, r.done = h, done
	go func() { defer close(done); _ = h.Serve(l) }()
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

// client is an engine of the server, as another process would have it.
func (r *restartable) client() *httpengine.Engine {
	c := client(r.tb, "http://"+r.listener.Addr().String())
	if _, virtual := r.listener.(*pipenet.Listener); virtual {
		c.DialBy(func(ctx context.Context, network, address string) (net.Conn, error) {
			r.mu.Lock()
			l := r.listener
			r.mu.Unlock()
			return l.(*pipenet.Listener).Dial(ctx, network, address)
		})
	}
	return c
}

func (r *restartable) semaphore(limit int, o *sema.Options) *sema.Semaphore {
	s, err := sema.New(r.client(), r.tb.Name(), limit, o)
	expect.OK(r.tb, err)
	r.tb.Cleanup(func() { _ = s.Close() })
	return s
}

// overSameRedis is a server over a Redis that goes on, reached through sockets.
func overSameRedis(tb testing.TB) *restartable {
	store := redistest.Start(tb)
	addr := "127.0.0.1:0"
	r := &restartable{tb: tb, over: func() engine.Engine { return redisAt(tb, store) }, listen: func() net.Listener {
		l, err := net.Listen("tcp", addr)
		expect.OK(tb, err)
		addr = l.Addr().String()
		return l
	}}
	r.start()
	tb.Cleanup(r.kill)
	return r
}

// overMemoryThat is a server over memory engines, reached in memory.
func overEngines(tb testing.TB, over func() engine.Engine) *restartable {
	r := &restartable{tb: tb, over: over, listen: func() net.Listener { return pipenet.Listen() }}
	r.start()
	tb.Cleanup(r.kill)
	return r
}

// survivor is a memory engine that outlives the server in front of it.
type survivor struct{ engine.Engine }

func (survivor) Close() error { return nil }

func overSameMemory(tb testing.TB) *restartable {
	e := memengine.New()
	tb.Cleanup(func() { _ = e.Close() })
	return overEngines(tb, func() engine.Engine { return survivor{e} })
}

// On both, the store survives the server. Over Redis with real connections, and
// in virtual time with the leases that end while a real machine stands still.
func overBoth(t *testing.T, f func(t *testing.T, r *restartable, lease time.Duration)) {
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, overSameMemory(t), 3*time.Second) })
	})
	t.Run("Redis", func(t *testing.T) {
		needsRedis(t)
		f(t, overSameRedis(t), time.Minute)
	})
}

func TestPermitsAndWaitersSurviveARestart(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, lease time.Duration) {
		ctx := expect.Within(t)
		failed := make(chan struct{}, 1000)
		o := &sema.Options{Lease: lease, Observer: sema.Observer{RenewFailed: func(sema.RenewFailed) { failed <- struct{}{} }}}
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
		expect.Until(t, "one waits", func() bool {
			st, err := s.State(ctx)
			expect.OK(t, err)
			return len(st.Waiters) == 1
		})
		for range 3 {
			r.kill()
			if lease == time.Minute { // it would renew by itself in a while
				r.start()
				expect.Until(t, "it is renewed", func() bool { return p.Err() != nil || p.Renew(ctx) == nil })
			} else {
				<-failed
				r.start()
				before := p.Deadline()
				expect.Until(t, "it is renewed", func() bool { return p.Err() != nil || p.Deadline().After(before) })
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

// Another process releases, by its id, what was acquired before the restart.
func TestAPermitIsReleasedByItsIDAfterARestart(t *testing.T) {
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, _ time.Duration) {
		ctx := expect.Within(t)
		e := r.client()
		s, err := sema.New(e, t.Name(), 1, &sema.Options{Detached: true, Lease: time.Minute})
		expect.OK(t, err)
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		id := p.ID()
		expect.OK(t, e.Close())
		r.kill()
		r.start()
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

// A memory engine gives out the same session names again after a restart.
func TestARestartThatForgetsLosesPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := overEngines(t, func() engine.Engine { return memengine.New() })
		ctx := expect.Within(t)
		o := &sema.Options{Lease: 2 * time.Second}
		s := r.semaphore(1, o)
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		r.kill()
		r.start()
		other := r.semaphore(1, o)
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
	})
}

// Many clients work while the server is killed and comes back. At no time do
// more hold than the limit, by their own clocks, and in the end all is free.
func TestTheLimitHoldsThroughRestarts(t *testing.T) {
	const limit, clients, restarts = 3, 8, 5
	t.Parallel()
	overBoth(t, func(t *testing.T, r *restartable, _ time.Duration) {
		ctx := expect.Within(t)
		work, stop := context.WithCancel(ctx)
		history := &enginetest.History{}
		var all sync.WaitGroup
		for i := range clients {
			// A release that was lost with the server may cost a whole lease.
			s := r.semaphore(limit, &sema.Options{Lease: 10 * time.Second})
			all.Go(func() {
				for n := 0; work.Err() == nil; n++ {
					hold := enginetest.Hold{ID: fmt.Sprint(i, ".", n), Weight: 1, Slot: -1, Call: history.Now()}
					p, err := s.Acquire(work)
					if err != nil {
						continue // the server is away, or the test is over
					}
					hold.Return, hold.Token = history.Now(), p.Token()
					select {
					case <-time.After(3 * time.Millisecond): // the work
					case <-p.Context(work).Done():
					}
					hold.Release, hold.Trusted = history.Now(), p.Deadline().UnixNano()
					history.Add(hold)
					_ = p.Release() // fails while the server is away
				}
			})
		}
		for range restarts {
			before := history.Len()
			expect.Until(t, "50 more were granted", func() bool { return history.Len() >= before+50 })
			r.kill()
			r.start()
		}
		stop()
		all.Wait()
		expect.OK(t, history.Check(limit, 0))
		s := r.semaphore(limit, nil)
		p, err := s.AcquireN(ctx, limit)
		expect.OK(t, err)
		expect.OK(t, p.Release())
		t.Logf("%d grants through %d restarts", history.Len(), restarts)
	})
}
