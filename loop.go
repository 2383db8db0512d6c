package sema

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/client"
)

const (
	// quickCall bounds a call that a caller carries itself, give or take a half,
	// and so how long its context may go unheeded. After one that took longer,
	// callers carry none for slowFor.
	quickCall = 150 * time.Millisecond
	slowFor   = time.Minute

	// minCall and maxCall bound any other call. Between them it is a third of
	// the lease: a connection that swallows everything must not outlast the
	// permits it carries.
	minCall = 250 * time.Millisecond
	maxCall = 5 * time.Second
)

// loop drives a client.Machine: it owns the lock, the timer and the session. It
// feeds the machine with time and answers, carries its calls one at a time, and
// tells callers and observers what happened.
//
// Whoever has something for the machine takes the lock, tells the machine, and
// calls run. If nothing is in flight, run carries the machine's next call in
// the caller's own goroutine, which saves waking another; what waits when that
// is back leaves in a goroutine of its own.
type loop struct {
	name    string // of the semaphore
	session engine.Session
	observe func(client.Event) func() // what to do about an event when the lock is free; may be nil
	lease   time.Duration
	base    time.Time // the machine's time counts from here

	mu        sync.Mutex
	machine   *client.Machine
	timer     *time.Timer
	armed     time.Duration // when the timer fires; 0: not armed
	carrying  bool          // somebody carries calls, and will carry what comes
	slow      time.Duration // until when callers carry no calls
	ends      []func()      // of contexts; to be called when the lock is free
	after     []func()      // to be called then
	abandoned []*holding    // found by the garbage collector
	closed    bool
	idle      chan struct{}              // after close: closed when nothing is to be done any more
	deadlines map[time.Duration]deadline // by the length of the calls
}

// waiter is somebody who waits for an event. What it is told is written under
// the loop's lock, before settled is set.
type waiter struct {
	settled atomic.Bool
	done    chan struct{} // closed when settled; nil as long as nobody waits
	err     error
	status  engine.Status // of the answer to an order
}

// settle tells the waiter, once. The lock is held.
func (w *waiter) settle(err error) {
	if w.settled.Load() {
		return
	}
	w.err = err
	w.settled.Store(true)
	if w.done != nil {
		close(w.done)
	}
}

func (l *loop) now() time.Duration { return time.Since(l.base) }

// run passes on what happened and carries the machine's next call, if there is
// one. It is called with the lock held and returns without.
func (l *loop) run(now time.Duration) {
	call, ok := l.next(now)
	if ok && now >= l.slow {
		ctx := l.within(now, quickCall)
		l.settleBefore(now, call)
		now = l.carry(ctx, call, now)
		call, ok = l.another(now)
	}
	l.settleThen(now, call, ok)
}

// settleBefore is settle before a call is carried. Should an observer panic, and
// its caller survive that, somebody else carries the call.
func (l *loop) settleBefore(now time.Duration, call engine.Call) {
	told := false
	defer func() {
		if !told {
			go l.carryAll(call)
		}
	}()
	l.settle(now)
	told = true
}

// start is run for those who cannot carry a call themselves.
func (l *loop) start(now time.Duration) {
	call, ok := l.next(now)
	l.settleThen(now, call, ok)
}

// settleThen is settle, and has the next call carried, if there is one: also
// after an observer's panic that its caller survives.
func (l *loop) settleThen(now time.Duration, call engine.Call, ok bool) {
	if ok {
		defer func() { go l.carryAll(call) }()
	}
	l.settle(now)
}

// next is a call for the caller to carry, unless somebody else is at it. The
// lock is held.
func (l *loop) next(now time.Duration) (call engine.Call, ok bool) {
	if l.carrying {
		return call, false
	}
	return l.another(now)
}

// another is the next call for whoever carried the last one. The lock is held.
func (l *loop) another(now time.Duration) (call engine.Call, ok bool) {
	call, l.carrying = l.machine.Next(now)
	return call, l.carrying
}

// carryAll carries calls until there is none.
func (l *loop) carryAll(call engine.Call) {
	for ok := true; ok; {
		l.mu.Lock()
		now := l.now()
		ctx := l.within(now, max(minCall, min(maxCall, l.lease/3)))
		l.mu.Unlock()
		l.settle(l.carry(ctx, call, now))
		// Those who were told run first: what they do next goes along.
		runtime.Gosched()
		l.mu.Lock()
		now = l.now()
		call, ok = l.another(now)
		l.settle(now)
	}
}

// carry carries one call, and tells the machine what came of it. It is called
// without the lock and returns with it.
func (l *loop) carry(ctx context.Context, call engine.Call, began time.Duration) (now time.Duration) {
	answered := false
	defer func() {
		if !answered { // a panic below, which the caller may survive
			l.mu.Lock()
			l.machine.Failed(l.now(), &engine.Error{Op: "step", Err: errPanic})
			l.carrying = false
			l.settle(l.now())
		}
	}()
	reply, err := l.session.Step(ctx, call)
	answered = true
	l.mu.Lock()
	now = l.now()
	if err == nil {
		l.machine.Answer(now, reply)
		return now
	}
	if now-began >= quickCall {
		l.slow = now + slowFor
	}
	l.machine.Failed(now, err)
	return now
}

// gather tells the machine's events to those who wait for them. The lock is
// held.
func (l *loop) gather() {
	for _, e := range l.machine.Events() {
		if f := l.observe(e); f != nil {
			l.after = append(l.after, f)
		}
	}
}

// settle passes on what happened, arms the timer, and gives up the lock. Then
// all contexts end that have to, and observers are told.
func (l *loop) settle(now time.Duration) {
	l.gather()
	ends, after := l.ends, l.after
	l.ends, l.after = nil, nil
	if at, ok := l.machine.Wake(); ok && !l.closed && (l.armed == 0 || at < l.armed) {
		l.armed = max(1, at)
		if l.timer == nil {
			l.timer = time.AfterFunc(at-now, l.tick)
		} else {
			l.timer.Reset(at - now)
		}
	}
	if l.closed && l.idle != nil && l.machine.Idle() {
		close(l.idle)
		l.idle = nil
	}
	l.mu.Unlock()
	for _, f := range ends {
		f()
	}
	for _, f := range after {
		f()
	}
}

// tick runs when the timer fires.
func (l *loop) tick() {
	l.mu.Lock()
	now := l.now()
	l.armed = 0
	for _, h := range l.abandoned {
		h.giveUp(now)
	}
	l.abandoned = nil
	l.machine.Tick(now)
	l.machine.EachPermit(func(a *client.Acquisition) { a.Owner.(*holding).watch() })
	l.start(now)
}

// notify takes in a notification of the engine's. It may be called from within
// a Step that holds up somebody else's: so it carries nothing itself.
func (l *loop) notify(n engine.Notification) {
	l.mu.Lock()
	now := l.now()
	l.machine.Notify(now, n)
	l.start(now)
}

// wait waits until w is settled, or ctx ends.
func (l *loop) wait(ctx context.Context, w *waiter) (settled bool) {
	if w.settled.Load() {
		return true
	}
	l.mu.Lock()
	w.done = make(chan struct{})
	if w.settled.Load() {
		close(w.done)
	}
	l.mu.Unlock()
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask has the engine carry out a request that is about no permit of this
// process, and waits for the answer.
func (l *loop) ask(ctx context.Context, op string, r engine.Request) (engine.Status, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w := &waiter{}
	o := &client.Order{Owner: w}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, ErrClosed
	}
	l.machine.Do(o, r)
	// Not in this goroutine: a call that its caller carries is given up soon, and
	// made again. Of a removal that was made twice nobody knows whether there was
	// anything to remove.
	l.start(l.now())
	return l.result(ctx, op, w, o)
}

// giveBack gives back what is kept for callers that have not come yet, and waits
// for that.
func (l *loop) giveBack(ctx context.Context, op string) error {
	w := &waiter{}
	o := &client.Order{Owner: w}
	l.mu.Lock()
	if !l.machine.Return(o) {
		l.run(l.now())
		return nil
	}
	_, err := l.finish(ctx, op, w, o)
	return err
}

// finish runs the loop, and waits for the answer to an order. It is called with
// the lock held.
func (l *loop) finish(ctx context.Context, op string, w *waiter, o *client.Order) (engine.Status, error) {
	l.run(l.now())
	return l.result(ctx, op, w, o)
}

// result waits for the answer to an order.
func (l *loop) result(ctx context.Context, op string, w *waiter, o *client.Order) (engine.Status, error) {
	if !l.wait(ctx, w) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !w.settled.Load() {
			l.machine.Leave(o)
			return 0, l.unanswered(op, ctx.Err())
		}
	}
	return w.status, l.named(op, w.err)
}

// unanswered joins the end of a wait with what the engine said last, if it was
// the engine that kept the caller waiting. The lock is held.
func (l *loop) unanswered(op string, over error) error {
	if err := l.machine.LastError(); err != nil {
		return fmt.Errorf("%w: %w", over, l.named(op, err))
	}
	return &engine.Error{Op: op, Name: l.name, Hint: "check the engine, or wait longer", Err: fmt.Errorf("no answer in time: %w", over)}
}

// named says of an engine's failure which operation on which semaphore it was.
func (l *loop) named(op string, err error) error {
	if failure, ok := err.(*engine.Error); ok {
		named := *failure
		named.Op, named.Name = op, l.name
		return &named
	}
	return err
}

// shut waits until what is owed to the engine has been sent, for at most so
// long, and ends the loop.
func (l *loop) shut(most time.Duration) {
	l.mu.Lock()
	l.closed = true
	idle := make(chan struct{})
	l.idle = idle
	if l.timer != nil {
		l.timer.Stop()
	}
	l.start(l.now())
	// Pauses between failed calls are kept by hand: the timer has stopped.
	end := time.NewTimer(most)
	defer end.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-idle:
			return
		case <-end.C:
			return
		case <-again.C:
			l.tick()
		}
	}
}

// within is a context for calls that take no longer than most, give or take a
// half. A timer for each call would have the runtime wake a thread each time, so
// calls of the same length share a context. The lock is held.
func (l *loop) within(now, most time.Duration) context.Context {
	d := l.deadlines[most]
	if d.Context == nil || d.end-now < most {
		if l.deadlines == nil {
			l.deadlines = map[time.Duration]deadline{}
		}
		d.end = now + most + most/2
		d.Context, d.cancel = context.WithDeadline(context.Background(), l.base.Add(d.end))
		l.deadlines[most] = d
	}
	return d.Context
}

// deadline is a context that calls share.
type deadline struct {
	context.Context
	cancel context.CancelFunc // never called: the context ends by itself
	end    time.Duration
}
