package sema_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	finder "sema/internal/adapt"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// vendor is a server that refuses what is beyond its capacity.
type vendor struct {
	mu             sync.Mutex
	capacity, busy int
	served, failed time.Duration // so long callers were there in all, since reset
}

// call reports whether it was served. It takes 200 ms, and a refusal a tenth.
func (v *vendor) call() bool {
	v.mu.Lock()
	ok := v.busy < v.capacity
	if ok {
		v.busy++
	}
	v.mu.Unlock()
	took := 20 * time.Millisecond
	if ok {
		took = 200 * time.Millisecond
	}
	time.Sleep(took)
	v.mu.Lock()
	defer v.mu.Unlock()
	if ok {
		v.busy--
		v.served += took
	} else {
		v.failed += took
	}
	return ok
}

func (v *vendor) set(capacity int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.capacity = capacity
}

// since returns the used part of the capacity since its last call, and the refused
// part of the time held.
func (v *vendor) since(d time.Duration) (used, refused float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	used = v.served.Seconds() / d.Seconds() / float64(v.capacity)
	refused = v.failed.Seconds() / (v.served + v.failed).Seconds()
	v.served, v.failed = 0, 0
	return used, refused
}

// fleet is processes that all call a vendor, as often as the semaphore lets them, until
// end ends and closes them.
func fleet(t *testing.T, e sema.Engine, processes, callers int, v *vendor, o sema.Options) (all []*sema.Semaphore, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for range processes {
		s, err := sema.New(e, "vendor", 10, &o)
		expect.OK(t, err)
		all = append(all, s)
		for range callers {
			done.Go(func() {
				for {
					p, err := s.Acquire(ctx)
					if err != nil {
						return
					}
					if !v.call() {
						p.Overloaded()
					}
					_ = p.Release()
				}
			})
		}
	}
	return all, func() (err error) {
		cancel()
		done.Wait()
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
		return err
	}
}

// The limit follows what a server takes, and the fleet uses it.
func TestAdaptFollowsAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		v := &vendor{}
		o := sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 200}, Observer: sema.Observer{LimitChanged: func(a sema.Event) {
			if a.Limit < 2 || a.Limit > 200 || a.Why == "" || a.From == a.Limit {
				t.Errorf("%+v", a)
			}
		}}}
		all, end := fleet(t, e, 5, 12, v, o)
		for _, capacity := range []int{8, 40, 12} {
			v.set(capacity)
			time.Sleep(80 * time.Second)
			v.since(time.Second)
			time.Sleep(time.Minute)
			used, refused := v.since(time.Minute)
			st, err := all[0].State(t.Context())
			if err != nil || used < 0.95 || refused > 0.03 {
				t.Errorf("capacity %d: limit %d, %.3f used, %.3f refused, %v", capacity, st.Limit, used, refused, err)
			}
		}
		expect.OK(t, end())
	})
}

// An operator's limit holds, and the semaphore goes on adapting when it is unset.
func TestAdaptLeavesOperatorsTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		v := &vendor{capacity: 20}
		all, end := fleet(t, e, 3, 20, v, sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 200}})
		op, err := sema.Operate(e, "vendor")
		expect.OK(t, err)
		time.Sleep(time.Minute)
		expect.OK(t, op.Set(t.Context(), sema.Rule{Limit: 4}))
		for range 100 {
			time.Sleep(time.Second)
			if st, err := all[1].State(t.Context()); st.Limit != 4 || err != nil {
				t.Fatalf("the operator's limit was 4, and it is %d (%v)", st.Limit, err)
			}
		}
		expect.OK(t, op.Unset(t.Context()))
		time.Sleep(time.Minute)
		if st, _ := all[1].State(t.Context()); st.Limit < 17 || st.Limit > 23 {
			t.Errorf("a minute after it was unset the limit is %d, want about 20", st.Limit)
		}
		expect.OK(t, end())
		expect.OK(t, op.Close())
	})
}

// Holders that only report have their limit from somebody else; and when that ends,
// from the next.
func TestDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		v := &vendor{capacity: 20}
		all, end := fleet(t, e, 3, 20, v, sema.Options{Adapt: &sema.Adapt{}})
		time.Sleep(time.Minute)
		if st, _ := all[1].State(t.Context()); st.Limit != 10 {
			t.Fatalf("nobody decides, and the limit is %d", st.Limit)
		}
		var changes int
		for range 2 {
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			s, err := sema.New(e, "vendor", 2, &sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 200}, Observer: sema.Observer{LimitChanged: func(sema.Event) { changes++ }}})
			expect.OK(t, err)
			expect.Is(t, s.Decide(within), context.DeadlineExceeded)
			cancel()
			expect.OK(t, s.Close())
			expect.Is(t, s.Decide(t.Context()), sema.ErrClosed)
			if st, _ := all[1].State(t.Context()); st.Limit < 17 || st.Limit > 23 {
				t.Errorf("the limit is %d, want about 20", st.Limit)
			}
		}
		if changes == 0 {
			t.Error("it was told of no change")
		}
		expect.OK(t, end())
	})
}

// A hold beyond the goal counts as gone badly, without anybody's saying so.
func TestAdaptGoesByAGoal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		o := sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 200, Slow: 100 * time.Millisecond}}
		all, end := fleet(t, e, 3, 20, &vendor{capacity: 1000}, o)
		time.Sleep(time.Minute)
		if st, _ := all[0].State(t.Context()); st.Limit != 2 {
			t.Errorf("all is too slow, and the limit is %d", st.Limit)
		}
		expect.OK(t, end())
	})
}

func TestAdaptRefuses(t *testing.T) {
	e := memengine.New()
	for _, a := range []sema.Adapt{{Min: 1}, {Max: 3}, {Min: 5, Max: 4}, {Min: 2, Max: 9}, {Min: 11, Max: 20}, {Min: -1, Max: 20}, {Slow: -1}} {
		_, err := sema.New(e, "x", 10, &sema.Options{Adapt: &a})
		var wrong *sema.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	var wrong *sema.ArgumentError
	if _, err := sema.New(plain{e}, "x", 10, &sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 20}}); !errors.As(err, &wrong) {
		t.Errorf("an engine that takes no reports: %v", err)
	}
	if _, err := sema.New(e, "x", 10, &sema.Options{Adapt: &sema.Adapt{Min: 2, Max: 20}, OnConflict: sema.LimitStrict}); !errors.As(err, &wrong) {
		t.Error(err)
	}
	for _, o := range []sema.Options{{}, {Adapt: &sema.Adapt{}}} {
		s, err := sema.New(e, "x", 10, &o)
		expect.OK(t, err)
		if err := s.Decide(t.Context()); !errors.As(err, &wrong) {
			t.Errorf("Decide with %+v: %v", o.Adapt, err)
		}
		expect.OK(t, s.Close())
	}
	if got := fmt.Sprint(wrong); got == "" {
		t.Error("nothing is said")
	}
}

// plain is an engine that takes no reports.
type plain struct{ sema.Engine }

func (p plain) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := p.Engine.Open(name, who, notify)
	return struct{ protocol.Session }{s}, err
}

// mortal is the engine of a process that may die: from then on its calls have no answer,
// and it hears of nothing.
type mortal struct {
	sema.Engine
	dead *atomic.Bool
}

type mortalSession struct {
	protocol.Session
	protocol.Reporting
	dead *atomic.Bool
}

func (m mortal) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := m.Engine.Open(name, who, func(n protocol.Notification) {
		if !m.dead.Load() {
			notify(n)
		}
	})
	if err != nil {
		return nil, err
	}
	return mortalSession{s, s.(protocol.Reporting), m.dead}, nil
}

func (s mortalSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.dead.Load() {
		<-ctx.Done()
		return protocol.Reply{}, &engine.Error{Op: "step", Temporary: true, Err: ctx.Err()}
	}
	return s.Session.Step(ctx, c)
}

// When the process that finds the limit dies, another one goes on within that one's lease
// and a window, and says so to the engine.
func TestTheControllerIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		v := &vendor{}
		v.set(20)
		dead := &atomic.Bool{}
		adapts := &sema.Adapt{Min: 2, Max: 200}
		_, end1 := fleet(t, mortal{e, dead}, 1, 10, v, sema.Options{Adapt: adapts, Label: "first", Lease: 10 * time.Second})
		time.Sleep(time.Minute) // it leads
		told := make(chan time.Time, 1000)
		_, end2 := fleet(t, e, 1, 60, v, sema.Options{Adapt: adapts, Label: "second", Observer: sema.Observer{LimitChanged: func(sema.Event) { told <- time.Now() }}})
		time.Sleep(time.Minute)
		if len(told) != 0 {
			t.Error("two find the limit at once")
		}
		o, err := sema.Operate(e, "vendor/adapt")
		expect.OK(t, err)
		st, err := o.State(t.Context())
		expect.OK(t, err)
		if len(st.Holders) != 1 || st.Holders[0].Client.Label != "first" || len(st.Waiters) != 1 {
			t.Fatalf("%+v", st)
		}
		dead.Store(true)
		began := time.Now()
		v.set(8) // there is something to say
		at := <-told
		// The engine counts in microseconds: the lease's end and the window's are rounded up.
		if after, most := at.Sub(began), 5*time.Second+finder.Window+2*time.Microsecond; after > most {
			t.Errorf("another one finds the limit after %v; want %v at the most", after, most)
		} else {
			t.Logf("another one finds the limit after %v", after)
		}
		expect.OK(t, end2())
		_ = end1() // it cannot say good-bye
		expect.OK(t, o.Close())
		time.Sleep(time.Minute) // its last call ends
	})
}
