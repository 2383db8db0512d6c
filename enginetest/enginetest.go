// Package enginetest is the promises of package sema as tests that every
// engine passes. An engine's own tests call Run with a way to open it.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/stall"
	"sema/internal/protocol"
)

// Store is one place where semaphores live, as an engine's test sets it up.
type Store struct {
	// Client makes another client of the store, as another process would be;
	// where only one process can use it, it returns the same engine again. It
	// is closed when the test ends.
	Client func(tb testing.TB) sema.Engine

	// Forget makes the store lose its data, as a server does that restarts
	// without any. Nil if it cannot happen.
	Forget func(tb testing.TB)

	// Freeze and Thaw stop the store from answering and let it go on. Nil if
	// it cannot happen.
	Freeze, Thaw func()

	// Virtual says that the store needs nothing outside of its process, and no
	// time but the runtime's. Each test then runs in a bubble of testing/synctest,
	// with a store of its own that is opened and closed in there: a minute's wait
	// takes none, and nothing is ever late.
	Virtual bool

	// Keep has the semaphores of the tests keep released permits for as long as
	// they may, but of those tests that are about what a release does at once.
	Keep bool

	// URL lets other processes open the store through the function given to
	// Main. Empty if there are none.
	URL string
}

// options are those of a test's semaphore.
func (s Store) options(o *sema.Options) sema.Options {
	mine := sema.Options{}
	if o != nil {
		mine = *o
	}
	if !s.Keep || mine.Keep > 0 || mine.MaxHold > 0 || mine.Renew != 0 || mine.Detached {
		return mine
	}
	lease := mine.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	mine.Keep = lease / 6
	return mine
}

// Run checks every promise. open sets up a fresh store for the test at hand.
//
// Where a store is not virtual, time is the machine's, and go test -short leaves
// all out. A test that fails while the
// machine stood still is run again, as package stall says.
func Run(t *testing.T, open func(tb testing.TB) Store) {
	shared := open(t)
	if testing.Short() && !shared.Virtual {
		t.Skip("needs real time")
	}
	for _, promise := range []struct {
		name  string
		tests []test
	}{
		{"1_Limit", limitTests},
		{"2_LossIsKnownFirst", lossTests},
		{"3_Order", orderTests},
		{"4_NoLostWakeUp", wakeTests},
		{"5_TheDeadHoldNobodyUp", deadTests},
		{"6_ExactlyOnce", onceTests},
		{"7_Fencing", fencingTests},
		{"8_NothingLeaks", leakTests},
		{"9_LimitsAreTheEngines", policyTests},
		{"10_BadInput", inputTests},
		{"11_WhatIsKeptIsOthersToo", keepTests},
		{"12_NamesAreForAll", namedTests},
		{"13_KeysShare", keyTests},
		{"14_KeysNest", pathTests},
		{"15_PoolsAreTakenTogether", poolTests},
		{"16_ReportsCount", reportTests},
		{"Methods", methodTests},
	} {
		t.Run(promise.name, func(t *testing.T) {
			if !shared.Virtual {
				t.Parallel() // they mostly wait
			}
			for _, tt := range promise.tests {
				if tt.atOnce && shared.Keep {
					continue
				}
				t.Run(tt.name, func(t *testing.T) { tt.check(t, shared, open) })
			}
		})
	}
}

// check runs the test on the shared store, or on one of its own.
func (tt test) check(t *testing.T, shared Store, open func(tb testing.TB) Store) {
	switch {
	case tt.needs.missing(shared):
		t.Logf("not applicable: no %s", tt.needs)
	case shared.Virtual:
		synctest.Test(t, func(t *testing.T) { tt.run(&env{TB: t, store: open(t), name: t.Name()}) })
	default:
		t.Parallel()
		stall.Run(t, func(c *stall.Case) {
			e := &env{TB: c, store: shared, name: t.Name()}
			if c.Try > 1 {
				e.name += fmt.Sprint(" ", c.Try)
			}
			if tt.own {
				e.store = open(c)
			}
			tt.run(e)
		})
	}
}

// ability is something that not every store can have happen to it.
type ability string

const (
	forgetting ability = "Forget"
	freezing   ability = "Freeze"
)

func (a ability) missing(s Store) bool {
	return a == forgetting && s.Forget == nil || a == freezing && s.Freeze == nil
}

// test is one check of a promise. Its name says what must hold; where it was
// a published semaphore's bug, the comment beside it says whose.
type test struct {
	name string
	own  bool // does something to the store that others would feel
	run  func(e *env)

	needs ability // without it, the test says nothing about the store

	// atOnce: it is about what a release does to the engine before it returns.
	atOnce bool
}

// env is what a test works with.
type env struct {
	testing.TB
	store  Store
	name   string // of the test's semaphore
	engine sema.Engine
	labels map[*semaphore]string
	clock  atomic.Int64 // see now
}

// patience bounds every test: longer than any lease in it that it waits for.
const patience = expect.Patience

const (
	short = 600 * time.Millisecond // a lease whose end a test waits for
	steps = 6 * time.Second        // one that lives through what a test does, and whose renewals it waits for
	long  = 10 * patience          // one that no test waits for, nor for a sixth of it
)

func (e *env) ctx() context.Context { return expect.Within(e) }

// sem opens the test's semaphore as a client of its own.
func (e *env) sem(limit int, o *sema.Options) *semaphore {
	e.Helper()
	return e.semOn(e.store.Client(e), limit, o)
}

// semOn opens it on an engine. Each has a label of its own, as each process of a
// user's may have.
func (e *env) semOn(engine sema.Engine, limit int, o *sema.Options) *semaphore {
	e.Helper()
	mine := e.store.options(o)
	if mine.Label == "" {
		mine.Label = fmt.Sprint("client ", len(e.labels)+1)
	}
	if mine.Observer.LimitDiffers == nil {
		mine.Observer.LimitDiffers = func(sema.Event) {} // in place of a line in the tests' output
	}
	opened, err := sema.New(engine, e.name, limit, &mine)
	e.ok(err)
	s := &semaphore{opened, e}
	e.Cleanup(func() { _ = s.Close() })
	if e.labels == nil {
		e.labels = map[*semaphore]string{}
	}
	e.labels[s] = mine.Label
	return s
}

// operator opens the semaphore for an operator, on the suite's engine.
func (e *env) operator() *operator {
	e.Helper()
	o, err := sema.Operate(e.client(), e.name)
	e.ok(err)
	e.Cleanup(func() { _ = o.Close() })
	return &operator{o, e}
}

// client is the test's engine, shared by its semaphores.
func (e *env) client() sema.Engine {
	if e.engine == nil {
		e.engine = e.store.Client(e)
	}
	return e.engine
}

func (e *env) ok(err error)       { e.Helper(); expect.OK(e, err) }
func (e *env) is(err, want error) { e.Helper(); expect.Is(e, err, want) }

// broken fails the test for good: more is held than the limit allows, which no
// stall of the machine excuses.
func (e *env) broken(format string, args ...any) {
	e.Helper()
	if c, ok := e.TB.(*stall.Case); ok {
		c.Broken(format, args...)
		return
	}
	e.Errorf(format, args...)
}

// judge fails the test if the history breaks a promise; for good if it is the
// limit.
func (e *env) judge(h *history.Holds, limit int, slack time.Duration) {
	e.Helper()
	if err := h.Check(limit, slack); err != nil && strings.HasPrefix(err.Error(), "limit") {
		e.broken("%v", err)
	} else {
		e.ok(err)
	}
}

// pass lets time pass until a moment, which may move on meanwhile; without a rest
// where time is the machine's: timers that end then may not have run.
func (e *env) pass(until func() time.Time) {
	if e.store.Virtual {
		time.Sleep(time.Until(until()))
	}
	for time.Now().Before(until()) {
	}
}

// now is a moment for a Hold: later than those before it, also in a bubble, where
// much happens at one time.
func (e *env) now() int64 {
	for {
		last := e.clock.Load()
		if now := max(last+1, time.Now().UnixNano()); e.clock.CompareAndSwap(last, now) {
			return now
		}
	}
}

func (e *env) acquire(s *semaphore, n int, options ...sema.AcquireOption) *permit {
	e.Helper()
	p, err := s.Acquire(e.ctx(), append(options, sema.Weight(n))...)
	e.ok(err)
	return e.keep(p)
}

// held opens the test's semaphore, and acquires.
func (e *env) held(limit int, o *sema.Options, n int) (*semaphore, *permit) {
	e.Helper()
	s := e.sem(limit, o)
	return s, e.acquire(s, n)
}

// lost waits until a permit's context ends, for such a reason.
func (e *env) lost(p *permit, why error) {
	e.Helper()
	work := p.Context(e.ctx())
	<-work.Done()
	e.is(context.Cause(work), why)
	e.is(p.Err(), why)
}

// busy checks that a caller who does not wait gets nothing.
func (e *env) busy(s *semaphore, options ...sema.AcquireOption) {
	e.Helper()
	_, err := s.TryAcquire(e.ctx(), options...)
	e.is(err, sema.ErrBusy)
}

// keep keeps a permit from the garbage collector until the test ends.
func (e *env) keep(p *permit) *permit {
	e.Cleanup(func() { runtime.KeepAlive(p) })
	return p
}

func (e *env) release(all ...*permit) {
	e.Helper()
	for _, p := range all {
		e.ok(p.Release())
	}
}

// turns acquires, lets a permit be looked at and releases, so many times or until it fails. Unlike
// acquire it is for goroutines of a test.
func (e *env) turns(rounds int, s *semaphore, look func(*permit), options ...sema.AcquireOption) {
	e.Helper()
	for i := range rounds {
		p, err := s.Acquire(e.ctx(), options...)
		if err == nil {
			look(p)
			err = p.Release()
		}
		if err != nil {
			e.Errorf("turn %d of %d with %+v: %v", i+1, rounds, options, err)
			return
		}
	}
}

// waiter is an acquisition in the background.
type waiter struct {
	got    chan *permit // the permit, or nil
	err    error        // set before got is sent to
	cancel context.CancelFunc
}

// queue starts an acquisition and returns when it is seen to wait, or has ended.
func (e *env) queue(s *semaphore, n int, options ...sema.AcquireOption) *waiter {
	e.Helper()
	waiting := func() (n int) {
		for _, w := range e.state(s).Waiters {
			if w.Client.Label == e.labels[s] {
				n += 1 + w.Behind
			}
		}
		return n
	}
	before := waiting()
	w := e.start(s, n, options...)
	e.until(func() bool { return waiting() > before || len(w.got) > 0 })
	if e.store.Virtual {
		time.Sleep(time.Millisecond) // callers that come at the same instant are in no order
	}
	return w
}

// start starts an acquisition.
func (e *env) start(s *semaphore, n int, options ...sema.AcquireOption) *waiter {
	ctx, cancel := context.WithCancel(e.ctx())
	w := &waiter{got: make(chan *permit, 1), cancel: cancel}
	go func() {
		var p *permit
		p, w.err = s.Acquire(ctx, append(options, sema.Weight(n))...)
		w.got <- p
	}()
	e.Cleanup(cancel)
	return w
}

// permit waits for the acquisition to succeed.
func (e *env) permit(w *waiter) *permit {
	e.Helper()
	p := <-w.got
	if p == nil {
		e.Fatalf("waiting ended with %v", w.err)
	}
	return e.keep(p)
}

// waits checks that the acquisition has not ended.
func (e *env) waits(w *waiter) {
	e.Helper()
	select {
	case p := <-w.got:
		e.Fatalf("got %v, %v; want it to wait", p, w.err)
	default:
	}
}

// ends checks that the acquisition ends without a permit, with such an error.
func (e *env) ends(w *waiter, want ...error) {
	e.Helper()
	if <-w.got != nil {
		e.Fatal("granted")
	}
	for _, err := range want {
		e.is(w.err, err)
	}
}

// inOrder checks that those in a line are granted one after the other.
func (e *env) inOrder(line []*waiter) {
	e.Helper()
	var last int64
	for i, w := range line {
		p := e.permit(w)
		if p.Token() <= last {
			e.Fatalf("waiter %d was granted before its predecessor", i)
		}
		last = p.Token()
		e.release(p)
	}
}

// state is that of a semaphore, or of a session.
func (e *env) state(of interface {
	State(context.Context) (sema.State, error)
}) sema.State {
	e.Helper()
	st, err := of.State(e.ctx())
	e.ok(err)
	return st
}

// limited checks a semaphore's limit, and how much of it is used if that is said.
func (e *env) limited(s *semaphore, limit int, used ...int) {
	e.Helper()
	if st := e.state(s); st.Limit != limit || len(used) > 0 && st.Used != used[0] {
		e.Fatalf("limit %d, %d used; want %d, %d", st.Limit, st.Used, limit, used)
	}
}

// listed reports whether the engine knows the test's semaphore.
func (e *env) listed() bool {
	e.Helper()
	names, err := e.client().List(e.ctx())
	e.ok(err)
	return slices.Contains(names, e.name)
}

// until asks again and again for what the store shows no event for.
func (e *env) until(ok func() bool) {
	e.Helper()
	expect.Until(e, "what the test waits for", ok)
}

// empty checks that the whole limit can be taken at once and nobody waits.
func (e *env) empty(s *semaphore, limit int) {
	e.Helper()
	var p *permit
	var err error
	free := func() bool {
		p, err = s.TryAcquire(e.ctx(), sema.Weight(limit))
		return err == nil
	}
	if e.store.Keep { // a process that keeps it gives it back, and may be a moment late
		e.until(free)
	} else if !free() {
		e.Fatalf("the whole limit of %d is not free: %v; %+v", limit, err, e.state(s))
	}
	if st := e.state(s); len(st.Waiters) > 0 || st.Used != limit {
		e.Fatalf("left over: %+v", st)
	}
	e.release(p)
}

var numbers atomic.Uint64

// id makes a permit id for a session used directly.
func id(s protocol.Session, weight int) engine.ID {
	return engine.ID{Client: s.Client(), Number: 1_000_000 + numbers.Add(1), Weight: weight}
}

// session opens the test's semaphore below the Semaphore: a client that does
// nothing by itself, such as a dead one.
func (e *env) session() protocol.Session {
	e.Helper()
	s, err := e.client().Open(e.name, engine.Client{Host: "test", PID: 1}, func(protocol.Notification) {})
	e.ok(err)
	e.Cleanup(func() { _ = s.Close() })
	return s
}

// request asks for weight 1 under a new id.
func request(s protocol.Session, limit int, lease time.Duration) protocol.Request {
	return protocol.Request{Kind: protocol.Ask, ID: id(s, 1), Limit: limit, Lease: lease, Ticket: lease / 2}
}

// step carries out one request as a call of its own.
func step(ctx context.Context, s protocol.Session, r protocol.Request) (protocol.Answer, error) {
	reply, err := s.Step(ctx, protocol.Call{Number: numbers.Add(1), Requests: []protocol.Request{r}})
	if err != nil {
		return protocol.Answer{}, err
	}
	return reply.Answers[0], nil
}

func (e *env) ask(s protocol.Session, r protocol.Request, want protocol.Status) protocol.Answer {
	e.Helper()
	ctx := e.ctx()
	a, err := step(ctx, s, r)
	for failure := (*engine.Error)(nil); r.Kind != protocol.Release && errors.As(err, &failure) && failure.Temporary && ctx.Err() == nil; {
		a, err = step(ctx, s, r) // as a Semaphore does, under the same id
	}
	e.ok(err)
	if a.Status != want {
		e.Fatalf("%+v: status %v, want %v", r, a.Status, want)
	}
	return a
}

// do sends another request about what r asked for.
func (e *env) do(s protocol.Session, kind protocol.Kind, r protocol.Request, want protocol.Status) {
	e.Helper()
	r.Kind = kind
	e.ask(s, r, want)
}
