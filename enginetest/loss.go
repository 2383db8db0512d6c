package enginetest

import (
	"context"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

var lossTests = []test{
	{name: "a holder that is cut off knows before the next one holds", run: func(e *env) {
		// rueidislock: the old holder's context ended 2 s after the new one got in.
		line := &cutEngine{Engine: e.store.Client(e)}
		holder := e.semOn(line, 1, &sema.Options{Lease: short})
		p := e.acquire(holder, 1)
		w := e.queue(e.sem(1, nil), 1)
		line.cut.Store(true)
		next := e.permit(w)
		if p.Context(e.ctx()).Err() == nil {
			e.broken("two holders trust their permits")
		}
		e.is(context.Cause(p.Context(e.ctx())), sema.ErrLost)
		e.is(p.Err(), sema.ErrLost)
		e.is(p.Release(), sema.ErrLost)
		e.release(next)
	}},
	{name: "a holder lives through outages shorter than its lease", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		failed := make(chan struct{}, 1000)
		s := e.semOn(line, 1, &sema.Options{Lease: steps, Observer: sema.Observer{
			RenewFailed: func(sema.Event) { failed <- struct{}{} },
		}})
		p := e.acquire(s, 1)
		for range 3 {
			line.cut.Store(true)
			e.until(func() bool { return len(failed) > 0 || p.Err() != nil })
			line.cut.Store(false)
			before := p.Deadline()
			e.until(func() bool { return p.Deadline().After(before) || p.Err() != nil })
			for len(failed) > 0 {
				<-failed
			}
		}
		e.ok(p.Err())
		e.release(p)
	}},
	{name: "renewal holds a permit for many leases", run: func(e *env) {
		const lease = steps / 3
		p := e.acquire(e.sem(1, &sema.Options{Lease: lease}), 1)
		first := p.Deadline()
		e.until(func() bool { return p.Deadline().After(first.Add(3*lease)) || p.Err() != nil })
		e.ok(p.Err())
		e.release(p)
	}},
	{name: "without renewal the permit ends with its lease", run: func(e *env) {
		p := e.acquire(e.sem(1, &sema.Options{Lease: 2 * engine.MinLease, Renew: sema.NoRenewal}), 1)
		w := e.queue(e.sem(1, nil), 1)
		e.lost(p, sema.ErrLost)
		e.release(e.permit(w))
		e.is(p.Renew(e.ctx()), sema.ErrLost)
	}},
	{name: "without renewal a permit that was waited for ends as well", run: func(e *env) {
		o := &sema.Options{Lease: short, Renew: sema.NoRenewal}
		gate := e.acquire(e.sem(1, nil), 1)
		w := e.queue(e.sem(1, o), 1)
		e.release(gate)
		p := e.permit(w)
		e.lost(p, sema.ErrLost)
	}},
	{name: "a hand-off that cannot be topped up is given back", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		gate := e.acquire(e.sem(1, nil), 1)
		w := e.queue(e.semOn(line, 1, &sema.Options{Lease: long, Renew: sema.NoRenewal}), 1)
		line.refuses.Store(true)
		e.release(gate)
		if p := <-w.got; p == nil { // else the store gave a whole lease at once
			e.is(w.err, sema.ErrEngine)
		} else {
			e.release(p)
		}
		line.refuses.Store(false)
		e.release(e.acquire(e.sem(1, nil), 1)) // long before that lease ends
	}},
	{name: "a lost permit whose release fails is given back all the same", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		s := e.semOn(line, 1, &sema.Options{Lease: long})
		p := e.acquire(s, 1)
		e.ok(e.operator().Revoke(e.ctx(), p.ID()))
		e.is(p.Renew(e.ctx()), sema.ErrRevoked)
		line.cut.Store(true)
		e.is(p.Release(), sema.ErrRevoked)
		line.cut.Store(false)
		e.release(e.acquire(e.sem(1, nil), 1))
	}},
	{name: "a paused holder reads as lost at its first look", run: func(e *env) {
		// The timer that ends the context has no chance to run before Err is
		// asked: the lease ends while this goroutine spins.
		p := e.acquire(e.sem(1, &sema.Options{Lease: engine.MinLease, Renew: sema.NoRenewal}), 1)
		e.pass(p.Deadline)
		if err, over := p.Err(), p.Context(e.ctx()).Err(); err == nil || over == nil {
			e.broken("trusted %v beyond its deadline: %v, %v", time.Since(p.Deadline()), err, over)
		}
	}},
	{name: "a permit removed from the store is lost at the next renewal", run: func(e *env) {
		p := e.acquire(e.sem(1, &sema.Options{Lease: short}), 1)
		e.ok(e.operator().Release(e.ctx(), p.ID()))
		e.lost(p, sema.ErrLost)
	}},
	{name: "a holder that waited for its permit hears at once that it is revoked", run: func(e *env) {
		o := &sema.Options{Lease: long} // renewed only after the test's patience
		gate := e.acquire(e.sem(1, nil), 1)
		w := e.queue(e.semOn(e.store.Client(e), 1, o), 1) // as another process, which listens
		e.release(gate)
		p := e.permit(w)
		work := p.Context(e.ctx())
		e.ok(e.operator().Revoke(e.ctx(), p.ID()))
		<-work.Done()
		e.is(context.Cause(work), sema.ErrRevoked)
		e.is(p.Release(), sema.ErrRevoked)
	}},
	{name: "a revoked permit counts until its holder lets go", run: func(e *env) {
		s, p := e.held(1, &sema.Options{Lease: steps}, 1)
		e.ok(e.operator().Revoke(e.ctx(), p.ID()))
		e.busy(s)
		e.lost(p, sema.ErrRevoked)
		e.is(p.Release(), sema.ErrLost)
		e.empty(s, 1)
		e.is(e.operator().Revoke(e.ctx(), p.ID()), sema.ErrLost)
	}},
	{name: "a waiter whose ticket is revoked leaves the queue, and a holder is no waiter", run: func(e *env) {
		s, p := e.held(1, &sema.Options{Lease: long}, 1)
		first := e.queue(e.semOn(e.store.Client(e), 1, &sema.Options{Lease: long}), 1)
		second := e.queue(e.semOn(e.store.Client(e), 1, &sema.Options{Lease: long}), 1)
		line := &cutEngine{Engine: e.store.Client(e)}
		o, err := sema.Operate(line, e.name)
		e.ok(err)
		e.Cleanup(func() { _ = o.Close() })
		line.mislays.Store(true) // so it is asked twice, and may have left meanwhile
		e.ok(o.RevokeTicket(e.ctx(), e.state(s).Waiters[0].ID))
		e.ends(first, sema.ErrRevoked)
		line.mislays.Store(true)
		e.is(o.RevokeTicket(e.ctx(), p.ID()), sema.ErrLost)
		e.release(p)
		e.release(e.permit(second))
		e.empty(s, 1)
	}},
	{name: "a store that freezes loses its holders in time", own: true, needs: freezing, run: func(e *env) {
		const margin = steps / 4
		p := e.acquire(e.sem(1, &sema.Options{Lease: steps, Margin: margin}), 1)
		e.store.Freeze()
		<-p.Context(e.ctx()).Done()
		if late := time.Since(p.Deadline()); late > margin {
			e.Errorf("told %v after the deadline: the lease may have ended", late)
		}
		e.is(p.Err(), sema.ErrLost)
		e.store.Thaw()
		waitFree(e, 1)
	}},
	{name: "a step that was given up reads none of its caller's memory", own: true, needs: freezing, run: func(e *env) {
		s := e.session()
		first, second, third := request(s, 3, long), request(s, 3, long), request(s, 3, long)
		call := protocol.Call{Number: numbers.Add(1), Requests: []protocol.Request{first}}
		ctx, cancel := context.WithTimeout(e.ctx(), short)
		defer cancel()
		e.store.Freeze()
		_, err := s.Step(ctx, call)
		call.Requests[0] = second
		e.store.Thaw()
		if err == nil {
			e.Fatal("a store that is frozen answered")
		}
		e.until(func() bool { // after which what was on its way has been carried out or never is
			a, err := step(e.ctx(), s, third)
			return err == nil && a.Status == protocol.Granted
		})
		st := e.state(s)
		for _, h := range st.Holders {
			if h.ID == second.ID.String() {
				e.broken("%v was granted, which was written where the step's request had been: %+v", h.ID, st)
			}
		}
	}},
	{name: "a store that forgets loses its holders at their renewal", own: true, needs: forgetting, run: func(e *env) {
		s, p := e.held(1, &sema.Options{Lease: steps}, 1)
		e.store.Forget(e)
		e.lost(p, sema.ErrLost)
		e.is(p.Release(), sema.ErrLost)
		e.empty(s, 1)
	}},
}
