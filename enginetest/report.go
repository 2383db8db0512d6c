package enginetest

import (
	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// reporting is the session of somebody who reports; nil if the engine takes none.
func (e *env) reporting() (protocol.Session, protocol.Reporting) {
	s := e.caller().Session
	r, _ := s.(protocol.Reporting)
	return s, r
}

var reportTests = []test{
	{name: "reports are known to all, and only grow", run: func(e *env) {
		a, all := e.reporting()
		if all == nil {
			return // a further ability
		}
		b, _ := e.reporting()
		said := func(s protocol.Session, t protocol.Totals, want protocol.Status) {
			e.Helper()
			e.ask(s, protocol.Request{Kind: protocol.Report, Totals: &t}, want)
		}
		said(a, protocol.Totals{Good: 1}, protocol.Gone) // no semaphore yet
		p := e.acquire(e.sem(2, nil), 1)
		defer e.release(p)
		said(a, protocol.Totals{Good: 5_000_000_000, Bad: 20, Waited: 3}, protocol.Done)
		said(a, protocol.Totals{Good: 4_000_000_000, Bad: 30, Waited: 2}, protocol.Done) // late, or a copy
		said(b, protocol.Totals{Bad: 1}, protocol.Done)
		got, err := all.Reports(e.ctx())
		e.ok(err)
		bad, best := 0, protocol.Totals{}
		for _, t := range got.Totals {
			if t.Good > best.Good {
				best = t
			}
			if t == (protocol.Totals{Bad: 1}) {
				bad++
			}
		}
		if len(got.Totals) != 2 || bad != 1 || best != (protocol.Totals{Good: 5_000_000_000, Bad: 30, Waited: 3}) || got.Auto != (engine.Auto{}) {
			e.Errorf("%+v", got)
		}
	}},
	{name: "a controller's limit counts unless an operator's is pinned", run: func(e *env) {
		c, all := e.reporting()
		if all == nil {
			return
		}
		auto := protocol.Request{Kind: protocol.SetLimit, Limit: 7, Auto: &engine.Auto{Min: 2, Max: 9, Bad: 31}}
		e.ask(c, auto, protocol.Gone) // it creates none
		s, p := e.held(2, &sema.Options{OnConflict: sema.LimitStored}, 2)
		w := e.queue(s, 1)
		e.ask(c, auto, protocol.Done)
		e.release(e.permit(w)) // more is handed over at once
		e.release(p)
		e.limited(s, 7)
		got, err := all.Reports(e.ctx())
		e.ok(err)
		if got.Auto != *auto.Auto {
			e.Errorf("%+v", got.Auto)
		}
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 3}))
		e.ask(c, auto, protocol.Pinned)
		e.limited(s, 3)
		e.ok(e.operator().Unset(e.ctx()))
		e.ask(c, auto, protocol.Done)
		e.limited(s, 7)
	}},
}
