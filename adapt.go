package sema

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/adapt"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
)

// Adapt makes a semaphore find its limit by its holders' reports: as much as the
// resource behind it can take. A holder reports with Permit.Overloaded that its hold
// went badly. If a tenth of the time held went badly, the limit was a tenth too high.
// One of the processes decides, every two seconds. See docs/adaptive.md.
//
// The limit given to New is where it starts. An operator's limit holds in any case,
// until Operator.Unset.
type Adapt struct {
	// Min and Max are the range of the limit, 1 … engine.MaxLimit. Min is no less than the
	// heaviest weight that anybody acquires: beyond the limit that fails with a
	// *WeightError. Both 0: this process only reports, and others decide: see Semaphore.Decide.
	Min, Max int

	// Slow is how long a hold may last before it counts as gone badly, without
	// Permit.Overloaded: a latency goal. Default: 0, only what is marked.
	Slow time.Duration
}

// The semaphore of which the process that decides has the one permit.
const (
	controlSuffix = "/adapt"
	controlLease  = 5 * time.Second
)

// reportEvery is how far two reports of a process are apart.
const reportEvery = adapt.Window / 4

// validate says what nothing can adapt by.
func (a *Adapt) validate(name string, limit int) error {
	switch {
	case a == nil:
		return nil
	case a.Slow < 0:
		return &ArgumentError{What: "slow", Value: a.Slow, Want: "0, or how long a hold may last"}
	case a.Min == 0 && a.Max == 0:
		return nil
	case a.Min < 1 || a.Min > a.Max || a.Max > engine.MaxLimit:
		return &ArgumentError{What: "range of the limit", Value: fmt.Sprintf("%d…%d", a.Min, a.Max), Want: fmt.Sprintf("two limits of 1 … %d, the smaller one first", engine.MaxLimit)}
	case limit != 0 && (limit < a.Min || limit > a.Max):
		return &ArgumentError{What: "limit", Value: limit, Want: fmt.Sprintf("%d … %d, as Adapt says", a.Min, a.Max)}
	}
	return engine.ValidateName(name + controlSuffix)
}

// reportingOf is a session's ability to report.
func reportingOf(s protocol.Session, e Engine) (protocol.Reporting, error) {
	if r, ok := s.(protocol.Reporting); ok {
		return r, nil
	}
	return nil, &ArgumentError{What: "engine", Value: fmt.Sprintf("%T", e), Want: "one that takes reports, for a limit that adapts"}
}

// Overloaded says that the hold went badly, because what the semaphore limits had too
// much to do: it refused (429, 503), or did not answer in time. Call it before Release.
// It counts with Options.Adapt, and does nothing without. A failure that says
// nothing about load is none: leave it unmarked.
func (p *Permit) Overloaded() {
	l := &p.h.sem.loop
	l.Lock()
	defer l.Unlock()
	p.h.overloaded = true
}

// adapting is a Semaphore's part in finding the limit.
type adapting struct {
	sem     *Semaphore
	options Adapt
	reports protocol.Reporting
	leader  *Semaphore // of which the process that decides has the one permit; nil: others decide

	totals, reported protocol.Totals // guarded by the loop's lock

	begin sync.Once
	stop  context.CancelFunc
	ctx   context.Context
	all   sync.WaitGroup
}

// newAdapting gives a semaphore whose session is open its part, or closes it.
func (s *Semaphore) newAdapting(e Engine) error {
	o := *s.options.Adapt
	reports, err := reportingOf(s.loop.Session(), e)
	a := &adapting{sem: s, options: o, reports: reports}
	if err == nil && o.Max > 0 {
		a.leader, err = New(e, s.name+controlSuffix, 1, &Options{Lease: controlLease, Label: s.options.Label, OnConflict: LimitStored})
	}
	if err != nil {
		_ = s.Close()
		return err
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	s.adapt = a
	return nil
}

// start starts reporting and deciding, once. Nothing was acquired before.
func (a *adapting) start() {
	a.begin.Do(func() {
		if a.ctx.Err() != nil {
			return
		}
		a.all.Go(a.report)
		if a.leader != nil {
			a.all.Go(func() { a.decide(a.ctx) })
		}
	})
}

// ended counts a hold that is over. The loop's lock is held.
func (a *adapting) ended(h *holding, held time.Duration) {
	t := held.Microseconds() * int64(h.Acquisition.Weight())
	if h.overloaded || a.options.Slow > 0 && held > a.options.Slow {
		a.totals.Bad += t
	} else {
		a.totals.Good += t
	}
}

// report tells the engine how holds have gone, as often as that changes anything. What
// the engine did not hear the next report says again.
func (a *adapting) report() {
	l := &a.sem.loop
	last := &loop.Waiter{}
	last.Settle(nil)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		}
		l.Lock()
		if a.totals == a.reported && last.Err == nil || !last.Settled() || l.Closed() {
			l.Unlock()
			continue
		}
		last = a.tell()
	}
}

// tell tells the engine how holds have gone. It is called with the loop's lock held and
// returns without.
func (a *adapting) tell() *loop.Waiter {
	l, told, totals := &a.sem.loop, &loop.Waiter{}, a.totals
	a.reported = totals
	now := l.Now()
	l.Machine.Do(now, &client.Order{Owner: told}, protocol.Request{Kind: protocol.Report, Totals: &totals})
	l.Start(now)
	return told
}

// close ends both, and says how the last holds went, unless the engine is away. The answer is
// for the loop's Close to wait for. ended waits until nothing runs any more.
func (a *adapting) close(ctx context.Context) (ended func()) {
	a.stop()
	a.begin.Do(func() {})
	if a.leader != nil {
		a.all.Go(func() { _ = a.leader.close(ctx) })
	}
	l := &a.sem.loop
	l.Lock()
	if a.totals != a.reported && l.Machine.LastError() == nil && !l.Closed() {
		a.tell()
	} else {
		l.Unlock()
	}
	return a.all.Wait
}

// Decide finds the limit for holders that only report, in a process that never acquires: with Adapt an
// Acquire begins the same in the background. Of several processes one at a time decides. The error is
// an *ArgumentError if Adapt has no range, and else that of ctx when it ends, or ErrClosed.
func (s *Semaphore) Decide(ctx context.Context) error {
	s.made()
	a := s.adapt
	if a == nil || a.leader == nil {
		return &ArgumentError{What: "range of the limit", Value: "none", Want: "Options.Adapt with Min and Max"}
	}
	within, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(a.ctx, end)()
	a.decide(within)
	return cmp.Or(ctx.Err(), named(ErrClosed, s.name))
}

// decide decides about the limit while this process is the one that does, until ctx ends.
func (a *adapting) decide(ctx context.Context) {
	adapt.Host{
		Lead: func(ctx context.Context) (context.Context, func(), error) {
			p, err := a.leader.Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			return p.Context(ctx), func() { _ = p.Release() }, nil
		},
		Reports: a.reports.Reports,
		Set: func(ctx context.Context, limit int, word engine.Auto) bool {
			status, err := a.sem.loop.Ask(ctx, "adapt", protocol.Request{Kind: protocol.SetLimit, Limit: limit, Auto: &word})
			return err == nil && status == protocol.Done
		},
		Changed: func(from int, d adapt.Decision) {
			if f := a.sem.options.Observer.LimitChanged; f != nil {
				f(Event{Semaphore: a.sem.name, From: from, Limit: d.Limit, Bad: d.Bad, Why: d.Why})
			}
		},
	}.Run(ctx, a.options.Min, a.options.Max)
}
