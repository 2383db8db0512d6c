package sema_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is an engine that counts the calls made to it and fails them on
// demand. In a synctest bubble its time is exact.
type counting struct {
	sema.Engine
	calls  atomic.Int64
	began  atomic.Pointer[time.Time] // the last call
	broken atomic.Bool
	slow   atomic.Int64 // nanoseconds that each call takes on its way to the engine
	given  atomic.Int64 // nanoseconds that the last call was given
}

func (e *counting) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &countingSession{s, e}, err
}

type countingSession struct {
	protocol.Session
	e *counting
}

var errBroken = &engine.Error{Op: "test", Err: errors.New("broken")}

func (s *countingSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	s.e.calls.Add(1)
	now := time.Now()
	s.e.began.Store(&now)
	if end, ok := ctx.Deadline(); ok {
		s.e.given.Store(int64(end.Sub(now)))
	}
	if d := time.Duration(s.e.slow.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return protocol.Reply{}, &engine.Error{Op: "test", Temporary: true, Err: ctx.Err()}
		}
	}
	if s.e.broken.Load() {
		return protocol.Reply{}, errBroken
	}
	return s.Session.Step(ctx, c)
}

// bubble runs f where time is virtual, with a semaphore of limit 1.
func bubble(t *testing.T, o *sema.Options, f func(t *testing.T, e *counting, s *sema.Semaphore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New()}
		s, err := sema.New(e, "x", 1, o)
		expect.OK(t, err)
		f(t, e, s)
		e.broken.Store(false)
		e.slow.Store(0)
		expect.OK(t, s.Close())
	})
}

// operator is for the bubble's semaphore.
func operator(t *testing.T, e sema.Engine) *sema.Operator {
	t.Helper()
	return opened.Operator(t, e, "x")
}

var semOf = opened.Semaphore

func acquire(t *testing.T, s *sema.Semaphore) *sema.Permit {
	t.Helper()
	p, err := s.Acquire(t.Context())
	expect.OK(t, err)
	t.Cleanup(func() { runtime.KeepAlive(p) }) // lest it is found unreleased
	return p
}

func TestContextEndsOneMarginBeforeTheLeaseCanHaveEnded(t *testing.T) {
	o := &sema.Options{Lease: 30 * time.Second, Margin: 2 * time.Second}
	bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(2 * time.Second)) // the answer says nothing about when the call was sent
		p := acquire(t, s)
		sent := *e.began.Load()
		if want := sent.Add(28 * time.Second); !p.Deadline().Equal(want) {
			t.Fatalf("deadline %v after the call was sent, want 28s", p.Deadline().Sub(sent))
		}
		e.broken.Store(true)
		work := p.Context(t.Context())
		<-work.Done()
		if d := time.Since(sent); d != 28*time.Second {
			t.Errorf("ended %v after the call was sent, want 28s", d)
		}
		expect.Is(t, context.Cause(work), sema.ErrLost)
	})
}

func TestRenewalLeavesRoomForFailures(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		for range 20 {
			e.calls.Store(0)
			e.broken.Store(true)
			synctest.Wait()
			for e.calls.Load() < 2 { // two renewals fail in a row
				time.Sleep(10 * time.Millisecond)
			}
			e.broken.Store(false)
			before := p.Deadline()
			for !p.Deadline().After(before) {
				time.Sleep(10 * time.Millisecond)
			}
		}
		expect.OK(t, p.Err())
	})
}

func TestAHeldPermitCostsThreeCallsALease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		e.calls.Store(0)
		time.Sleep(30 * 100 * time.Second)
		if n := e.calls.Load(); n < 300 || n > 320 {
			t.Errorf("%d calls in 100 leases, want about 3 for each", n)
		}
		expect.OK(t, p.Err())
	})
}

func TestAWaiterCostsAFewCallsALease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		acquire(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := s.Acquire(ctx)
			ended <- err
		}()
		synctest.Wait()
		e.calls.Store(0)
		time.Sleep(30 * 100 * time.Second)
		if n := e.calls.Load(); n > 1000 {
			t.Errorf("%d calls in 100 leases by one holder and one waiter", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, sema.ErrBusy) {
			t.Error(err)
		}
	})
}

func TestTenThousandPermitsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Engine: memengine.New()}
		s, err := sema.New(e, "x", 10_000, nil)
		expect.OK(t, err)
		for range 10_000 {
			acquire(t, s)
			time.Sleep(time.Millisecond)
		}
		e.calls.Store(0)
		time.Sleep(30 * time.Second)
		if n := e.calls.Load(); n > 90 { // three renewals of each, 500 in a call
			t.Errorf("%d calls in a lease", n)
		}
		expect.OK(t, s.Close())
	})
}

// The engine stands still, and refuses nothing: nobody waits for longer than for one
// that refuses, however long the call in flight is given.
func TestAStalledEngineKeepsNobodyForLong(t *testing.T) {
	for _, busy := range []time.Duration{0, time.Second, 2500 * time.Millisecond} { // that the call in flight is older
		bubble(t, &sema.Options{Lease: time.Hour}, func(t *testing.T, e *counting, s *sema.Semaphore) {
			e.slow.Store(int64(time.Hour))
			var all sync.WaitGroup
			defer all.Wait()
			try := func(ctx context.Context, most time.Duration) {
				began := time.Now()
				_, err := s.TryAcquire(ctx)
				if took := time.Since(began); took > most { // in virtual time
					t.Errorf("with a call of %v before it: %v, want %v at the most", busy, took, most)
				}
				var failure *engine.Error
				if !errors.As(err, &failure) || failure.Name != "x" {
					t.Errorf("%v, want an *engine.Error that names it", err)
				}
			}
			if busy > 0 {
				all.Go(func() { try(t.Context(), 3250*time.Millisecond) })
				time.Sleep(busy)
			}
			all.Go(func() { try(t.Context(), 3250*time.Millisecond) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			try(ctx, 1250*time.Millisecond)
		})
	}
}

// AnswerWithin bounds the wait for an engine that does not answer, but not the
// wait for other holders.
func TestAnAnswerIsWantedSoon(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		held := acquire(t, s)
		soon := sema.AnswerWithin(100 * time.Millisecond)
		granted := make(chan *sema.Permit)
		go func() {
			p, err := s.Acquire(t.Context(), soon)
			if err != nil {
				t.Error(err)
			}
			granted <- p
		}()
		time.Sleep(time.Second)
		expect.OK(t, held.Release())
		expect.OK(t, (<-granted).Release())
		e.slow.Store(int64(time.Hour))
		began := time.Now()
		if _, err := s.Acquire(t.Context(), soon); !errors.Is(err, sema.ErrEngine) {
			t.Error(err)
		}
		if took := time.Since(began); took != 100*time.Millisecond { // in virtual time
			t.Errorf("it took %v to know", took)
		}
		for _, options := range [][]sema.AcquireOption{nil, {sema.AnswerWithin(time.Hour)}, {sema.AnswerWithin(-1)}, {sema.AnswerWithin(time.Second), sema.AnswerWithin(time.Hour)}} {
			began = time.Now()
			if _, err := s.Acquire(t.Context(), options...); !errors.Is(err, sema.ErrEngine) {
				t.Error(err)
			}
			if took := time.Since(began); took > 3250*time.Millisecond {
				t.Errorf("another one then took %v", took)
			}
		}
		e.slow.Store(0)
		time.Sleep(time.Minute)
		if p, err := s.TryAcquire(t.Context(), soon); err != nil {
			t.Error("what was given up was not given back:", err)
		} else if err := p.Release(); err != nil {
			t.Error(err)
		}
	})
}

// The engine refuses a caller for good, and the next one may ask for something else.
func TestAfterARefusalOthersAreAsked(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.broken.Store(true)
		if _, err := s.TryAcquire(t.Context()); !errors.Is(err, errBroken.Err) {
			t.Fatal(err)
		}
		e.broken.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if p, err := s.TryAcquire(ctx); err != nil {
			t.Error("the error of before:", err)
		} else if err := p.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestAWaitOutlastsAnOutageOfLessThanALease(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		got := make(chan error)
		wait := func() {
			p, err := s.Acquire(t.Context())
			if err == nil {
				err = p.Release()
			}
			got <- err
		}
		go wait()
		synctest.Wait()
		e.broken.Store(true)
		time.Sleep(20 * time.Second)
		e.broken.Store(false)
		time.Sleep(10 * time.Second)
		expect.OK(t, p.Release())
		expect.OK(t, <-got)
		p = acquire(t, s)
		go wait()
		synctest.Wait()
		e.broken.Store(true)
		if err := <-got; !errors.Is(err, sema.ErrEngine) { // and not for ever
			t.Fatal(err)
		}
		_ = p.Release()
	})
}

func TestAFirstCallThatHangsEndsWithItsContext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		e.slow.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.Acquire(ctx)
		if !errors.Is(err, sema.ErrEngine) || errors.Is(err, sema.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A caller that carries its call gives it little time. After one that was not answered
// in that time another goroutine carries them, and gives them more, until an answer is
// quick again.
func TestCallersCarryTheirCallsAgainOnceAnAnswerIsQuick(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		pair := func(slow time.Duration) (carried [2]bool) {
			e.slow.Store(int64(slow))
			p := acquire(t, s)
			carried[0] = time.Duration(e.given.Load()) < 250*time.Millisecond
			time.Sleep(time.Second) // the goroutine that carried it has ended
			expect.OK(t, p.Release())
			carried[1] = time.Duration(e.given.Load()) < 250*time.Millisecond
			return carried
		}
		for i, step := range []struct {
			slow time.Duration
			want [2]bool
		}{
			{0, [2]bool{true, true}},
			{300 * time.Millisecond, [2]bool{false, false}}, // the first was made again
			{100 * time.Millisecond, [2]bool{false, false}},
			{time.Millisecond, [2]bool{false, true}},
			{0, [2]bool{true, true}},
			{300 * time.Millisecond, [2]bool{false, false}},
		} {
			if got := pair(step.slow); got != step.want {
				t.Errorf("step %d, calls of %v: carried by their callers: %v, want %v", i, step.slow, got, step.want)
			}
		}
	})
}

func TestNoTimerRunsWithoutPermits(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, acquire(t, s).Release())
		e.calls.Store(0)
		time.Sleep(time.Hour)
		if n := e.calls.Load(); n != 0 {
			t.Errorf("%d calls by an idle semaphore", n)
		}
	})
}

// A context that is first asked for after the end has the cause of the end, and
// not what came later.
func TestTheCauseOfAContextMadeLate(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		o := operator(t, e)
		expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 2}))
		parent, cancel := context.WithCancel(t.Context())
		released, err1 := s.Acquire(parent)
		revoked, err2 := s.Acquire(parent)
		expect.OK(t, errors.Join(err1, err2))
		expect.OK(t, released.Release())
		expect.OK(t, o.Revoke(t.Context(), revoked.ID()))
		_ = revoked.Renew(t.Context())
		_ = revoked.Release()
		cancel()
		expect.Is(t, context.Cause(released.Context(t.Context())), sema.ErrReleased)
		expect.Is(t, context.Cause(revoked.Context(t.Context())), sema.ErrLost)
	})
}

// Within a process the order is exact, also when the call of who came first took
// longer to the engine than that of who came next.
func TestTheOrderWithinAProcessIsExact(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		order := make(chan int, 4)
		for i, slow := range []time.Duration{100 * time.Millisecond, 0, 5 * time.Millisecond, 0} {
			e.slow.Store(int64(slow))
			go func() {
				p, err := s.Acquire(t.Context())
				if err != nil {
					t.Error(err)
				}
				order <- i
				_ = p.Release()
			}()
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second)
		_ = p.Release()
		for i := range 4 {
			if got := <-order; got != i {
				t.Errorf("%d was served when it was %d's turn", got, i)
			}
		}
	})
}

// Errors say what failed, and say "sema" once.
func TestErrorsNameTheOperation(t *testing.T) {
	var heard atomic.Pointer[sema.Event]
	o := &sema.Options{Detached: true, Observer: sema.Observer{RenewFailed: func(o sema.Event) { heard.Store(&o) }}}
	bubble(t, o, func(t *testing.T, e *counting, s *sema.Semaphore) {
		of := func(class, err error, want string) {
			t.Helper()
			if !errors.Is(err, class) || err.Error() != want {
				t.Errorf("%q, want %q", err, want)
			}
		}
		is := func(err error, want string) { t.Helper(); of(sema.ErrEngine, err, want) }
		p := acquire(t, s)
		other, err := sema.New(e, "x", 1, nil)
		expect.OK(t, err)
		e.broken.Store(true)
		time.Sleep(15 * time.Second)
		is(heard.Load().Err, `sema: renew "x": broken`)
		is(p.Renew(t.Context()), `sema: renew "x": broken`)
		_, err = other.Resume(t.Context(), p.ID())
		is(err, `sema: resume "x": broken`)
		_, err = other.Acquire(t.Context())
		is(err, `sema: acquire "x": broken`)
		is(operator(t, e).Set(t.Context(), sema.Rule{Limit: 2}), `sema: set "x": broken`)
		e.broken.Store(false)
		expect.OK(t, p.Release())
		p, o := acquire(t, s), operator(t, e)
		expect.OK(t, s.Close())
		of(sema.ErrLost, p.Err(), `sema: permit lost: closed: "x"`)
		_ = e.Engine.Close()
		_, err = other.State(t.Context())
		of(sema.ErrClosed, err, `sema: closed: "x"`)
		of(sema.ErrClosed, o.Pause(t.Context()), `sema: closed: "x"`)
		_ = other.Close()
	})
}

// Each field of either is told, the first one's before the second's.
func TestObserverAnd(t *testing.T) {
	var told []string
	of := func(name string) (o sema.Observer) {
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				told = append(told, fmt.Sprint(name, i))
				return nil
			}))
		}
		return o
	}
	for what, c := range map[string]struct {
		o    sema.Observer
		want []string
	}{
		"both":    {of("a").And(of("b")), []string{"a", "b"}},
		"first":   {of("a").And(sema.Observer{}), []string{"a"}},
		"second":  {sema.Observer{}.And(of("b")), []string{"b"}},
		"neither": {sema.Observer{}.And(sema.Observer{}), nil},
	} {
		v := reflect.ValueOf(c.o)
		for i := range v.NumField() {
			told = nil
			var want []string
			for _, name := range c.want {
				want = append(want, fmt.Sprint(name, i))
			}
			if f := v.Field(i); !f.IsNil() {
				f.Call([]reflect.Value{reflect.Zero(f.Type().In(0))})
			}
			if !slices.Equal(told, want) {
				t.Errorf("%s: %s told %v, want %v", what, v.Type().Field(i).Name, told, want)
			}
		}
	}
}

// A caller that gave up is seen as waiting for a moment only, however long its lease is.
func TestWhoGaveUpIsNotSeenAsWaiting(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Second, time.Hour, 24 * time.Hour} {
		bubble(t, &sema.Options{Lease: lease}, func(t *testing.T, _ *counting, s *sema.Semaphore) {
			p := acquire(t, s)
			_, err := s.Acquire(t.Context(), sema.WaitAtMost(lease/2))
			expect.Is(t, err, sema.ErrBusy)
			time.Sleep(251 * time.Millisecond)
			if st, err := s.State(t.Context()); err != nil || st.Waiting() > 0 {
				t.Errorf("lease %v: %d wait, %v", lease, st.Waiting(), err)
			}
			expect.OK(t, p.Release())
		})
	}
}
