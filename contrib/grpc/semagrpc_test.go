package semagrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sema"
	"sema/admit"
	"sema/contrib/grpc"
	"sema/each"
	"sema/sematest"
)

type connector = func(*testing.T, *service, *semagrpc.Limiter) *grpc.ClientConn

// Unary calls and streams of all ways to end, by very many at once: never more
// at the server than the limit, and nothing held at the end.
func TestNeverMoreThanTheLimit(t *testing.T) {
	const limit = 5
	eachSide(t, func(t *testing.T, connect connector) {
		var now, most, all atomic.Int64
		enter := func() func() {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			all.Add(1)
			return func() { now.Add(-1) }
		}
		e, l := limited(t, limit, semagrpc.Limit{})
		conn := connect(t, &service{
			unary: func(_ context.Context, text string) (string, error) {
				defer enter()()
				if text == "fail" {
					return "", errors.New("failed")
				}
				return text, nil
			},
			stream: func(s grpc.ServerStream) error {
				defer enter()()
				for {
					m := new(wrapperspb.StringValue)
					if err := s.RecvMsg(m); err == io.EOF {
						return nil
					} else if err != nil || m.Value == "fail" {
						return errors.New("failed")
					}
					if err := s.SendMsg(m); err != nil {
						return err
					}
				}
			},
		}, l)
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				if i%4 < 2 {
					_, err := call(within(t), conn, []string{"ok", "fail"}[i%2])
					if (err != nil) != (i%2 == 1) {
						t.Error(err)
					}
					return
				}
				s, err := open(within(t), conn, stream)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					_ = s.SendMsg(wrapperspb.String([]string{"ok", "fail"}[i%2]))
				}
				_ = s.CloseSend()
				for err == nil {
					err = s.RecvMsg(new(wrapperspb.StringValue))
				}
				if (err != io.EOF) != (i%2 == 1) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		// At the client a failed call is over before the server's handler has run
		// to its end, but a handler of this test is over before it answers.
		if most.Load() > limit || all.Load() != 200 {
			t.Errorf("%d of %d calls at once, want %d at most and 200", most.Load(), all.Load(), limit)
		}
		nothingHeld(t, e)
	})
}

// collectUntilNothingIsHeld runs the garbage collector until it finds the
// abandoned stream.
func collectUntilNothingIsHeld(t *testing.T, e *sematest.Engine) {
	t.Helper()
	until(t, "nothing is held", func() bool { runtime.GC(); return len(e.Held("calls")) == 0 })
}

// nothingHeld waits until all is given back: a server's handler may outlive its call.
func nothingHeld(t *testing.T, e *sematest.Engine) {
	t.Helper()
	until(t, "nothing is held", func() bool { return len(e.Held("calls")) == 0 })
}

func TestNothingFreeInTime(t *testing.T) {
	for _, wait := range []time.Duration{semagrpc.NoWait, 10 * time.Millisecond} {
		eachSide(t, func(t *testing.T, connect connector) {
			e, l := limited(t, 1, semagrpc.Limit{Wait: wait})
			conn := connect(t, &service{stream: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}, l)
			ctx, cancel := context.WithCancel(within(t))
			held, err := open(ctx, conn, stream)
			must(t, err)
			e.AwaitHeld(ctx, "calls", 1)
			_, err = call(ctx, conn, "x")
			wantCode(t, err, codes.ResourceExhausted)
			if !strings.Contains(err.Error(), "no permit available") {
				t.Error(err)
			}
			cancel()
			nothingHeld(t, e)
			runtime.KeepAlive(held) // lest it is found unread
		})
	}
}

// A call that too many wait before is refused at once, and told when to try again.
func TestACallThatIsRefusedAtOnceIsToldWhen(t *testing.T) {
	eachSide(t, func(t *testing.T, connect connector) {
		e := sematest.New(t)
		s, err := sema.New(e, "calls", 1, &sema.Options{MaxWaiting: 2})
		must(t, err)
		l, err := semagrpc.New(semagrpc.Limit{Semaphore: s})
		must(t, err)
		conn := connect(t, &service{unary: func(_ context.Context, text string) (string, error) {
			time.Sleep(10 * time.Second)
			return text, nil
		}}, l)
		ctx := within(t)
		done := make(chan error, 4)
		come := func() {
			go func() {
				_, err := call(ctx, conn, "x")
				done <- err
			}()
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			come()
		}
		must(t, <-done) // the next one waited for ten seconds
		come()
		_, err = call(ctx, conn, "x")
		wantCode(t, err, codes.ResourceExhausted)
		var after time.Duration
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				after = info.RetryDelay.AsDuration()
			}
		}
		if after < 14*time.Second || after > 46*time.Second {
			t.Errorf("told to try again in %v; three waits of ten seconds are before it", after)
		}
		// A limiter around it hears that of the other side, and not of a limiter of its own.
		tenants, err1 := sema.New(e, "tenants", 5, nil)
		must(t, err1)
		outer, err1 := semagrpc.New(semagrpc.Limit{Semaphore: tenants, Outage: admit.Local(5, 0)})
		must(t, err1)
		_ = outer.UnaryClient(ctx, unary, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err })
		if st, err1 := tenants.State(ctx); err1 != nil || (st.Cooldown == nil) != errors.Is(err, sema.ErrBusy) {
			t.Errorf("after %v: cooldown %+v, %v", err, st.Cooldown, err1)
		}
		for range 3 {
			must(t, <-done)
		}
		nothingHeld(t, e)
	})
}

func TestTheEngineIsAway(t *testing.T) {
	eachSide(t, func(t *testing.T, connect connector) {
		e, l := limited(t, 1, semagrpc.Limit{})
		conn := connect(t, &service{}, l)
		e.Inject(sematest.Fault{Err: sematest.Full()})
		_, err := call(within(t), conn, "x")
		wantCode(t, err, codes.Unavailable)
		defer e.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})()
		s, err := open(within(t), conn, stream)
		if err == nil {
			err = s.RecvMsg(new(wrapperspb.StringValue))
		}
		wantCode(t, err, codes.Unavailable)
		if !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
	})
	// The engine hangs while a stream ends: the goroutine that ends it waits in
	// virtual time.
	synctest.Test(t, func(t *testing.T) {
		e, l := limited(t, 1, semagrpc.Limit{})
		conn := atClient(t, &service{stream: func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }}, l)
		ctx, cancel := context.WithCancel(within(t))
		s, err := open(ctx, conn, stream)
		must(t, err)
		e.Inject(sematest.Fault{On: "release", Delay: time.Second})
		cancel()
		wantCode(t, s.RecvMsg(new(wrapperspb.StringValue)), codes.Canceled)
		nothingHeld(t, e)
	})
	// The engine does not answer in time: that must not count as a full
	// semaphore.
	e, l := limited(t, 1, semagrpc.Limit{Wait: 20 * time.Millisecond})
	conn := atClient(t, &service{}, l)
	defer e.Inject(sematest.Fault{Delay: time.Hour, Times: sematest.Always})()
	_, err := call(within(t), conn, "x")
	wantCode(t, err, codes.Unavailable)
	if !errors.Is(err, sema.ErrEngine) {
		t.Errorf("%v is no sema.ErrEngine", err)
	}
}

func TestTheCallEndsWhileItWaits(t *testing.T) {
	eachSide(t, func(t *testing.T, connect connector) {
		e, l := limited(t, 1, semagrpc.Limit{})
		conn := connect(t, &service{}, l)
		operator, err := sema.Operate(e, "calls")
		must(t, err)
		defer func() { _ = operator.Close() }()
		must(t, operator.Set(within(t), sema.Rule{Limit: 1}))
		must(t, operator.Pause(within(t)))
		ctx, cancel := context.WithCancel(within(t))
		ended := make(chan error, 1)
		go func() {
			_, err := call(ctx, conn, "x")
			ended <- err
		}()
		e.AwaitWaiting(ctx, "calls", 1)
		cancel()
		wantCode(t, <-ended, codes.Canceled)
		ctx, cancel = context.WithTimeout(within(t), 20*time.Millisecond)
		defer cancel()
		_, err = call(ctx, conn, "x")
		wantCode(t, err, codes.DeadlineExceeded)
	})
}

// The permit is lost while the handler waits: for its context, for a message,
// to send one.
func TestALostPermitCancelsTheCall(t *testing.T) {
	for name, handler := range map[string]func(s grpc.ServerStream) error{
		"context": func(s grpc.ServerStream) error { <-s.Context().Done(); return nil },
		"receive": func(s grpc.ServerStream) error {
			for {
				if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
					return err
				}
			}
		},
		"send": func(s grpc.ServerStream) error {
			for {
				if err := s.SendMsg(wrapperspb.String(strings.Repeat("x", 1<<16))); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachSide(t, func(t *testing.T, connect connector) {
				e, l := limited(t, 1, semagrpc.Limit{})
				ended := make(chan error, 1)
				conn := connect(t, &service{stream: func(s grpc.ServerStream) error {
					err := handler(s)
					ended <- s.Context().Err()
					return err
				}}, l)
				s, err := open(within(t), conn, stream)
				must(t, err)
				must(t, s.SendMsg(wrapperspb.String("x"))) // so that the handler runs for sure
				e.AwaitHeld(within(t), "calls", 1)
				e.Lose("calls")
				for err == nil {
					err = s.RecvMsg(new(wrapperspb.StringValue))
				}
				wantCode(t, err, codes.Aborted)
				<-ended
				nothingHeld(t, e)
			})
		})
	}
	t.Run("unary", func(t *testing.T) {
		eachSide(t, func(t *testing.T, connect connector) {
			e, l := limited(t, 1, semagrpc.Limit{})
			conn := connect(t, &service{unary: func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "too late", nil }}, l)
			ended := make(chan error, 1)
			go func() {
				_, err := call(within(t), conn, "x")
				ended <- err
			}()
			e.AwaitHeld(within(t), "calls", 1)
			e.Lose("calls")
			err := <-ended
			wantCode(t, err, codes.Aborted)
			if !strings.Contains(err.Error(), "permit lost") {
				t.Error(err)
			}
			nothingHeld(t, e)
		})
	})
}

// The permit of a client's stream comes back on each of its ends.
func TestEndsOfAClientsStream(t *testing.T) {
	for name, end := range map[string]func(s grpc.ClientStream, cancel func()){
		"read to the end": func(s grpc.ClientStream, _ func()) {
			_ = s.CloseSend()
			for s.RecvMsg(new(wrapperspb.StringValue)) == nil {
			}
		},
		"cancelled": func(_ grpc.ClientStream, cancel func()) { cancel() },
		"forgotten": func(grpc.ClientStream, func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			e, l := limited(t, 1, semagrpc.Limit{})
			conn := atClient(t, &service{stream: func(s grpc.ServerStream) error {
				for {
					if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
						return nil
					}
				}
			}}, l)
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			func() {
				s, err := open(ctx, conn, stream)
				must(t, err)
				must(t, s.SendMsg(wrapperspb.String("x")))
				if n := len(e.Held("calls")); n != 1 {
					t.Fatalf("%d held while the stream is open", n)
				}
				end(s, cancel)
			}()
			collectUntilNothingIsHeld(t, e)
		})
	}
	t.Run("one answer", func(t *testing.T) {
		e, l := limited(t, 1, semagrpc.Limit{})
		conn := atClient(t, &service{stream: func(s grpc.ServerStream) error {
			for s.RecvMsg(new(wrapperspb.StringValue)) == nil {
			}
			return s.SendMsg(wrapperspb.String("done"))
		}}, l)
		s, err := open(within(t), conn, upload)
		must(t, err)
		must(t, s.CloseSend())
		must(t, s.RecvMsg(new(wrapperspb.StringValue)))
		if n := len(e.Held("calls")); n != 0 {
			t.Errorf("%d held after the only answer", n)
		}
	})
}

func TestLimitsByKeyAndCallsWithoutOne(t *testing.T) {
	eachSide(t, func(t *testing.T, connect connector) {
		e := sematest.New(t)
		sem, err := sema.New(e, "methods", 1, &sema.Options{Caps: sema.Caps{1}})
		must(t, err)
		t.Cleanup(func() { _ = sem.Close() })
		group, err := each.New(e, "methods", 1, nil)
		must(t, err)
		t.Cleanup(func() { _ = group.Close() })
		byMethod := func(_ context.Context, method string) []string { return []string{"acme", method} }
		l, err := semagrpc.New(semagrpc.Limit{Semaphore: sem, Key: byMethod, Wait: semagrpc.NoWait, Skip: func(_ context.Context, method string) bool { return method == upload }})
		must(t, err)
		conn := connect(t, &service{
			unary: func(_ context.Context, text string) (string, error) {
				return fmt.Sprint(e.Held("methods")[0].Key.Names()), nil
			},
			stream: func(s grpc.ServerStream) error {
				return s.SendMsg(wrapperspb.String(fmt.Sprint(len(e.Held("methods")))))
			},
		}, l)
		got, err := call(within(t), conn, "x")
		if want := "[acme " + unary + "]"; got != want || err != nil {
			t.Errorf("held for %s, %v; want %s", got, err, want)
		}
		s, err := open(within(t), conn, upload)
		must(t, err)
		must(t, s.CloseSend())
		m := new(wrapperspb.StringValue)
		must(t, s.RecvMsg(m))
		if m.Value != "0" {
			t.Errorf("a call that needs no permit took %s", m.Value)
		}
		alone, err := semagrpc.New(semagrpc.Limit{Group: group})
		must(t, err)
		_, err = call(within(t), connect(t, &service{unary: func(context.Context, string) (string, error) {
			if n := len(e.Held("methods/" + unary)); n != 1 {
				t.Errorf("%d held of the method", n)
			}
			return "", nil
		}}, alone), "x")
		must(t, err)
		of := func(key ...string) func(context.Context, string) []string {
			return func(context.Context, string) []string { return key }
		}
		for name, limit := range map[string]semagrpc.Limit{
			"methods": {Semaphore: sem, Key: of("acme", "")}, "methods/acme": {Group: group, Key: of("acme", "alice", "")}, "methods/beta": {Group: group, Key: of("beta", "")},
		} {
			l, err := semagrpc.New(limit)
			must(t, err)
			got, err := call(within(t), connect(t, &service{unary: func(context.Context, string) (string, error) {
				held := e.Held(name)
				return fmt.Sprintf("%d %s", len(held), held[0].Key), nil
			}}, l), "x")
			if want := map[string]string{"methods": "1 acme", "methods/acme": "1 alice", "methods/beta": "1 "}[name]; got != want || err != nil {
				t.Errorf("%s: held %q, %v; want %q", name, got, err, want)
			}
		}
		long := strings.Repeat("x", 128)
		for _, limit := range []semagrpc.Limit{
			{Group: group, Key: of()}, {Group: group, Key: of("")}, {Group: group, Key: of("", "a")}, {Group: group, Key: of("a", "", "b")}, {Group: group, Key: of("a", "b", "c", "d", "e")},
			{Semaphore: sem, Key: of("")}, {Semaphore: sem, Key: of("", "a")}, {Semaphore: sem, Key: of("a\x01b")}, {Semaphore: sem, Key: of("a", "b", "c", "d")}, {Semaphore: sem, Key: of(long, long)},
		} {
			bad, err := semagrpc.New(limit)
			must(t, err)
			_, err = call(within(t), connect(t, &service{}, bad), "x")
			wantCode(t, err, codes.InvalidArgument)
		}
	})
}

// A unary call weighs what its message says, a stream what its method says.
func TestCallsWeighWhatAFunctionSays(t *testing.T) {
	eachSide(t, func(t *testing.T, connect connector) {
		weight := func(_ context.Context, method string, request any) int {
			if m, ok := request.(*wrapperspb.StringValue); ok {
				return len(m.Value)
			}
			return 3
		}
		for _, wait := range []time.Duration{0, semagrpc.NoWait} {
			e, l := limited(t, 5, semagrpc.Limit{Weight: weight, Wait: wait})
			held := func() (n int) {
				for _, p := range e.Held("calls") {
					n += p.Weight
				}
				return n
			}
			conn := connect(t, &service{
				unary:  func(context.Context, string) (string, error) { return fmt.Sprint(held()), nil },
				stream: func(s grpc.ServerStream) error { return s.SendMsg(wrapperspb.String(fmt.Sprint(held()))) },
			}, l)
			got, err := call(within(t), conn, "four")
			if got != "4" || err != nil {
				t.Errorf("a call of weight 4 holds %s, %v", got, err)
			}
			nothingHeld(t, e)
			s, err := open(within(t), conn, upload)
			must(t, err)
			must(t, s.CloseSend())
			m := new(wrapperspb.StringValue)
			must(t, s.RecvMsg(m))
			if m.Value != "3" {
				t.Errorf("a stream of weight 3 holds %s", m.Value)
			}
			nothingHeld(t, e)
			for _, text := range []string{"", "above the limit"} {
				_, err := call(within(t), conn, text)
				wantCode(t, err, codes.InvalidArgument)
			}
		}
	})
}

func TestLimitsThatMakeNoSense(t *testing.T) {
	e := sematest.New(t)
	s, err := sema.New(e, "calls", 1, nil)
	must(t, err)
	g, err := each.New(e, "calls", 1, nil)
	must(t, err)
	acquire := func(context.Context, []string, ...sema.AcquireOption) (semagrpc.Permit, error) { return nil, nil }
	for name, l := range map[string]semagrpc.Limit{
		"neither":     {},
		"both":        {Semaphore: s, Group: g},
		"all three":   {Semaphore: s, Group: g, Acquire: acquire},
		"two of them": {Group: g, Acquire: acquire},
		"no places":   {Semaphore: s, Outage: admit.Local(0, 0)},
		"wait":        {Semaphore: s, Wait: -2},
	} {
		var argument *sema.ArgumentError
		if _, err := semagrpc.New(l); !errors.As(err, &argument) || argument.Package != "semagrpc" && argument.Package != "admit" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A limit that differs, with the policy to refuse it.
func TestAnotherLimitIsAFailedPrecondition(t *testing.T) {
	e := sematest.New(t)
	first, err := sema.Operate(e, "calls")
	must(t, err)
	must(t, first.Set(within(t), sema.Rule{Limit: 2}))
	s, err := sema.New(e, "calls", 1, &sema.Options{OnConflict: sema.LimitStrict})
	must(t, err)
	l, err := semagrpc.New(semagrpc.Limit{Semaphore: s})
	must(t, err)
	_, err = call(within(t), atClient(t, &service{}, l), "x")
	wantCode(t, err, codes.FailedPrecondition)
	must(t, s.Close())
	_, err = call(within(t), atClient(t, &service{}, l), "x")
	wantCode(t, err, codes.Unavailable)
}
