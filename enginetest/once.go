package enginetest

import (
	"time"

	"sema"
	"sema/internal/protocol"
)

var onceTests = []test{
	{name: "asking again gives the same permit", run: func(e *env) {
		// go-redis and Redisson #6517: the retry took a second permit.
		s := e.session()
		r := request(s, 2, long)
		a := e.ask(s, r, protocol.Granted)
		b := e.ask(s, r, protocol.Granted)
		if b.Token != a.Token {
			e.Errorf("the second token is %d, the first was %d", b.Token, a.Token)
		}
		st := e.state(s)
		if st.Used != 1 || len(st.Holders) != 1 {
			e.Fatalf("two permits under one name: %+v", st)
		}
	}},
	{name: "asking again keeps one ticket in its place", run: func(e *env) {
		s := e.session()
		e.ask(s, request(s, 1, long), protocol.Granted)
		r := request(s, 1, long)
		r.Wait = true
		a := e.ask(s, r, protocol.Queued)
		second := request(s, 1, long)
		second.Wait = true
		e.ask(s, second, protocol.Queued)
		time.Sleep(time.Millisecond) // a repeated ask moves the ticket's end by the time that has passed
		b := e.ask(s, r, protocol.Queued)
		if b.Ahead != 0 || b.Ticket <= a.Ticket {
			e.Fatalf("asked again: %+v, before: %+v", b, a)
		}
	}},
	{name: "a copy of an operator's call undoes nothing", run: func(e *env) {
		s, operator := e.session(), e.operator()
		for _, act := range []struct {
			request protocol.Request
			undo    func() error
			holds   func(sema.State) bool
		}{
			{protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pin: true}, func() error { return operator.Set(e.ctx(), sema.Rule{Limit: 10}) }, func(st sema.State) bool { return st.Limit == 10 }},
			{protocol.Request{Kind: protocol.Pause}, func() error { return operator.Unpause(e.ctx()) }, func(st sema.State) bool { return !st.Paused }},
			{protocol.Request{Kind: protocol.Cooldown, Lease: time.Minute}, func() error { return operator.Unpause(e.ctx()) }, func(st sema.State) bool { return st.Cooldown == nil }},
			{protocol.Request{Kind: protocol.UnsetLimit}, func() error { return operator.Set(e.ctx(), sema.Rule{Limit: 10}) }, func(st sema.State) bool { return st.Pinned }},
		} {
			call := protocol.Call{Number: numbers.Add(1), Requests: []protocol.Request{act.request}}
			_, err := s.Step(e.ctx(), call)
			e.ok(err)
			e.ok(act.undo())
			_, _ = s.Step(e.ctx(), call) // refused or passed over, as the engine likes
			st := e.state(s)
			if !act.holds(st) {
				e.Errorf("a copy of %v: %+v", act.request.Kind, st)
			}
		}
	}},
	{name: "a late copy of a call changes nothing", run: func(e *env) {
		s := e.session()
		e.ask(s, request(s, 1, long), protocol.Granted)
		r := request(s, 1, long)
		r.Kind, r.Limit = protocol.Ask, 2
		late := protocol.Call{Number: numbers.Add(1), Requests: []protocol.Request{r}}
		r.Kind = protocol.Release
		_, err := s.Step(e.ctx(), protocol.Call{Number: numbers.Add(1), Fence: true, Requests: []protocol.Request{r}})
		e.ok(err)
		_, _ = s.Step(e.ctx(), late) // refused or passed over, as the engine likes
		if st := e.state(s); st.Used != 1 {
			e.Errorf("the late copy was carried out: %+v", st)
		}
	}},
	{name: "renewing never revives", run: func(e *env) {
		// WeKnora #1986, Dask; node redis-semaphore #205.
		s := e.session()
		r := request(s, 1, long)
		e.ask(s, r, protocol.Granted)
		e.do(s, protocol.Renew, r, protocol.Granted)
		e.do(s, protocol.Release, r, protocol.Done)
		e.do(s, protocol.Renew, r, protocol.Gone)
		e.do(s, protocol.Renew, request(s, 1, long), protocol.Gone)
		st := e.state(s)
		if st.Used != 0 {
			e.Fatalf("revived: %+v", st)
		}
	}},
	{name: "releasing twice changes nothing and says so", atOnce: true, run: func(e *env) {
		// Redisson #5066, dv/redis-semaphore: it added permits.
		s, a := e.held(1, nil, 1)
		e.release(a)
		b := e.acquire(s, 1)
		e.is(a.Release(), sema.ErrReleased)
		e.is(a.Err(), sema.ErrReleased)
		e.is(e.operator().Release(e.ctx(), a.ID()), sema.ErrLost)
		e.busy(s)
		e.release(b)
		e.empty(s, 1)
	}},
	{name: "an acquisition whose answer is lost leaves nothing", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		s := e.semOn(line, 1, &sema.Options{Lease: long})
		line.forgets.Store(true)
		if p, err := s.Acquire(e.ctx()); err == nil {
			e.Fatalf("got %v without an answer", p)
		}
		line.forgets.Store(false)
		e.release(e.acquire(e.sem(1, nil), 1))
	}},
	{name: "a release whose answer is lost is repeated", atOnce: true, run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		s := e.semOn(line, 1, &sema.Options{Lease: long})
		p := e.acquire(s, 1)
		line.cut.Store(true)
		e.is(p.Release(), sema.ErrEngine)
		line.cut.Store(false)
		e.release(e.acquire(e.sem(1, nil), 1)) // long before that lease ends
	}},
	{name: "release does not need the acquisition's context", run: func(e *env) {
		// Six Go projects leaked the permit of a cancelled request.
		s := e.sem(1, nil)
		w := e.start(s, 1)
		p := e.permit(w)
		w.cancel()
		e.release(p)
		e.empty(s, 1)
	}},
}
