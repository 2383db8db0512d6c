package sema

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
	"sema/internal/watchdog"
)

// Semaphore limits how much weight is held at once under one name, together
// with every other client of the same engine. Create one per name and share
// it: it is safe for concurrent use, and its permits and waits share calls. Methods panic on a
// Semaphore that New did not make.
type Semaphore struct {
	name    string
	engine  Engine // nil: it cannot be compared
	limit   int    // as given to New
	options Options
	loop    loop.Loop

	busy, released error // the sentinels, with the name: they are needed often

	adapt *adapting // nil: the limit is what it was set to

	used      time.Duration // when a permit was last asked for, or ended; guarded by the loop's lock
	abandoned []*holding    // found by the garbage collector; guarded by the loop's lock

	uses map[*holding]engine.Pools // what permits that are held have said, see Permit.Used; guarded by the loop's lock
}

// New prepares a semaphore called name. From its first acquisition on, limit holds
// for all processes, unless an operator has set another one (see Options.OnConflict).
// New does no I/O, so it fails only on values out of range, with an *ArgumentError. A
// nil options means the defaults.
func New(e Engine, name string, limit int, options *Options) (*Semaphore, error) {
	if options == nil {
		options = &Options{}
	}
	o := options.withDefaults()
	for _, err := range []error{engine.ValidateLimit(limit), o.validate(), o.Adapt.validate(name, limit)} {
		if err != nil {
			return nil, err
		}
	}
	s, err := open(e, name, limit, o)
	if err == nil && o.Adapt != nil {
		err = s.newAdapting(e)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open opens a session of a semaphore. One whose limit is 0 never acquires.
func open(e Engine, name string, limit int, o Options) (*Semaphore, error) {
	if err := cmp.Or(protocol.Validate("", e), engine.ValidateName(name)); err != nil {
		return nil, err
	}
	s := &Semaphore{name: name, limit: limit, options: o, busy: named(ErrBusy, name), released: named(ErrReleased, name)}
	if reflect.ValueOf(e).Comparable() {
		s.engine = e
	}
	owner := loop.Owner{Observe: s.observe, Tick: s.takeUp, Ticked: s.watch}
	config := func(session protocol.Session) client.Config { return o.machine(session, limit) }
	who := engine.Self(cmp.Or(o.Label, program()))
	if o.Renew == NoRenewal {
		who.Lease = o.Lease // for those who renew the permit by its id
	}
	if err := s.loop.Open(e, name, who, owner, config); err != nil {
		return nil, err
	}
	return s, nil
}

// program is the name of this program, as far as it can be a label.
func program() string {
	if len(os.Args) == 0 {
		return ""
	}
	name := filepath.Base(os.Args[0])
	if engine.ValidateText("label", name, engine.MaxLabel) != nil {
		return ""
	}
	return name
}

// made panics if the Semaphore is nil, or a zero value: a mistake that no caller can handle.
func (s *Semaphore) made() {
	if s == nil || s.loop.Machine == nil {
		panic("sema: a Semaphore that New, or an Operator that Operate, did not make")
	}
}

// Name is the name given to New.
func (s *Semaphore) Name() string { return s.name }

// seen is the limit as last seen, or the one given to New. The lock is held.
func (s *Semaphore) seen() int { return cmp.Or(s.loop.Machine.Stored(), s.limit) }

// Acquire waits until its weight is free, in all and for its key, and everybody who came before has
// been served, and takes it. All of the weight is granted at once, or nothing.
//
// ctx bounds the wait, and nothing else: the permit stays when it ends. Work
// that needs the permit runs under [Permit.Context]. When ctx ends the wait, the
// error is ErrBusy at once, or ErrEngine if the engine has not answered yet; it is ctx's
// own error as well. A caller fails with a *BusyError at once if the queue, by the
// pace of the last grants, is too long for the deadline of ctx, or if Options.MaxWaiting
// callers are before it. A first attempt that does not reach the engine fails after three seconds with ErrEngine, unless the engine lives and is only busy;
// once queued, a wait lasts through an outage of up to one lease. Options.Patient
// takes both bounds away. Under the context of a permit of this semaphore, a wait that the
// permit itself would keep from ending, by the limit or a pool, fails at once, with a *NestedError. On any error
// nothing is held.
func (s *Semaphore) Acquire(ctx context.Context, options ...AcquireOption) (*Permit, error) {
	return s.acquire(ctx, true, options)
}

// TryAcquire takes the weight if it is free now and nobody waits for it, and fails with ErrBusy
// otherwise. Callers that wait for their keys' caps alone are passed.
func (s *Semaphore) TryAcquire(ctx context.Context, options ...AcquireOption) (*Permit, error) {
	return s.acquire(ctx, false, options)
}

func (s *Semaphore) acquire(ctx context.Context, wait bool, options []AcquireOption) (*Permit, error) {
	s.made()
	w, err := fold(wait, options)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, s.inVain(ctx)
	}
	if w.wait {
		if err := s.nested(ctx, w); err != nil {
			return nil, err
		}
	}
	within := ctx
	if w.most > 0 {
		bounded, cancel := context.WithTimeout(ctx, w.most)
		defer cancel()
		within = bounded
	}
	p := s.newPermit()
	p.h.Target, p.h.Label, p.h.Priority = w.Target, w.label, w.priority
	if s.adapt != nil {
		s.adapt.start()
	}
	l := &s.loop
	l.Lock()
	now := l.Now()
	s.used = now
	if d, ok := within.Deadline(); ok {
		p.h.Deadline = max(1, l.Of(d))
	}
	l.Machine.Acquire(now, &p.h.Acquisition, w.weight, w.wait)
	switch { // a caller that carries its call is not to be woken meanwhile
	case w.answer > 0:
		l.Start(now)
		s.awaitAnswer(within, p.h, w.answer)
	case w.most > 0 && w.most < 2*loop.QuickCall:
		l.Start(now)
	default:
		l.Run(now)
	}
	return s.outcome(ctx, within, p)
}

// awaitAnswer waits for anything that the engine says of an acquisition, while this process runs for
// d. After that it has failed.
func (s *Semaphore) awaitAnswer(ctx context.Context, h *holding, d time.Duration) {
	l := &s.loop
	within, cancel := watchdog.Within(ctx, d)
	defer cancel()
	if l.Wait(within, &h.Waiter) || ctx.Err() != nil {
		return
	}
	l.Lock()
	now := l.Now()
	if !h.Settled() && h.State() == client.Asking {
		err := s.busy
		if h.Unanswered() {
			err = l.Silent("acquire", d)
		}
		l.Machine.Cancel(now, &h.Acquisition)
		h.Settle(err)
	}
	l.Start(now)
}

// outcome waits for an acquisition, until within ends: that is ctx, with the bound of the wait.
func (s *Semaphore) outcome(ctx, within context.Context, p *Permit) (*Permit, error) {
	h, l := p.h, &s.loop
	settled := l.Wait(within, &h.Waiter)
	if !settled && ctx.Err() == nil {
		settled = s.hurry(ctx, h)
	}
	over := ctx.Err() != nil // asked without the lock, which the context of a permit of this semaphore takes
	if settled && h.Err == nil && !over {
		return s.granted(p)
	}
	l.Lock()
	now := l.Now()
	err := h.Err
	switch {
	case h.Settled() && err == nil && !over: // granted as the bound of the wait ended
		l.Start(now)
		return s.granted(p)
	case h.Settled() && err == nil: // granted as the context ended
		l.Machine.Release(now, &h.Acquisition).Abandon()
		h.end(s.released)
		err = s.inVain(ctx)
	case !h.Settled():
		err = s.unserved(ctx, over, h)
		l.Machine.Cancel(now, &h.Acquisition)
		h.Settle(err)
	}
	s.used = now
	waited := max(0, now-h.Came()) // callers of one moment come a nanosecond apart
	l.Start(now)                   // this caller's context has ended: another goroutine sends the rest
	if f := s.options.Observer.Failed; f != nil {
		e := h.event()
		e.Waited, e.Err = waited, err
		f(e)
	}
	return nil, err
}

// hurry waits for the engine's first answer to an acquisition whose bound is over, unless
// the engine has failed. The bound is for the wait in the queue, and not for the way to it.
func (s *Semaphore) hurry(ctx context.Context, h *holding) (settled bool) {
	l := &s.loop
	l.Lock()
	h.hurried = h.Unanswered() && l.Machine.LastError() == nil
	l.Unlock()
	if !h.hurried {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, client.Patience)
	defer cancel()
	return l.Wait(ctx, &h.Waiter)
}

// leaveQueue ends an acquisition that was queued when the bound of its wait was over.
func (s *Semaphore) leaveQueue(h *holding) {
	l := &s.loop
	l.Lock()
	now := l.Now()
	if !h.Settled() {
		l.Machine.Cancel(now, &h.Acquisition)
		h.Settle(s.busy)
	}
	l.Start(now)
}

// granted tells the Observer of a permit.
func (s *Semaphore) granted(p *Permit) (*Permit, error) {
	if f := s.options.Observer.Acquired; f != nil {
		e := p.h.event()
		e.Token, e.Waited = p.h.Token(), max(0, p.h.GrantedAt()-p.h.Came())
		f(e)
	}
	return p, nil
}

// unserved is the error of an acquisition whose wait has ended. Within the bound of a wait an
// engine that has not failed may just be slower. over: ctx has ended. The lock is held.
func (s *Semaphore) unserved(ctx context.Context, over bool, h *holding) error {
	switch failed := s.loop.Machine.LastError() != nil; {
	case !over && h.Unanswered() && failed:
		return s.loop.Silent("acquire", s.loop.Now()-h.Came())
	case !over:
		return s.busy
	case h.Unanswered():
		return s.loop.Unanswered("acquire", ended(ctx))
	}
	return s.inVain(ctx)
}

// Do runs f while holding a permit. f's context ends when ctx does or the
// permit is lost. Do returns f's error as it is: an ErrBusy in it may be that of another
// semaphore. If the permit was lost, an ErrLost is joined with f's error. Do panics if f is nil.
func (s *Semaphore) Do(ctx context.Context, f func(context.Context) error, options ...AcquireOption) error {
	if f == nil {
		panic("sema: Do without a function")
	}
	p, err := s.Acquire(ctx, options...)
	if err != nil {
		return err
	}
	return p.run(ctx, f)
}

// Resume takes up a permit that this or another process acquired, by its id,
// and renews it. It fails with ErrLost when there is no such permit. Two
// processes that resume one permit hold it both: to pass it on, the first must
// let go of it. That is meant for permits of a Semaphore with Detached. Any other
// permit, once it is released, may have gone on to another caller of its process,
// which then holds it as well.
func (s *Semaphore) Resume(ctx context.Context, id string) (*Permit, error) {
	s.made()
	parsed, err := engine.ParseID(id)
	if err != nil {
		return nil, err
	}
	p := s.newPermit()
	h, l := p.h, &s.loop
	if ctx.Err() != nil {
		return nil, l.Unasked("resume", ended(ctx))
	}
	l.Lock()
	if l.Machine.Knows(parsed) {
		l.Unlock()
		return nil, &ArgumentError{What: "permit", Value: id, Want: "one that this Semaphore does not hold already"}
	}
	now := l.Now()
	l.Machine.Resume(now, &h.Acquisition, parsed)
	l.Run(now)
	if l.Wait(ctx, &h.Waiter) {
		if h.Err != nil {
			return nil, h.Err
		}
		return p, nil
	}
	l.Lock()
	defer l.Unlock()
	l.Machine.Forget(&h.Acquisition) // its lease goes on without us
	return nil, l.Unanswered("resume", ended(ctx))
}

// observe takes in an event of the machine's. The lock is held; what it
// returns is called without.
func (s *Semaphore) observe(e client.Event) func() {
	if e.A == nil {
		if s.limit == 0 || s.adapt != nil { // an Operator wants none, and one that adapts starts anywhere
			return nil
		}
		f := s.options.Observer.LimitDiffers
		switch {
		case f == nil && s.options.OnConflict == LimitStrict: // Acquire fails with it
			return nil
		case f == nil:
			f = logLimit
		}
		told := Event{Semaphore: s.name, Limit: e.Limit, Err: s.limitError(e)} // e itself would move to the heap, for each grant
		return func() { f(told) }
	}
	h, o := e.A.Owner.(*holding), &s.options.Observer
	switch e.Kind {
	case client.Granted:
		if s.adapt != nil && h.queued {
			s.adapt.totals.Waited++
		}
		h.Settle(nil)
	case client.Denied:
		h.Settle(s.reason(e))
	case client.Queued:
		h.queued = true
		if h.hurried {
			return func() { s.leaveQueue(h) }
		}
		if f := o.Queued; f != nil {
			told := h.event()
			told.Ahead, told.Waited = e.Ahead, max(0, s.loop.Now()-h.Came())
			return func() { f(told) }
		}
	case client.Lost:
		err := s.reason(e)
		s.used = s.loop.Now()
		h.end(err)
		if f := o.Lost; f != nil {
			told := h.event()
			told.Token, told.Held, told.Err = h.Token(), s.loop.Now()-h.GrantedAt(), err
			return func() { f(told) }
		}
	case client.AskFailed:
		if f := o.RenewFailed; f != nil {
			told := h.event()
			told.Err = s.loop.Named(operation(e.A), e.Err)
			return func() { f(told) }
		}
	}
	return nil
}

// logAbandoned is the default of Observer.Abandoned.
func logAbandoned(e Event) {
	slog.Warn("sema: a permit was dropped without Release, and has been given back",
		"semaphore", e.Semaphore, "permit", e.Permit, "label", e.Label, "held", e.Held)
}

// logLimit is the default of Observer.LimitDiffers.
func logLimit(e Event) {
	d, _ := errors.AsType[*LimitError](e.Err)
	var caps []any
	if d.WantedCaps != d.StoredCaps {
		caps = []any{"given_caps", d.WantedCaps.String(), "holds_caps", d.StoredCaps.String()}
	}
	if d.WantedPools != d.StoredPools {
		caps = append(caps, "given_pools", string(d.WantedPools), "holds_pools", string(d.StoredPools))
	}
	slog.Warn("sema: another limit holds than this process was given; an operator set it, or another process did",
		append([]any{"semaphore", e.Semaphore, "given", d.Wanted, "holds", d.Stored}, caps...)...)
}

// callTimeout is how long a release waits for its answer.
func (s *Semaphore) callTimeout() time.Duration { return max(s.options.Lease/6, engine.MinLease/2) }

// Close ends every wait with ErrClosed, ends the contexts of the permits still
// held, and gives them back; also what a failed acquisition may hold, because its answer was lost.
// That takes three seconds at most, or a lease if that is
// shorter: what Close could not give back returns with its lease. If the engine is away and can have
// nothing of this Semaphore, Close returns at once. The engine stays open. Further calls
// fail with ErrClosed; closing again does nothing.
func (s *Semaphore) Close() error { return s.close(context.Background()) }

// Shutdown closes the Semaphore without taking a permit from a holder. From its call on every
// wait, and every further Acquire, fails with ErrClosed. Permits are held and renewed until
// they are released, or until ctx ends. Then Shutdown closes the Semaphore as Close does. Once
// ctx has ended, that takes 250 ms at most. The error is ctx's if ctx ended first, and else
// nil. Close ends a Shutdown at once.
func (s *Semaphore) Shutdown(ctx context.Context) error {
	s.made()
	err := s.loop.Refuse(ctx)
	return cmp.Or(err, s.close(ctx))
}

// close is Close. Once ctx has ended, it has a moment for a last call.
func (s *Semaphore) close(ctx context.Context) error {
	s.made()
	if s.adapt != nil {
		defer s.adapt.close(ctx)()
	}
	return s.loop.Close(ctx, func(now time.Duration) {
		var held []*client.Acquisition
		m := s.loop.Machine
		m.EachPermit(func(a *client.Acquisition) { held = append(held, a) })
		for _, a := range held {
			a.Owner.(*holding).end(named(errLetGo, s.name))
			if s.options.Detached {
				m.Forget(a)
				continue
			}
			m.Release(now, a).Abandon()
		}
	})
}

// Unused reports whether nobody in this process waits for a permit, or has one, and for how long. While the engine is still
// to be told of a RetryAfter it is in use.
func (s *Semaphore) Unused() (long time.Duration, unused bool) {
	s.made()
	l := &s.loop
	l.Lock()
	defer l.Unlock()
	return l.Now() - s.used, l.Machine.Unused() && !l.Machine.Cooling()
}

// takeUp gives back the permits that the garbage collector found.
func (s *Semaphore) takeUp(now time.Duration) {
	for _, h := range s.abandoned {
		h.giveUp(now)
	}
	s.abandoned = nil
}

// watch makes the garbage collector look for abandoned permits.
func (s *Semaphore) watch(time.Duration) {
	s.loop.Machine.EachPermit(func(a *client.Acquisition) { a.Owner.(*holding).watch() })
}
