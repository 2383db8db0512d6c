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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sema/admit"
	"sema/contrib/grpc"
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
		{semagrpc.Limit{Outage: admit.Open}, 5},
		{semagrpc.Limit{Outage: admit.Local(2, 0)}, 2},
		{semagrpc.Limit{Outage: admit.Local(2, 1)}, 1},
		{semagrpc.Limit{Outage: admit.Local(2, 0), Wait: semagrpc.NoWait}, 2},
		{semagrpc.Limit{Outage: admit.Open, Wait: semagrpc.NoWait}, 5},
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
				if c.limit.Outage == admit.Closed || c.limit.Wait == semagrpc.NoWait {
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

// A stream that nobody reads is told of, and one that has ended is not.
func TestAnAbandonedStreamIsToldOf(t *testing.T) {
	told := make(chan semagrpc.Abandoned, 10)
	e, l := limited(t, 1, semagrpc.Limit{Observer: semagrpc.Observer{Abandoned: func(a semagrpc.Abandoned) { told <- a }}})
	x := newCrowd()
	conn := atClient(t, x.service(), l)
	for range 2 {
		x.send(within(t), conn, 1)
		e.AwaitHeld(within(t), "calls", 1)
		x.leave <- struct{}{}
		must(t, <-x.ends)
	}
	func() {
		_, err := open(within(t), conn, stream)
		must(t, err)
	}()
	collectUntilNothingIsHeld(t, e)
	if got, want := <-told, (semagrpc.Abandoned{Method: stream, Key: "calls"}); got != want || len(told) > 0 {
		t.Errorf("told %+v and %d more, want %+v", got, len(told), want)
	}
}
