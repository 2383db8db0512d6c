// Package enginetest is the promises of package sema as tests that every
// engine passes. An engine's own tests call Run with a way to open it.
package enginetest

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sema"
	"sema/engine"
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

	// Keep has the semaphores of the tests keep released permits for as long as
	// they may, but of those tests that are about what a release does at once.
	Keep bool

	// URL lets other processes open the store through the function given to
	// Main. Empty if there are none.
	URL string
}

// options are those of a test's semaphore.
func (s Store) options(o *sema.Options) *sema.Options {
	if o == nil {
		o = &sema.Options{}
	}
	if !s.Keep || o.Keep > 0 || o.MaxHold > 0 || o.Renew != 0 || o.Detached {
		return o
	}
	lease := o.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	keeping := *o
	keeping.Keep = lease / 6
	return &keeping
}

// Run checks every promise. open sets up a fresh store for the test at hand.
func Run(t *testing.T, open func(tb testing.TB) Store) {
	shared := open(t)
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
		{"Methods", methodTests},
	} {
		t.Run(promise.name, func(t *testing.T) {
			for _, tt := range promise.tests {
				if tt.atOnce && shared.Keep {
					continue
				}
				t.Run(tt.name, func(t *testing.T) {
					e := &env{T: t, store: shared, name: t.Name()}
					if tt.own {
						e.store = open(t)
					} else {
						t.Parallel()
					}
					tt.run(e)
				})
			}
		})
	}
}

// test is one check of a promise. Its name says what must hold; where it was
// a published semaphore's bug, the comment beside it says whose.
type test struct {
	name string
	own  bool // does something to the store that others would feel
	run  func(e *env)

	// atOnce: it is about what a release does to the engine before it returns.
	atOnce bool
}

// env is what a test works with.
type env struct {
	*testing.T
	store  Store
	name   string // of the test's semaphore
	engine sema.Engine
}

// patience bounds every test: longer than any lease in it, and nothing is
// asserted about it but that it suffices.
var patience = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(patienceEnv)); err == nil {
		return d
	}
	return 30 * time.Second
}()

// patienceEnv shortens it where a test is expected to fail.
const patienceEnv = "SEMA_ENGINETEST_PATIENCE"

// short is a lease that a test waits for; long is one that no test waits for.
const (
	short = 600 * time.Millisecond
	long  = time.Minute
)

func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	e.Cleanup(cancel)
	return ctx
}

// sem opens the test's semaphore as a client of its own.
func (e *env) sem(limit int, o *sema.Options) *sema.Semaphore {
	e.Helper()
	return e.semOn(e.client(), limit, o)
}

func (e *env) semOn(engine sema.Engine, limit int, o *sema.Options) *sema.Semaphore {
	e.Helper()
	s, err := sema.New(engine, e.name, limit, e.store.options(o))
	e.ok(err)
	e.Cleanup(func() { _ = s.Close() })
	return s
}

// client is the test's engine, shared by its semaphores.
func (e *env) client() sema.Engine {
	if e.engine == nil {
		e.engine = e.store.Client(e)
	}
	return e.engine
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("error %v; want %v", err, want)
	}
}

func (e *env) acquire(s *sema.Semaphore, n int) *sema.Permit {
	e.Helper()
	p, err := s.AcquireN(e.ctx(), n)
	e.ok(err)
	return e.keep(p)
}

// keep keeps a permit from the garbage collector until the test ends.
func (e *env) keep(p *sema.Permit) *sema.Permit {
	e.Cleanup(func() { runtime.KeepAlive(p) })
	return p
}

func (e *env) release(p *sema.Permit) {
	e.Helper()
	e.ok(p.Release())
}

// waiter is an acquisition in the background.
type waiter struct {
	got    chan *sema.Permit // the permit, or nil
	err    error             // set before got is sent to
	cancel context.CancelFunc
}

// queue starts an acquisition and returns when its ticket is in the queue.
func (e *env) queue(s *sema.Semaphore, n int) *waiter {
	e.Helper()
	before := e.state(s).Waiting()
	w := e.start(s, n)
	e.until(func() bool { return e.state(s).Waiting() > before })
	return w
}

// start starts an acquisition.
func (e *env) start(s *sema.Semaphore, n int) *waiter {
	ctx, cancel := context.WithCancel(e.ctx())
	w := &waiter{got: make(chan *sema.Permit, 1), cancel: cancel}
	go func() {
		var p *sema.Permit
		p, w.err = s.AcquireN(ctx, n)
		w.got <- p
	}()
	e.Cleanup(cancel)
	return w
}

// permit waits for the acquisition to succeed.
func (e *env) permit(w *waiter) *sema.Permit {
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

func (e *env) state(s *sema.Semaphore) sema.State {
	e.Helper()
	st, err := s.State(e.ctx())
	e.ok(err)
	return st
}

// until asks again and again for what the store shows no event for.
func (e *env) until(ok func() bool) {
	e.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatal("did not happen in time")
		}
	}
}

// empty checks that the whole limit can be taken at once and nobody waits.
func (e *env) empty(s *sema.Semaphore, limit int) {
	e.Helper()
	p, err := s.TryAcquireN(e.ctx(), limit)
	if err != nil {
		e.Fatalf("the whole limit of %d is not free: %v; %+v", limit, err, e.state(s))
	}
	if st := e.state(s); len(st.Waiters) > 0 || st.Used != limit {
		e.Fatalf("left over: %+v", st)
	}
	e.release(p)
}

var numbers atomic.Uint64

// id makes a permit id for a session used directly.
func id(s engine.Session, weight int) engine.ID {
	return engine.ID{Client: s.Client(), Number: 1_000_000 + numbers.Add(1), Weight: weight}
}

// session opens the test's semaphore below the Semaphore: a client that does
// nothing by itself, such as a dead one.
func (e *env) session() engine.Session {
	e.Helper()
	s, err := e.client().Open(e.name, engine.Client{Host: "test", PID: 1}, func(engine.Notification) {})
	e.ok(err)
	e.Cleanup(func() { _ = s.Close() })
	return s
}

// request asks for weight 1 under a new id.
func request(s engine.Session, limit int, lease time.Duration) engine.Request {
	return engine.Request{Kind: engine.Ask, ID: id(s, 1), Limit: limit, Lease: lease, Ticket: lease / 2}
}

// step carries out one request as a call of its own.
func step(ctx context.Context, s engine.Session, r engine.Request) (engine.Answer, error) {
	reply, err := s.Step(ctx, engine.Call{Number: numbers.Add(1), Requests: []engine.Request{r}})
	if err != nil {
		return engine.Answer{}, err
	}
	return reply.Answers[0], nil
}

func (e *env) ask(s engine.Session, r engine.Request, want engine.Status) engine.Answer {
	e.Helper()
	a, err := step(e.ctx(), s, r)
	e.ok(err)
	if a.Status != want {
		e.Fatalf("%+v: status %d, want %d", r, a.Status, want)
	}
	return a
}

// renew asks for a renewal of what r asked for.
func (e *env) renew(s engine.Session, r engine.Request, want engine.Status) engine.Answer {
	e.Helper()
	r.Kind = engine.Renew
	return e.ask(s, r, want)
}

// letGo releases what r asked for.
func (e *env) letGo(s engine.Session, r engine.Request, want engine.Status) {
	e.Helper()
	r.Kind = engine.Release
	e.ask(s, r, want)
}
