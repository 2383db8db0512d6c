package semagrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sema"
	"sema/contrib/grpc"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/outage"
	"sema/sematest"
)

// crowd is calls that run at the server until they are told to leave.
type crowd struct {
	running atomic.Int64
	leave   chan struct{}
	calls   sync.WaitGroup
	ends    chan error
}

func newCrowd() *crowd { return &crowd{leave: make(chan struct{}), ends: make(chan error, 1000)} }

// service keeps its streams until they leave, and answers unary calls at once.
func (c *crowd) service() *service {
	return &service{
		unary: func(context.Context, string) (string, error) { return "", nil },
		stream: func(s grpc.ServerStream) error {
			c.running.Add(1)
			defer c.running.Add(-1)
			select {
			case <-c.leave:
				return nil
			case <-s.Context().Done():
				return s.Context().Err()
			}
		},
	}
}

// send begins calls, each by a goroutine.
func (c *crowd) send(ctx context.Context, conn *grpc.ClientConn, n int) {
	for range n {
		c.calls.Go(func() {
			s, err := open(ctx, conn, stream)
			if err == nil {
				err = s.RecvMsg(new(wrapperspb.StringValue))
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			c.ends <- err
		})
	}
}

// How many calls are let through without the engine, and that the limit holds again
// afterwards.
func TestPoliciesWithoutTheEngine(t *testing.T) {
	for _, c := range []struct {
		limit  semagrpc.Limit
		admits int64 // of five calls
	}{
		{semagrpc.Limit{}, 0},
		{semagrpc.Limit{Outage: outage.Open}, 5},
		{semagrpc.Limit{Outage: outage.Local(2, 0)}, 2},
		{semagrpc.Limit{Outage: outage.Local(2, 1)}, 1},
		{semagrpc.Limit{Outage: outage.Local(2, 0), Wait: semagrpc.NoWait}, 2},
		{semagrpc.Limit{Outage: outage.Open, Wait: semagrpc.NoWait}, 5},
	} {
		t.Run(fmt.Sprint(c.limit.Outage, c.limit.Wait), func(t *testing.T) {
			eachSide(t, func(t *testing.T, connect connector) {
				var told []semagrpc.EngineFailed
				var mu sync.Mutex
				c.limit.Observer.EngineFailed = func(e semagrpc.EngineFailed) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, e)
				}
				e, l := limited(t, 3, c.limit)
				x := newCrowd()
				conn := connect(t, x.service(), l)
				back := e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})
				ctx, cancel := context.WithCancel(t.Context())
				x.send(ctx, conn, 5)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				mu.Lock()
				admitted := int64(0)
				for _, e := range told {
					if e.Method != stream || e.Key != "calls" || e.Err == nil {
						t.Errorf("told %+v", e)
					}
					if e.Admitted {
						admitted++
					}
				}
				mu.Unlock()
				if n := x.running.Load(); n != c.admits || admitted != c.admits {
					t.Errorf("%d run, %d told of; want %d", n, admitted, c.admits)
				}
				if c.limit.Outage == outage.Closed || c.limit.Wait == semagrpc.NoWait {
					for range 5 - c.admits {
						wantCode(t, <-x.ends, codes.Unavailable)
					}
				}
				cancel()
				x.calls.Wait()
				back()
				time.Sleep(10 * time.Second) // a probe finds out
				x.send(t.Context(), conn, 5)
				synctest.Wait()
				if n := x.running.Load(); n != 3 {
					t.Errorf("%d run when the engine is back, want 3", n)
				}
				close(x.leave)
				x.calls.Wait()
				nothingHeld(t, e)
			})
		})
	}
}

// Redis is killed and comes back. How many calls run at once then is what the policy
// says; none of those that are let through asks Redis for itself.
func TestRedisIsKilled(t *testing.T) {
	const limit, size = 3, 12
	for _, c := range []struct {
		limit  semagrpc.Limit
		admits int64
	}{
		{semagrpc.Limit{Outage: outage.Closed}, 0},
		{semagrpc.Limit{Outage: outage.Open}, size},
		{semagrpc.Limit{Outage: outage.Local(2, 0)}, 2},
	} {
		for side, connect := range sides {
			t.Run(fmt.Sprint(c.limit.Outage, " at the ", side), func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
				defer func() { _ = rdb.Close() }()
				e, err := redisengine.New(rdb, nil)
				expect.OK(t, err)
				defer func() { _ = e.Close() }()
				sem, err := sema.New(e, "calls", limit, &sema.Options{Lease: time.Minute})
				expect.OK(t, err)
				defer func() { _ = sem.Close() }()
				var asked, failures atomic.Int64
				c := c
				closed := c.limit.Outage == outage.Closed
				c.limit.Outage = c.limit.Outage.After(3 * time.Second) // a machine that stands still is no outage
				c.limit.Acquire = func(ctx context.Context, _ []string, options ...sema.AcquireOption) (semagrpc.Permit, error) {
					asked.Add(1)
					return sem.Acquire(ctx, options...)
				}
				c.limit.Observer.EngineFailed = func(semagrpc.EngineFailed) { failures.Add(1) }
				l, err := semagrpc.New(c.limit)
				expect.OK(t, err)
				x := newCrowd()
				conn := connect(t, x.service(), l)
				round := func(want int64, fail bool) {
					t.Helper()
					x.leave = make(chan struct{})
					x.send(expect.Within(t), conn, size)
					expect.Until(t, "the crowd is there", func() bool { return x.running.Load() == want })
					for range size {
						if fail {
							wantCode(t, <-x.ends, codes.Unavailable)
						}
					}
					close(x.leave)
					x.calls.Wait()
					for range size {
						if !fail {
							expect.OK(t, <-x.ends)
						}
					}
				}
				round(limit, false)
				srv.Kill()
				if !closed {
					_, err := call(expect.Within(t), conn, "x") // from now on it is known to be away
					expect.OK(t, err)
				}
				asked.Store(0)
				round(c.admits, c.admits == 0)
				if n := asked.Load(); c.admits > 0 && n >= size {
					t.Errorf("the engine was asked %d times", n)
				}
				srv.Restart()
				expect.Until(t, "the engine is asked again", func() bool {
					for range 2 { // the first one may be the probe's
						n, failed := asked.Load(), failures.Load()
						if _, err := call(expect.Within(t), conn, "x"); err != nil || asked.Load() == n || failures.Load() != failed {
							return false
						}
					}
					return true
				})
				round(limit, false)
			})
		}
	}
}

// A stream that nobody reads is told of, and one that has ended is not.
func TestAnAbandonedStreamIsToldOf(t *testing.T) {
	told := make(chan semagrpc.Abandoned, 10)
	e, l := limited(t, 1, semagrpc.Limit{Observer: semagrpc.Observer{Abandoned: func(a semagrpc.Abandoned) { told <- a }}})
	x := newCrowd()
	conn := atClient(t, x.service(), l)
	for range 2 {
		x.send(expect.Within(t), conn, 1)
		e.AwaitHeld(expect.Within(t), "calls", 1)
		x.leave <- struct{}{}
		expect.OK(t, <-x.ends)
	}
	func() {
		_, err := open(expect.Within(t), conn, stream)
		expect.OK(t, err)
	}()
	collectUntilNothingIsHeld(t, e)
	if got, want := <-told, (semagrpc.Abandoned{Method: stream, Key: "calls"}); got != want || len(told) > 0 {
		t.Errorf("told %+v and %d more, want %+v", got, len(told), want)
	}
}
