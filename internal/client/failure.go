// What becomes of calls that had no answer: a lost reply, an engine that is away or refuses.

package client

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sema/engine"
)

const (
	// patience is how long a request is repeated for a caller that has not been told that
	// it waits.
	patience = 3 * time.Second

	// The pause after a failed call, which doubles with each further one.
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond

	// quiet is how long an engine is silent before it is asked for a sign of life, and
	// ProbeTime how long that takes at the most. Together they are little more than patience.
	quiet     = patience / 2
	ProbeTime = 2 * time.Second
)

// outage is a row of calls that had no answer.
type outage struct {
	failures int
	began    time.Duration // when the first of them left
	paused   time.Duration // nothing is sent before
	err      error         // of the last one
	final    time.Duration // when the last one was refused for good; 0: it was not
	refused  bool          // the last one was refused, so the engine is not just busy
}

// life is what is known of an engine that is silent: it may be busy. A busy engine is waited
// for as a queue is.
type life struct {
	seen    time.Duration // the last sign of life
	none    time.Duration // since when a probe has found none; it counts if it is later than seen
	probing bool
	wants   bool // a probe is to begin
}

// errNoAnswer is the failure of a call that is still on its way.
var errNoAnswer = &engine.Error{Op: "step", Temporary: true, Err: fmt.Errorf("no answer for %v", patience)}

// Failed takes in that the call in flight had no answer. What it was about is sent
// again, if that is still wanted, and the failure is still tolerated.
func (m *Machine) Failed(now time.Duration, err error) {
	var failure *engine.Error
	if !errors.As(err, &failure) {
		failure = &engine.Error{Op: "step", Err: err}
	}
	f, o := &m.sender.flight, &m.sender.outage
	f.flying, f.fence = false, f.fence || !failure.NotExecuted
	if o.failures == 0 {
		o.began = f.sent
	}
	o.failures++
	o.final, o.refused = 0, !failure.Busy
	if !failure.Temporary {
		o.final = now
	}
	o.paused, o.err = now+Pause(o.failures), failure
	m.schedule(o.paused)
	m.sender.probe(now)
	orders, fresh := m.sender.orders, m.claims.fresh
	m.sender.orders, m.claims.fresh = nil, nil
	for i, it := range f.items {
		switch {
		case it.order != nil:
			it.order.unsure = it.order.unsure || !failure.NotExecuted
			if m.sender.toleratesOrder(now, it.order, failure, !failure.Temporary) {
				m.sender.orders = append(m.sender.orders, it.order)
			}
		default:
			it.claim.moved = it.claim.moved || f.requests[i].Anew
			m.claims.moved = m.claims.moved || it.claim.moved
			it.claim.unsure = it.claim.unsure || !failure.NotExecuted
			m.claims.back(it.claim)
			m.sender.sendAgain(now, it.claim, failure)
		}
	}
	clear(f.items)
	if !failure.NotExecuted { // the reply that got lost may have told of grants
		m.sender.askAll()
	}
	m.sender.orders, m.claims.fresh = append(m.sender.orders, orders...), append(m.claims.fresh, fresh...)
	m.sender.expireFailed(now, failure)
}

// sendAgain has a claim of the call that failed in the next one.
func (s *sender) sendAgain(now time.Duration, c *claim, failure *engine.Error) {
	if c.stage == ended || !s.tolerates(now, c, failure, !failure.Temporary) {
		return
	}
	s.claims.again(c)
	if a := c.holder; a != nil {
		s.tell(Event{Kind: AskFailed, A: a, Err: failure})
	}
}

// expireFailed applies the time limits of a failing engine to all requests that wait to be sent. Those
// that did not fit into the last call are among them.
func (s *sender) expireFailed(now time.Duration, failure *engine.Error) {
	for _, o := range s.orders {
		s.toleratesOrder(now, o, failure, false)
	}
	for _, c := range s.claims.unsent() {
		s.tolerates(now, c, failure, false)
	}
	s.claims.forgetAnswered()
	s.lines.refuseLines(Event{Reason: EngineFailed, Err: failure}, func(a *Acquisition) bool { return s.failedFor(now, a.came) >= s.tolerance(a, s.cfg.Lease, failure) })
}

// expect notes that somebody has come who waits for an answer. If the engine has refused a call for good, it may accept
// what this caller wants: so the pause until the next call becomes a short one.
func (s *sender) expect(now time.Duration) {
	if o := &s.outage; o.final != 0 {
		o.paused = min(o.paused, o.final+minPause)
		s.schedule(o.paused)
	}
	if s.flight.flying {
		s.schedule(now + quiet)
	}
}

// overdue ends what has waited for long enough for the call in flight: its carrier
// may wait for longer than those whom it is about.
func (s *sender) overdue(now time.Duration) {
	f := &s.flight
	if !f.flying {
		return
	}
	if !slices.ContainsFunc(f.items, item.awaited) && !s.claims.waits() && len(s.lines.busy()) == 0 && len(s.orders) == 0 {
		return
	}
	switch since := s.silentSince(); {
	case now < since+quiet:
		s.schedule(since + quiet)
		return
	case now < since+patience:
		s.probe(now)
		s.schedule(since + patience)
		return
	}
	s.probe(now)
	s.schedule(now + maxPause)
	s.outage.began = s.silentSince()
	failure := s.failure()
	for _, it := range f.items {
		if it.order != nil {
			s.toleratesOrder(now, it.order, failure, false)
		} else {
			s.tolerates(now, it.claim, failure, false)
		}
	}
	s.expireFailed(now, failure)
}

// failure is how the last call failed. A call on its way counts as one without an answer.
func (s *sender) failure() *engine.Error {
	failure := errNoAnswer
	errors.As(s.outage.err, &failure)
	return failure
}

// away reports whether the last call did not reach the engine, or none has been answered for
// three seconds.
func (s *sender) away(now time.Duration) bool {
	if !s.flight.flying && s.outage.failures == 0 {
		return false
	}
	return s.outage.failures > 0 && s.failure().NotExecuted || now >= s.silentSince()+patience
}

// silentSince is when the first call left that the engine has not answered, or when the
// engine gave another sign of life since.
func (s *sender) silentSince() time.Duration {
	if s.outage.failures > 0 {
		return max(s.outage.began, s.life.seen)
	}
	return max(s.flight.sent, s.life.seen)
}

// failedFor is for how long calls have failed since something came. An engine may just be busy, unless it refuses calls. Then the result
// stays below patience, and all go on waiting, until a probe has found no sign of life.
func (s *sender) failedFor(now, came time.Duration) time.Duration {
	since := max(s.outage.began, s.life.seen)
	d := now - max(came, since)
	if s.cfg.Probes && !s.outage.refused && s.life.none <= since {
		return min(d, patience-1)
	}
	return d
}

// probe wants a probe if the engine has been silent for some time, and since the last one.
func (s *sender) probe(now time.Duration) {
	v := &s.life
	v.wants = s.cfg.Probes && !v.probing && !s.outage.refused && now >= max(s.silentSince(), v.none)+quiet
}

// Probe reports whether the owner is to ask the engine for a sign of life, and to call Probed
// with the result.
func (m *Machine) Probe() bool {
	wants := m.sender.life.wants
	m.sender.life.wants, m.sender.life.probing = false, m.sender.life.probing || wants
	return wants
}

// Probed takes in whether the engine lives.
func (m *Machine) Probed(now time.Duration, lives bool) {
	m.sender.life.probing = false
	if lives {
		m.sender.life.seen = now
	} else {
		m.sender.life.none = now
	}
	if m.sender.overdue(now); !m.sender.flight.flying && m.sender.outage.failures > 0 {
		m.sender.expireFailed(now, m.sender.failure())
	}
}

// tolerance is how long a failure is tolerated for a caller: three seconds if the caller has had
// no answer, and a lease if it was told that it waits. A patient caller that is willing to
// wait tolerates an engine that is away for as long as its context lasts, with a place or
// without one.
func (s *sender) tolerance(a *Acquisition, lease time.Duration, failure *engine.Error) time.Duration {
	switch {
	case a != nil && s.cfg.Patient && failure.Temporary && (a.state == Waiting || a.state == Asking && a.wait):
		return never
	case a != nil && a.state == Asking:
		return patience
	}
	return lease
}

// tolerates reports whether a claim outlives the failure of calls, and ends it if not.
// A permit that a caller has ends with its time, and not before. final says that
// the engine refused the claim itself, and would again.
func (s *sender) tolerates(now time.Duration, c *claim, failure *engine.Error, final bool) bool {
	a := c.holder
	switch {
	case c.stage == ended || c.stage == held:
		return true
	case final && (c.stage == unproven || c.stage == wished && a != nil && a.state == Asking):
	case s.failedFor(now, c.cameAt()) >= s.tolerance(a, s.terms(c).Lease, failure):
	default:
		return true
	}
	s.refuse(c, Event{Reason: EngineFailed, Err: failure}, !c.resumed && c.touched())
	return false
}

// toleratesOrder reports whether an order is to be sent again, and tells its owner when
// it need not wait any longer.
func (s *sender) toleratesOrder(now time.Duration, o *Order, failure *engine.Error, final bool) bool {
	over := final || s.failedFor(now, o.came) >= patience
	if over {
		s.answer(o, Event{Err: failure})
	}
	if errors.Is(failure, engine.ErrClosed) || s.closed && final {
		return false // it would be refused again, and somebody waits for the end
	}
	return o.owed || !over && !o.told
}

// Patience is how long a read is repeated: as long as a request for a caller without an answer.
const Patience = patience

// Pause is the pause after so many failed reads in a row.
func Pause(failures int) time.Duration { return min(minPause<<min(failures-1, 10), maxPause) }
