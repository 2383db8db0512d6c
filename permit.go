package sema

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/class"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
)

// Permit is one successful acquisition. Its methods are safe for concurrent
// use. A permit that the program loses sight of without having released it is
// given back, and Observer.Abandoned is told: at its next renewal after the
// garbage collector found it. A detached one is not.
type Permit struct{ h *holding }

// holding is a permit as its Semaphore has it, from the wish to the end. What
// is not said to be fixed is guarded by the loop's lock.
type holding struct {
	client.Acquisition
	loop.Waiter // for the grant

	back       loop.Waiter // for the answer to its release
	sem        *Semaphore  // fixed
	queued     bool        // it had to wait
	hurried    bool        // the bound of its wait is over: it fails if it is queued
	overloaded bool        // its holder says so

	over     error // why the permit ended
	cause    error // the same when it ended first: released may follow on lost
	contexts []ending
	young    *Permit         // the caller's handle, until it is watched
	cleanup  runtime.Cleanup // of the caller's handle, once it is watched
}

// newPermit makes the caller's handle of a permit that is still to be granted.
func (s *Semaphore) newPermit() *Permit {
	h := &holding{sem: s}
	h.Owner = h
	p := &Permit{h}
	if !s.options.Detached {
		h.young = p
	}
	return p
}

// watch makes the garbage collector report when nobody has the handle any more.
// It is called at the permit's first renewal: most permits are released before,
// and should not pay for it. The lock is held.
func (h *holding) watch() {
	if h.young != nil && h.over == nil {
		h.cleanup = runtime.AddCleanup(h.young, (*holding).abandon, h)
		h.young = nil
	}
}

// Context is for the work that needs the permit. It carries parent's values, and
// ends with parent; before anybody else can hold the permit, with cause
// ErrLost; and with cause ErrReleased after Release. Its Err is exact even right
// after the process was stopped and woke up again: it compares the clock.
func (p *Permit) Context(parent context.Context) context.Context {
	h, l := p.h, &p.h.sem.loop
	cause := p.cause()
	// What ended before the context was made has its own cause, and not the
	// parent's. The parent may be a context of another permit of the same
	// Semaphore, which takes the lock.
	if cause != nil {
		parent = context.WithoutCancel(parent)
	}
	x := ending{}
	x.Context, x.end = context.WithCancelCause(parent)
	l.Lock()
	cause = h.cause
	if cause == nil {
		if len(h.contexts) == cap(h.contexts) {
			h.contexts = slices.DeleteFunc(h.contexts, func(x ending) bool { return x.Err() != nil })
		}
		h.contexts = append(h.contexts, x)
	}
	l.Unlock()
	if cause != nil {
		x.end(cause)
	}
	return &permitContext{x, p}
}

// cause is why the permit's contexts ended.
func (p *Permit) cause() error {
	p.h.sem.loop.Lock()
	defer p.h.sem.loop.Unlock()
	return p.h.cause
}

// Err is nil while the permit is held and trusted, an ErrLost after it was
// lost, ErrReleased after it was released. Close of its Semaphore loses it.
func (p *Permit) Err() error {
	l := &p.h.sem.loop
	l.Lock()
	now := l.Now()
	l.Machine.Overdue(now, &p.h.Acquisition)
	l.Gather()
	err := p.h.over
	l.Settle(now)
	return err
}

// ID names the permit towards the engine and its operators. A permit that passes
// from one caller of this process to the next keeps its id, and gets a new token:
// an id is this caller's until it releases, and a Detached permit's for good.
func (p *Permit) ID() string { return p.h.Acquisition.ID().String() }

// String names the semaphore and the permit, for logs.
func (p *Permit) String() string { return fmt.Sprintf("sema.Permit(%q, %s)", p.Name(), p.ID()) }

// Name is that of the permit's semaphore.
func (p *Permit) Name() string { return p.h.sem.name }

// Weight is how much of the limit the permit takes.
func (p *Permit) Weight() int { return p.h.Acquisition.ID().Weight }

// Token is the fencing token: larger than that of every permit before it in the
// same slot (see Options.Slots), and so of every permit before it where the limit
// is 1. Storage that remembers the largest token it saw, per slot where the limit
// is above 1, can refuse a holder of the past.
func (p *Permit) Token() int64 { return p.h.Acquisition.Token() }

// Slot is the permit's index 0 … limit-1 with Options.Slots, else -1.
func (p *Permit) Slot() int { return max(-1, p.h.Acquisition.Slot()) }

// WouldWait reports whether the permit was granted at once though the limit, a cap or a pool would have kept its caller waiting:
// they are only watched, see Options.Observe. Such a permit has no slot, and spends nothing of rates.
func (p *Permit) WouldWait() bool { return p.h.Acquisition.Slot() == protocol.WouldWait }

// Deadline is when the permit's contexts will end unless the permit is renewed
// before. Renewals move it. What happens until then is safe; the margin that
// follows is the time to stop.
func (p *Permit) Deadline() time.Time {
	l := &p.h.sem.loop
	l.Lock()
	defer l.Unlock()
	return l.At(p.h.Valid())
}

// Renew gives the permit a whole new lease now. Automatic renewal does the
// same in the background. It fails with an ErrLost or ErrReleased when the
// permit is not held any more, and with ErrEngine when the engine could
// not be asked: the permit is then held until Deadline, as before.
func (p *Permit) Renew(ctx context.Context) error {
	if err := p.Err(); err != nil {
		return err
	}
	l := &p.h.sem.loop
	w := &loop.Waiter{}
	o := &client.Order{Owner: w}
	l.Lock()
	if p.h.over == nil {
		l.Machine.Renew(l.Now(), o, &p.h.Acquisition)
	} else {
		w.Settle(nil)
	}
	if _, err := l.Finish(ctx, "renew", w, o); err != nil {
		return err
	}
	return p.Err()
}

// RetryAfter tells all processes that the service that the permit is for wants no new call before d has passed. A vendor says
// so by the status 429 and a Retry-After, for example. Until then the semaphore grants no permit, and its waiters keep their
// places; the permits that are held stay. Nothing of a rate comes back meanwhile, or as much would begin at once at the end.
// It only extends what was said before, and ends by itself, or when an operator
// unpauses. d is ten minutes at the most; 0 or less changes nothing. RetryAfter does not wait: it is sent in the background,
// before a Release that follows, and again until the engine has it.
func (p *Permit) RetryAfter(d time.Duration) {
	if d <= 0 {
		return
	}
	l := &p.h.sem.loop
	l.Lock()
	now := l.Now()
	l.Machine.Cool(now, min(d, engine.MaxCooldown), l.Machine.Self(&p.h.Acquisition))
	l.Start(now)
}

// Used says how much of a rate the work has used, of which the permit took some by Take. It counts with the Release: what was not
// used comes back at once, as far as time has not brought it back yet, and more than was taken is a debt. So an estimate is taken, and
// the true cost is settled. A permit that does not say counts as having used what it took. The last word of a pool counts;
// n below 0 counts as 0, and another pool than the permit's changes nothing.
func (p *Permit) Used(pool string, n int) {
	l := &p.h.sem.loop
	l.Lock()
	defer l.Unlock()
	if _, takes := p.h.Takes.Has(pool); !takes || p.h.over != nil {
		return
	}
	s := p.h.sem
	used := s.uses[p.h].Map()
	used[pool] = min(max(0, n), engine.MaxLimit)
	if s.uses == nil {
		s.uses = map[*holding]engine.Pools{}
	}
	s.uses[p.h], _ = engine.NewPools(used, 0) // a name that is taken is valid
}

// Release gives the permit back and hands it to the next waiter: within this
// process, while no other client waits, and else through the engine; see also
// Options.Keep. It does not depend on any context. It returns nil when the permit was held until now; an
// ErrLost when it had been lost before; ErrReleased when it had been released
// before. ErrEngine says that the engine did not confirm: the release is
// repeated in the background, and the permit comes back with its lease in any
// case.
func (p *Permit) Release() error {
	err := p.h.release(p.h.sem.released)
	runtime.KeepAlive(p)
	return err
}

func (h *holding) release(cause error) error {
	s, l := h.sem, &h.sem.loop
	l.Lock()
	now := l.Now()
	l.Machine.Overdue(now, &h.Acquisition)
	l.Gather()
	lost := h.over
	if errors.Is(lost, ErrReleased) || errors.Is(lost, errLetGo) || l.Closed() {
		err := s.released
		if errors.Is(lost, ErrLost) && !errors.Is(lost, errLetGo) { // before its Semaphore was closed
			err = lost
			h.end(cause)
		}
		l.Settle(now)
		return err
	}
	s.used = now
	used := s.uses[h]
	h.end(cause)
	token, held := h.Token(), now-h.GrantedAt()
	if s.adapt != nil && lost == nil {
		s.adapt.ended(h, held)
	}
	h.young = nil
	h.cleanup.Stop()
	var status protocol.Status
	var err error
	if o := l.Machine.Release(now, &h.Acquisition); o == nil { // passed on within this process
		l.Run(now)
	} else {
		o.Owner = &h.back
		o.Uses(used)
		confirm := l.Within(now, s.callTimeout())
		l.Run(now)
		status, err = l.Result(confirm, "release", &h.back, o)
		if failure, ok := errors.AsType[*engine.Error](err); ok {
			err = failure // the end of confirm is not that of a caller's context
		}
	}
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return err
	case status == protocol.Gone:
		err = noPermit(s.name, h.ID())
		if f := s.options.Observer.Lost; f != nil {
			e := h.event()
			e.Token, e.Held, e.Err = token, held, err
			f(e)
		}
		return err
	}
	if f := s.options.Observer.Released; f != nil {
		e := h.event()
		e.Token, e.Held = token, held
		f(e)
	}
	return nil
}

// end notes that the permit is over, and why. Its contexts end once the lock is
// free.
func (h *holding) end(cause error) {
	h.over = cause
	if len(h.sem.uses) > 0 {
		delete(h.sem.uses, h)
	}
	if h.cause == nil {
		h.cause = cause
	}
	if contexts := h.contexts; len(contexts) > 0 {
		h.contexts = nil
		h.sem.loop.First(func() {
			for _, x := range contexts {
				x.end(cause)
			}
		})
	}
}

// abandon notes that nobody has the handle any more. It is called by the garbage
// collector's goroutine, so it leaves the rest to the loop.
func (h *holding) abandon() {
	l := &h.sem.loop
	l.Lock()
	h.sem.abandoned = append(h.sem.abandoned, h)
	l.Unlock()
}

// giveUp gives back a permit whose handle nobody has. The lock is held.
func (h *holding) giveUp(now time.Duration) {
	s, m := h.sem, h.sem.loop.Machine
	if h.over != nil || s.loop.Closed() {
		return
	}
	used := s.uses[h]
	h.end(named(errAbandoned, s.name))
	o := m.Release(now, &h.Acquisition)
	o.Uses(used)
	o.Abandon()
	f := s.options.Observer.Abandoned
	if f == nil {
		f = logAbandoned
	}
	told := h.event()
	told.Token, told.Held = h.Token(), now-h.GrantedAt()
	s.loop.After(func() { f(told) })
}

// run runs f under the permit, and gives the permit back.
func (p *Permit) run(ctx context.Context, f func(context.Context) error) error {
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err := f(p.Context(ctx))
	return class.Join(p.Err(), err)
}

// event is about the holding; the rest depends on what happened.
func (h *holding) event() Event {
	e := Event{Semaphore: h.sem.name, Label: h.Label, Path: h.Key.Names(), Weight: h.Acquisition.Weight(), WouldWait: h.Acquisition.Slot() == protocol.WouldWait}
	if id := h.ID(); id.Number > 0 { // a caller behind others of this process has none yet
		e.Permit = id.String()
	}
	return e
}

// permitContext ends with its permit. Err looks at the clock itself, because
// after a pause of the whole process the timer that should have ended the
// context may not have run yet. A reference to it, or to a context made from it,
// keeps the handle from the garbage collector.
type permitContext struct {
	ending
	permit *Permit
}

// ending is a context of context.WithCancelCause, so that children attach to it
// cheaply, and its end. A holding has it without the handle, which would never be
// found otherwise.
type ending struct {
	context.Context
	end context.CancelCauseFunc
}

// Err implements context.Context.
func (x *permitContext) Err() error {
	if err := x.Context.Err(); err != nil {
		return err
	}
	if x.permit.Err() != nil { // the goroutine that ends the contexts may not have reached this one yet
		x.end(x.permit.cause())
	}
	return x.Context.Err()
}
