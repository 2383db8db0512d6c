// Package loop drives a client.Machine: it owns the lock, the timer and the session.
// It feeds the machine with time and answers, carries its calls one at a time, and
// tells its owner what happened. Package sema is one owner, the server's JSON API
// another.
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
)

// QuickCall bounds a call that a caller carries itself. Such calls share their
// deadlines, so one takes up to half as long again, and the caller's context is
// ignored meanwhile. Where calls take longer they would fail, and be made again:
// so after one that did, callers carry none until one was answered in half of it.
const QuickCall = 150 * time.Millisecond

const (
	// minCall and maxCall bound any other call. Between them it is a third of
	// the lease: a connection that swallows everything must not outlast the
	// permits it carries.
	minCall = 250 * time.Millisecond
	maxCall = 5 * time.Second

	// lastCall is what Close has for its last call after its context has ended.
	lastCall = minCall
)

var (
	errPanic    = errors.New("the engine panicked")
	errNoAnswer = errors.New("no answer in time")
	errUnasked  = errors.New("not asked")
)

// Owner is what a Loop tells what happened. Its functions are called with the lock
// held.
type Owner struct {
	// Observe takes in an event of the machine's, but for the answers to orders, which
	// are told to the Waiters that own them. What it returns, if anything, is
	// called when the lock is free.
	Observe func(client.Event) func()

	// Tick is called before the machine looks at the clock, and Ticked after it.
	// Both may be nil.
	Tick, Ticked func(now time.Duration)
}

// Loop is the life of a machine. The zero value becomes one with Open.
//
// Whoever has something for the machine takes the lock, tells the machine, and
// calls Run. If nothing is in flight, Run carries the machine's next call in
// the caller's own goroutine, which saves waking another; what waits when that
// is back leaves in a goroutine of its own.
type Loop struct {
	sync.Mutex
	Machine *client.Machine

	name    string // of the semaphore
	session engine.Session
	owner   Owner
	lease   time.Duration
	base    time.Time // the machine's time counts from here

	timer     *time.Timer
	armed     time.Duration // when the timer fires; 0: not armed
	carrying  bool          // somebody carries calls, and will carry what comes
	slow      bool          // callers carry no calls, see QuickCall
	first     []func()      // to be called when the lock is free
	after     []func()      // to be called then
	closed    bool
	drained   chan struct{} // closed when Close need not wait any longer
	unheld    chan struct{} // closed when no caller has a permit any more; nil before Refuse
	empty     bool          // it is closed
	deadlines Deadlines
}

// Open opens a session of an engine, and makes the machine that config describes.
// It does no I/O.
func (l *Loop) Open(e engine.Engine, name string, who engine.Client, owner Owner, config func(engine.Session) client.Config) error {
	l.Lock() // an engine that is being closed may notify before all is ready
	defer l.Unlock()
	session, err := e.Open(name, who, l.notify)
	if err != nil {
		return err
	}
	cfg := config(session)
	l.name, l.session, l.owner, l.lease, l.base = name, session, owner, cfg.Lease, time.Now()
	cfg.Client, cfg.Self, cfg.Base = session.Client(), who, l.base
	l.Machine = client.New(cfg)
	return nil
}

// Session is the engine's session.
func (l *Loop) Session() engine.Session { return l.session }

// Closed reports whether Close was called. The lock is held.
func (l *Loop) Closed() bool { return l.closed }

// Waiter waits for an event. What it is told is written under the loop's lock, and
// may be read without when it is settled.
type Waiter struct {
	Err    error         // why it failed
	Status engine.Status // of the answer to an order

	settled atomic.Bool
	done    chan struct{} // closed when settled; nil as long as nobody waits
}

// Settle tells the waiter, once. The lock is held.
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

// Settled reports whether it was told.
func (w *Waiter) Settled() bool { return w.settled.Load() }

// Now is the machine's time.
func (l *Loop) Now() time.Duration { return time.Since(l.base) }

// At is the moment of a machine's time.
func (l *Loop) At(t time.Duration) time.Time { return l.base.Add(t) }

// Of is a moment in the machine's time.
func (l *Loop) Of(t time.Time) time.Duration { return t.Sub(l.base) }

// After has f called when the lock is free. The lock is held.
func (l *Loop) After(f func()) { l.after = append(l.after, f) }

// First is After, before all that After has called.
func (l *Loop) First(f func()) { l.first = append(l.first, f) }

// Run passes on what happened and carries the machine's next call, if there is
// one. It is called with the lock held and returns without.
func (l *Loop) Run(now time.Duration) {
	call, ok := l.next(now)
	if ok && !l.slow {
		ctx := l.Within(now, QuickCall)
		l.settleBefore(now, call)
		now = l.carry(ctx, call, now)
		call, ok = l.another(now)
	}
	l.settleThen(now, call, ok)
}

// settleBefore is Settle before a call is carried. Should an observer panic, and
// its caller survive that, somebody else carries the call.
func (l *Loop) settleBefore(now time.Duration, call engine.Call) {
	told := false
	defer func() {
		if !told {
			go l.carryAll(call)
		}
	}()
	l.Settle(now)
	told = true
}

// Start is Run for those who cannot carry a call themselves.
func (l *Loop) Start(now time.Duration) {
	call, ok := l.next(now)
	l.settleThen(now, call, ok)
}

// settleThen is Settle, and has the next call carried, if there is one: also
// after an observer's panic that its caller survives.
func (l *Loop) settleThen(now time.Duration, call engine.Call, ok bool) {
	if ok {
		defer func() { go l.carryAll(call) }()
	}
	l.Settle(now)
}

// next is a call for the caller to carry, unless somebody else is at it. The
// lock is held.
func (l *Loop) next(now time.Duration) (call engine.Call, ok bool) {
	if l.carrying {
		return call, false
	}
	return l.another(now)
}

// another is the next call for whoever carried the last one. The lock is held.
func (l *Loop) another(now time.Duration) (call engine.Call, ok bool) {
	if l.drained == nil || !l.Machine.Drained(now) {
		call, l.carrying = l.Machine.Next(now)
	} else {
		l.carrying = false
	}
	return call, l.carrying
}

// carryAll carries calls until there is none.
func (l *Loop) carryAll(call engine.Call) {
	for ok := true; ok; {
		l.Lock()
		now := l.Now()
		ctx := l.Within(now, max(minCall, min(maxCall, l.lease/3)))
		l.Unlock()
		l.Settle(l.carry(ctx, call, now))
		// Those who were told run first: what they do next goes along.
		runtime.Gosched()
		l.Lock()
		now = l.Now()
		call, ok = l.another(now)
		l.Settle(now)
	}
}

// carry carries one call, and tells the machine what came of it. It is called
// without the lock and returns with it.
func (l *Loop) carry(ctx context.Context, call engine.Call, began time.Duration) (now time.Duration) {
	answered := false
	defer func() {
		if !answered { // a panic below, which the caller may survive
			l.Lock()
			l.Machine.Failed(l.Now(), &engine.Error{Op: "step", Err: errPanic})
			l.carrying = false
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

// Gather tells the machine's events to those who wait for them. The lock is
// held.
func (l *Loop) Gather() {
	for _, e := range l.Machine.Events() {
		if e.Kind == client.Answered {
			w := e.Order.Owner.(*Waiter)
			w.Status = e.Answer.Status
			w.Settle(e.Err)
		} else if f := l.owner.Observe(e); f != nil {
			l.after = append(l.after, f)
		}
	}
}

// Settle passes on what happened, arms the timer, and gives up the lock. Then what
// the owner wants to have called is called.
func (l *Loop) Settle(now time.Duration) {
	l.Gather()
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

// tick runs when the timer fires.
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

// notify takes in a notification of the engine's. It may be called from within
// a Step that holds up somebody else's: so it carries nothing itself.
func (l *Loop) notify(n engine.Notification) {
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

// Ask has the engine carry out a request that is about no permit of this
// process, and waits for the answer.
func (l *Loop) Ask(ctx context.Context, op string, r engine.Request) (engine.Status, error) {
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
	// Not in this goroutine: a call that its caller carries is given up soon, and
	// made again. Of a removal that was made twice nobody knows whether there was
	// anything to remove.
	l.Start(l.Now())
	return l.Result(ctx, op, w, o)
}

// Finish runs the loop, and waits for the answer to an order. It is called with
// the lock held.
func (l *Loop) Finish(ctx context.Context, op string, w *Waiter, o *client.Order) (engine.Status, error) {
	l.Run(l.Now())
	return l.Result(ctx, op, w, o)
}

// Result waits for the answer to an order.
func (l *Loop) Result(ctx context.Context, op string, w *Waiter, o *client.Order) (engine.Status, error) {
	if !l.Wait(ctx, w) {
		l.Lock()
		defer l.Unlock()
		if !w.settled.Load() {
			l.Machine.Abandon(o)
			return 0, l.Unanswered(op, ctx.Err())
		}
	}
	return w.Status, l.Named(op, w.Err)
}

// Unanswered is the error of a caller whose context ended before the engine answered. It
// joins over, the end of that context, with the engine's last failure. The lock is held.
func (l *Loop) Unanswered(op string, over error) error {
	failure := l.Machine.LastError()
	if failure == nil {
		failure = &engine.Error{Hint: "check the engine, or wait longer", Err: errNoAnswer}
	}
	return Ended(l.Named(op, failure), over)
}

// Unasked is Unanswered for a caller whose context had ended before the call.
func (l *Loop) Unasked(op string, over error) error {
	return Ended(&engine.Error{Op: op, Name: l.name, NotExecuted: true, Err: errUnasked}, over)
}

// Ended joins an engine's failure with the end of its caller's context. An engine that was
// closed has answered.
func Ended(failure, over error) error {
	if errors.Is(failure, engine.ErrClosed) {
		return failure
	}
	return fmt.Errorf("%w: %w", failure, over)
}

// Silent is the error of a caller that has heard nothing of the engine for d.
func (l *Loop) Silent(op string, d time.Duration) error {
	if err := l.Machine.LastError(); err != nil {
		return l.Named(op, err)
	}
	return &engine.Error{Op: op, Name: l.name, Temporary: true, Hint: "check the engine", Err: fmt.Errorf("no answer for %v", d)}
}

// Named says of an engine's failure which operation on which semaphore it was. What it
// returns is an *engine.Error, or an ErrClosed if the engine was closed.
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

// Refuse ends all waits, refuses all further wishes, and waits until no caller has a permit any
// more, or ctx ends. It fails with ctx's error then. Close ends it as well.
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

// Close closes the machine, has release say what becomes of the permits, with the lock
// held, sends what is owed to the engine, and closes the session. It takes three seconds or a
// lease at most, whichever is less, and lastCall at most once ctx has ended. It does not wait
// for an engine that is away if nothing is left that the engine is known to have. What could
// not be sent ends with its lease. Closing again does nothing.
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

// drain waits until nothing is owed. It is called with the lock held and returns
// without.
func (l *Loop) drain(ctx context.Context, now time.Duration) {
	drained := make(chan struct{})
	l.drained = drained
	if l.timer != nil {
		l.timer.Stop()
	}
	l.Start(now)
	// Pauses between failed calls are kept by hand: the timer has stopped.
	end := time.NewTimer(min(client.Patience, l.lease))
	defer end.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	over := ctx.Done()
	for waits := true; waits; {
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
		}
	}
	l.Lock()
	l.drained = nil
	l.Machine.GiveUp()
	l.deadlines.Stop() // also of the call in flight
	l.Settle(l.Now())
}

// Within is a context for a call that takes no longer than most, give or take a
// half. The lock is held.
func (l *Loop) Within(now, most time.Duration) context.Context {
	return l.deadlines.Within(l.At(now), most)
}
