// Package loop drives a client.Machine: it owns the lock, the timer and the session. It
// passes time and answers to the machine, makes the machine's calls one at a time, and
// passes events to its owner. The owners are package sema and the server's JSON API.
package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
	"sema/internal/watchdog"
)

// QuickCall is the time limit of a call that a caller makes in its own goroutine. Such
// calls share deadlines, so a call may take half as long again. Meanwhile it ignores the
// caller's context. If the engine is slower, these calls would fail and be repeated. So
// after a slow call callers make none, until a call is answered in half of QuickCall.
const QuickCall = 150 * time.Millisecond

const (
	// minCall and maxCall bound the time limit of other calls, a third of the lease. So a
	// dead connection is noticed before the leases end.
	minCall = 250 * time.Millisecond
	maxCall = 5 * time.Second

	// lastCall is the time for the last call of Close after its context has ended.
	lastCall = minCall

	// The next call waits for the next requests of woken callers: for so many yields of each
	// of them, and for a part of the time that the last call took.
	yields   = 8
	waitPart = 8
	maxWait  = 300 * time.Microsecond
)

var (
	errPanic    = errors.New("the engine panicked")
	errNoAnswer = errors.New("no answer in time")
	errUnasked  = errors.New("not asked")
)

// Owner receives the events of a Loop. Its functions are called with the lock held.
type Owner struct {
	// Observe handles an event of the machine. Answers to orders go to their Waiters
	// instead. If the result is not nil, the loop calls it after it has released the lock.
	Observe func(client.Event) func()

	// Tick is called before the machine looks at the clock, and Ticked after it.
	// Both may be nil.
	Tick, Ticked func(now time.Duration)
}

// Loop drives one machine. Open makes the zero value ready for use.
//
// To change the machine, take the lock, call the machine, and call Run. If no call is in
// flight, Run makes the machine's next call in the caller's goroutine, which saves waking
// another. The calls after that run in a separate goroutine.
type Loop struct {
	sync.Mutex
	Machine *client.Machine

	name    string // of the semaphore
	session protocol.Session
	owner   Owner
	lease   time.Duration
	base    time.Time // the zero of the machine's time

	timer     *time.Timer
	armed     time.Duration // when the timer fires; 0: not armed
	calling   bool          // a goroutine makes calls, and will make the next ones
	slow      bool          // callers make no calls, see QuickCall
	first     []func()      // called after the release of the lock
	after     []func()      // called after those in first
	closed    bool
	drained   chan struct{} // closed when the machine owes nothing; nil before Close
	unheld    chan struct{} // closed when no caller has a permit; nil before Refuse
	empty     bool          // unheld is closed
	deadlines Deadlines
	living    protocol.Living // nil: the engine's sign of life is its answers
	life      context.Context // until Close
	die       context.CancelFunc

	came atomic.Int64 // how often callers have changed the machine
}

// Open opens a session of an engine and makes a machine with the result of config. It
// does no I/O.
func (l *Loop) Open(e protocol.Engine, name string, who engine.Client, owner Owner, config func(protocol.Session) client.Config) error {
	l.Lock() // an engine that is being closed may notify before the machine exists
	defer l.Unlock()
	session, err := e.Open(name, who, l.notify)
	if err != nil {
		return err
	}
	cfg := config(session)
	l.name, l.session, l.owner, l.lease, l.base = name, session, owner, cfg.Lease, time.Now()
	cfg.Client, cfg.Self, cfg.Base = session.Client(), who, l.base
	l.living, cfg.Probes = session.(protocol.Living)
	l.life, l.die = context.WithCancel(context.Background())
	l.Machine = client.New(cfg)
	return nil
}

// Session returns the session of the engine.
func (l *Loop) Session() protocol.Session { return l.session }

// Closed reports whether Close was called. The lock is held.
func (l *Loop) Closed() bool { return l.closed }

// Waiter waits for an event. Its fields are written under the loop's lock. They may be
// read without it once the waiter is settled.
type Waiter struct {
	Err    error           // nil after a success
	Status protocol.Status // of the answer to an order

	settled atomic.Bool
	done    chan struct{} // closed when settled; nil before Wait
}

// Settle settles the waiter with err. Further calls do nothing. The lock is held.
func (w *Waiter) Settle(err error) {
	if w.settled.Load() {
		return
	}
	w.Err = err
	w.settled.Store(true)
	if w.done != nil {
		close(w.done)
	}
}

// Settled reports whether Settle was called.
func (w *Waiter) Settled() bool { return w.settled.Load() }

// Now is the current time of the machine.
func (l *Loop) Now() time.Duration { return time.Since(l.base) }

// At converts a time of the machine.
func (l *Loop) At(t time.Duration) time.Time { return l.base.Add(t) }

// Of converts t to the machine's time.
func (l *Loop) Of(t time.Time) time.Duration { return t.Sub(l.base) }

// After makes the loop call f after the release of the lock. The lock is held.
func (l *Loop) After(f func()) { l.after = append(l.after, f) }

// First does the same as After, but f is called before all functions of After.
func (l *Loop) First(f func()) { l.first = append(l.first, f) }

// Run passes the machine's events on and makes its next call, if there is one. It is
// called with the lock held and returns without it.
func (l *Loop) Run(now time.Duration) {
	call, ok := l.next(now)
	if ok && !l.slow {
		ctx := l.Within(now, QuickCall)
		l.settleBefore(now, call)
		now = l.makeCall(ctx, call, now)
		call, ok = l.another(now)
	}
	l.settleThen(now, call, ok)
}

// settleBefore is Settle before a call. If an observer panics, another goroutine makes the
// call, because the caller may recover.
func (l *Loop) settleBefore(now time.Duration, call protocol.Call) {
	returned := false
	defer func() {
		if !returned {
			go l.makeCalls(call)
		}
	}()
	l.Settle(now)
	returned = true
}

// Start is Run for a goroutine that must not make a call: another one makes it.
func (l *Loop) Start(now time.Duration) {
	call, ok := l.next(now)
	l.settleThen(now, call, ok)
}

// settleThen is Settle, and then starts a goroutine for the call if ok is set, also if an
// observer panics.
func (l *Loop) settleThen(now time.Duration, call protocol.Call, ok bool) {
	if ok {
		defer func() { go l.makeCalls(call) }()
	}
	l.Settle(now)
}

// next returns the machine's next call, unless another goroutine makes calls. The lock is
// held.
func (l *Loop) next(now time.Duration) (call protocol.Call, ok bool) {
	l.came.Add(1)
	if l.calling {
		return call, false
	}
	return l.another(now)
}

// another returns the machine's next call, for the goroutine that made the last one. The
// lock is held.
func (l *Loop) another(now time.Duration) (call protocol.Call, ok bool) {
	if l.drained == nil || !l.Machine.Drained(now) {
		call, l.calling = l.Machine.Next(now)
	} else {
		l.calling = false
	}
	return call, l.calling
}

// makeCalls makes calls until there is none left.
func (l *Loop) makeCalls(call protocol.Call) {
	for ok := true; ok; {
		l.Lock()
		began := l.Now()
		ctx := l.Within(began, max(minCall, min(maxCall, l.lease/3)))
		l.Unlock()
		now := l.makeCall(ctx, call, began)
		came, told := l.came.Load(), l.Gather()
		if l.Machine.Keeps() {
			told = 0 // released permits go to callers that come, without a call
		}
		l.Settle(now)
		l.letCome(now, min((now-began)/waitPart, maxWait), came, told)
		l.Lock()
		now = l.Now()
		call, ok = l.another(now)
		l.Settle(now)
	}
}

// letCome lets told woken callers run first, so that the next call includes their next requests. Another processor may go
// on with this goroutine before they have run, so to yield once is not enough. Where goroutines wait for a processor, each
// yield takes long, and one is enough.
func (l *Loop) letCome(now, within time.Duration, came int64, told int) {
	runtime.Gosched()
	for i := 0; i < yields*told && l.came.Load() < came+int64(told) && l.Now()-now < within; i++ {
		runtime.Gosched()
	}
}

// makeCall makes one call and passes the outcome to the machine. It is called without the
// lock and returns with it.
func (l *Loop) makeCall(ctx context.Context, call protocol.Call, began time.Duration) (now time.Duration) {
	answered := false
	defer func() {
		if !answered { // Step panicked, and the caller may recover
			l.Lock()
			l.Machine.Failed(l.Now(), &engine.Error{Op: "step", Err: errPanic})
			l.calling = false
			l.Settle(l.Now())
		}
	}()
	reply, err := l.session.Step(ctx, call)
	answered = true
	l.Lock()
	now = l.Now()
	if err != nil {
		l.slow = l.slow || now-began >= QuickCall
		l.Machine.Failed(now, err)
		return now
	}
	l.slow = l.slow && now-began >= QuickCall/2
	l.Machine.Answer(now, reply)
	return now
}

// Gather passes the machine's events to their Waiters and to the owner, and returns how many there were. The lock is held.
func (l *Loop) Gather() int {
	events := l.Machine.Events()
	for _, e := range events {
		if e.Kind == client.Answered {
			w := e.Order.Owner.(*Waiter)
			w.Status = e.Answer.Status
			w.Settle(e.Err)
		} else if f := l.owner.Observe(e); f != nil {
			l.after = append(l.after, f)
		}
	}
	return len(events)
}

// Settle passes the machine's events on, sets the timer, and releases the lock. Then it
// calls the functions of First, After and Observe.
func (l *Loop) Settle(now time.Duration) {
	l.Gather()
	if l.Machine.Probe() {
		go l.probe()
	}
	first, after := l.first, l.after
	l.first, l.after = nil, nil
	if at, ok := l.Machine.Wake(); ok && !l.closed && (l.armed == 0 || at < l.armed) {
		l.armed = max(1, at)
		if l.timer == nil {
			l.timer = time.AfterFunc(at-now, l.tick)
		} else {
			l.timer.Reset(at - now)
		}
	}
	if l.drained != nil && l.Machine.Drained(now) {
		close(l.drained)
		l.drained = nil
	}
	if l.unheld != nil && !l.empty && l.Machine.Unused() {
		close(l.unheld)
		l.empty = true
	}
	l.Unlock()
	for _, f := range first {
		f()
	}
	for _, f := range after {
		f()
	}
}

// probe asks the engine for a sign of life.
func (l *Loop) probe() {
	ctx, cancel := watchdog.Within(l.life, client.ProbeTime)
	defer cancel()
	lives := l.living.Alive(ctx)
	l.Lock()
	now := l.Now()
	l.Machine.Probed(now, lives)
	l.Start(now)
}

// tick runs when the timer fires, and lets the machine look at the clock.
func (l *Loop) tick() {
	l.Lock()
	now := l.Now()
	l.armed = 0
	if f := l.owner.Tick; f != nil {
		f(now)
	}
	l.Machine.Tick(now)
	if f := l.owner.Ticked; f != nil {
		f(now)
	}
	l.Start(now)
}

// notify passes a notification of the engine to the machine. It makes no call itself,
// because the engine may call it within a Step that other Steps wait for.
func (l *Loop) notify(n protocol.Notification) {
	l.Lock()
	now := l.Now()
	l.Machine.Notify(now, n)
	l.Start(now)
}

// Wait waits until w is settled, or ctx ends.
func (l *Loop) Wait(ctx context.Context, w *Waiter) (settled bool) {
	if w.settled.Load() {
		return true
	}
	l.Lock()
	w.done = make(chan struct{})
	if w.settled.Load() {
		close(w.done)
	}
	l.Unlock()
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ask sends a request about the semaphore, or about a permit of another process, and waits
// for the answer.
func (l *Loop) Ask(ctx context.Context, op string, r protocol.Request) (protocol.Status, error) {
	if err := ctx.Err(); err != nil {
		return 0, l.Unasked(op, err)
	}
	w := &Waiter{}
	o := &client.Order{Owner: w}
	l.Lock()
	if l.closed {
		l.Unlock()
		return 0, l.closedError()
	}
	l.Machine.Do(l.Now(), o, r)
	// Not in this goroutine: a caller's own call has a short time limit and is then
	// repeated. After a repeated removal nobody knows whether the semaphore existed.
	l.Start(l.Now())
	return l.Result(ctx, op, w, o)
}

// Finish runs the loop, and waits for the answer to an order. It is called with
// the lock held.
func (l *Loop) Finish(ctx context.Context, op string, w *Waiter, o *client.Order) (protocol.Status, error) {
	l.Run(l.Now())
	return l.Result(ctx, op, w, o)
}

// Result waits for the answer to an order.
func (l *Loop) Result(ctx context.Context, op string, w *Waiter, o *client.Order) (protocol.Status, error) {
	if !l.Wait(ctx, w) {
		l.Lock()
		defer l.Unlock()
		if !w.settled.Load() {
			o.Abandon()
			return 0, l.Unanswered(op, ctx.Err())
		}
	}
	return w.Status, l.Named(op, w.Err)
}

// Unanswered is the error of a caller whose context ended before the engine answered. It
// joins the engine's last failure with over, the error of the context. The lock is held.
func (l *Loop) Unanswered(op string, over error) error {
	failure := l.Machine.LastError()
	if failure == nil {
		failure = &engine.Error{Temporary: true, Hint: "check the engine, or wait longer", Err: errNoAnswer}
	}
	return Ended(l.Named(op, failure), over)
}

// Unasked is Unanswered for a caller whose context had ended before the call.
func (l *Loop) Unasked(op string, over error) error {
	return Ended(&engine.Error{Op: op, Name: l.name, NotExecuted: true, Temporary: true, Err: errUnasked}, over)
}

// Ended joins an engine's failure with over, the error of the caller's context. The error
// of a closed engine stays as it is, because it is an answer.
func Ended(failure, over error) error {
	if errors.Is(failure, engine.ErrClosed) {
		return failure
	}
	return fmt.Errorf("%w: %w", failure, over)
}

// Silent is the error of a caller that got no answer from the engine for d.
func (l *Loop) Silent(op string, d time.Duration) error {
	if err := l.Machine.LastError(); err != nil {
		return l.Named(op, err)
	}
	return &engine.Error{Op: op, Name: l.name, Temporary: true, Hint: "check the engine", Err: fmt.Errorf("no answer for %v", d)}
}

// Named adds the operation and the semaphore to an engine's failure. The result is an
// *engine.Error, or an ErrClosed if the engine was closed.
func (l *Loop) Named(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrClosed):
		return l.closedError()
	}
	named := engine.Error{Err: err}
	if failure, ok := errors.AsType[*engine.Error](err); ok {
		named = *failure
	}
	named.Op, named.Name = op, l.name
	return &named
}

func (l *Loop) closedError() error { return fmt.Errorf("%w: %q", engine.ErrClosed, l.name) }

// Refuse ends all waits and refuses all further asks. It then waits until no caller has a
// permit, or Close is called. If ctx ends first, it fails with the error of ctx.
func (l *Loop) Refuse(ctx context.Context) error {
	l.Lock()
	if l.unheld == nil {
		l.unheld = make(chan struct{})
		l.Machine.Close()
	}
	l.Start(l.Now())
	select {
	case <-l.unheld:
		return nil
	default:
	}
	select {
	case <-l.unheld:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the machine, calls release with the lock held to release or keep the
// permits, sends the remaining requests, and closes the session. It takes at most three
// seconds or a lease, whichever is less, and at most lastCall after ctx has ended. It waits
// for a silent engine only if the engine may have a permit or ticket of this client.
// Permits whose release could not be sent end with their leases. Closing again does
// nothing.
func (l *Loop) Close(ctx context.Context, release func(now time.Duration)) error {
	l.Lock()
	if l.closed {
		l.Unlock()
		return nil
	}
	l.closed = true
	now := l.Now()
	l.Machine.Close()
	release(now)
	l.drain(ctx, now)
	return l.session.Close()
}

// drain waits until the machine has nothing to send. It is called with the lock held and
// returns without it.
func (l *Loop) drain(ctx context.Context, now time.Duration) {
	drained := make(chan struct{})
	l.drained = drained
	if l.timer != nil {
		l.timer.Stop()
	}
	l.Start(now)
	// Call tick from here, for the pauses between failed calls: the timer is stopped.
	end := time.NewTimer(min(client.Patience, l.lease))
	defer end.Stop()
	again := time.NewTimer(client.Pause(1))
	defer again.Stop()
	over := ctx.Done()
	for waits, ticks := true, 1; waits; {
		select {
		case <-drained:
			waits = false
		case <-end.C:
			waits = false
		case <-over:
			over = nil
			end.Reset(lastCall)
		case <-again.C:
			l.tick()
			ticks++
			again.Reset(client.Pause(ticks))
		}
	}
	l.Lock()
	l.drained = nil
	l.Machine.GiveUp()
	l.die()
	l.deadlines.Stop() // which also ends the call in flight
	l.Settle(l.Now())
}

// Within returns a context for a call. It ends after most to one and a half times most.
// The lock is held.
func (l *Loop) Within(now, most time.Duration) context.Context {
	return l.deadlines.Within(l.At(now), most)
}
