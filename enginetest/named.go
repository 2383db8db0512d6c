package enginetest

import (
	"context"
	"slices"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// caller is a session that asks for permits by name, as each of several servers does
// for callers that name theirs. It is a client of the store by itself.
type caller struct {
	protocol.Session
	e    *env
	news chan protocol.Notification
}

func (e *env) caller() *caller {
	e.Helper()
	c := &caller{e: e, news: make(chan protocol.Notification, 100)}
	var err error
	c.Session, err = e.store.Client(e).Open(e.name, engine.Client{Host: "server"}, func(n protocol.Notification) { c.news <- n })
	e.ok(err)
	e.Cleanup(func() { _ = c.Close() })
	return c
}

// Step also passes a reply's notification to news.
func (c *caller) Step(ctx context.Context, call protocol.Call) (protocol.Reply, error) {
	reply, err := c.Session.Step(ctx, call)
	if n := reply.Notification; !n.Empty() {
		c.news <- n
	}
	return reply, err
}

// grantedToTheSecond lets two sessions wait under one name. The session that
// asked last is told of the grant.
func (e *env) grantedToTheSecond() (a, b *caller, r protocol.Request) {
	e.Helper()
	holder, a, all, r := e.oneWaits()
	b = e.caller()
	b.ask(r, protocol.Queued)
	holder.do(protocol.Release, all, protocol.Done)
	b.hearsOfGrant(r)
	return a, b, r
}

// oneWaits lets a session wait for r while another one holds all.
func (e *env) oneWaits() (holder, waiter *caller, all, r protocol.Request) {
	e.Helper()
	holder, waiter, all, r = e.caller(), e.caller(), named(2), named(1)
	holder.ask(all, protocol.Granted)
	waiter.ask(r, protocol.Queued)
	return holder, waiter, all, r
}

// named is what to ask for under a new name.
func named(weight int) protocol.Request {
	return protocol.Request{
		Kind: protocol.Ask, ID: engine.ID{Client: "api", Number: numbers.Add(1), Weight: weight}, Limit: 2, Lease: long, Ticket: long / 2, Wait: true,
		Who: &engine.Client{Host: "h", Label: "l", Caller: "job 7", Lease: steps},
	}
}

// again is what asks for r again, after so long.
func again(r protocol.Request, waited time.Duration) protocol.Request {
	r.Again, r.Waited = true, waited
	return r
}

func (c *caller) ask(r protocol.Request, want protocol.Status) protocol.Answer {
	c.e.Helper()
	return c.e.ask(c, r, want)
}

func (c *caller) do(kind protocol.Kind, r protocol.Request, want protocol.Status) {
	c.e.Helper()
	c.e.do(c, kind, r, want)
}

// mine gives back what r asked for if c asked last.
func (c *caller) mine(r protocol.Request, want protocol.Status) {
	c.e.Helper()
	r.Mine = true
	c.do(protocol.Release, r, want)
}

// hears waits until c is told so.
func (c *caller) hears(what string, told func(protocol.Notification) bool) {
	c.e.Helper()
	for {
		select {
		case n := <-c.news:
			if told(n) {
				return
			}
		case <-c.e.ctx().Done():
			c.e.Fatalf("was not told %s", what)
		}
	}
}

func (c *caller) hearsOfGrant(r protocol.Request) {
	c.e.Helper()
	c.hears("of the grant", func(n protocol.Notification) bool {
		return slices.ContainsFunc(n.Grants, func(g protocol.Grant) bool { return g.ID == r.ID })
	})
}

func (c *caller) hearsToRenew() {
	c.e.Helper()
	c.hears("to renew", func(n protocol.Notification) bool { return n.Renew })
}

var namedTests = []test{
	{name: "one name is one permit, whoever asks", run: func(e *env) {
		a, b := e.caller(), e.caller()
		r := named(1)
		first := a.ask(r, protocol.Granted)
		if second := b.ask(r, protocol.Granted); second.Token != first.Token {
			e.broken("tokens %d and %d under one name", first.Token, second.Token)
		}
		if st, err := a.State(e.ctx()); err != nil || st.Used != 1 {
			e.broken("%d held under one name, %v", st.Used, err)
		}
		b.do(protocol.Release, r, protocol.Done)
		a.do(protocol.Renew, r, protocol.Gone)
	}},
	{name: "one name is one place in the queue", run: func(e *env) {
		a, b := e.caller(), e.caller()
		all, r := named(2), named(1)
		a.ask(all, protocol.Granted)
		a.ask(r, protocol.Queued)
		b.ask(r, protocol.Queued)
		if st, err := a.State(e.ctx()); err != nil || len(st.Waiters) != 1 {
			e.Fatalf("%+v wait under one name, %v", st.Waiters, err)
		}
	}},
	{name: "another weight is another permit", run: func(e *env) {
		a := e.caller()
		r := named(1)
		heavy := r
		heavy.ID.Weight = 2
		a.ask(r, protocol.Granted)
		a.ask(heavy, protocol.Queued)
		a.do(protocol.Release, r, protocol.Done)
		a.hearsOfGrant(heavy)
	}},
	{name: "a place outlives the session that asked for it", run: func(e *env) {
		holder, a, b, c := e.caller(), e.caller(), e.caller(), e.caller()
		all, r, behind := named(2), named(2), named(2)
		holder.ask(all, protocol.Granted)
		a.ask(r, protocol.Queued)
		came := time.Now()
		e.pass(func() time.Time { return came.Add(500 * time.Millisecond) }) // more than an ask takes
		c.ask(behind, protocol.Queued)
		e.ok(a.Close())
		if got := b.ask(again(r, time.Since(came)), protocol.Queued); got.Ahead != 0 {
			e.Fatalf("%d are ahead", got.Ahead)
		}
		b.ask(r, protocol.Queued)
		holder.do(protocol.Release, all, protocol.Done)
		b.hearsOfGrant(r)
		b.do(protocol.Release, r, protocol.Done) // whosever it is: a may be reached a moment longer
		c.hearsOfGrant(behind)
	}},
	{name: "a server that asked before does not give back what another asked for since", run: func(e *env) {
		a, b := e.caller(), e.caller()
		r := named(1)
		a.ask(r, protocol.Granted)
		b.ask(r, protocol.Granted)
		a.mine(r, protocol.Gone)
		b.do(protocol.Renew, r, protocol.Granted)
		b.mine(r, protocol.Done)
		b.mine(r, protocol.Gone)
	}},
	{name: "nor does it leave the queue for it when it ends", run: func(e *env) {
		a, b := e.caller(), e.caller()
		all, r := named(2), named(1)
		a.ask(all, protocol.Granted)
		a.ask(r, protocol.Queued)
		b.ask(r, protocol.Queued)
		e.ok(a.Close())
		b.do(protocol.Release, all, protocol.Done)
		b.hearsOfGrant(r)
	}},
	{name: "a release that is repeated does not give back a later grant", run: func(e *env) {
		a, b := e.caller(), e.caller()
		r := named(1)
		first := a.ask(r, protocol.Granted)
		late := r
		late.Token = first.Token
		a.do(protocol.Release, late, protocol.Done)
		second := b.ask(r, protocol.Granted)
		a.do(protocol.Release, late, protocol.Gone)
		b.do(protocol.Renew, r, protocol.Granted)
		late.Token = second.Token
		b.do(protocol.Release, late, protocol.Done)
	}},
	{name: "a revocation reaches the last to ask", run: func(e *env) {
		a, b, r := e.grantedToTheSecond()
		operator := e.caller()
		permit := r
		permit.Wait = false
		operator.do(protocol.Revoke, permit, protocol.Done)
		b.hearsToRenew()
		b.do(protocol.Renew, r, protocol.Revoked)
		a.ask(r, protocol.Revoked)
		described(e, b, r, true)
		operator.do(protocol.Release, r, protocol.Done)
		a.hearsToRenew()
	}},
	{name: "a release by another reaches the last to ask", run: func(e *env) {
		_, b, r := e.grantedToTheSecond()
		operator := e.caller()
		operator.do(protocol.Release, r, protocol.Done)
		b.hearsToRenew()
	}},
	{name: "asking again takes a name over from nobody that lives", run: func(e *env) {
		holder, a, all, r := e.oneWaits()
		b := e.caller()
		b.ask(again(r, 0), protocol.Queued)
		b.mine(r, protocol.Gone)
		holder.do(protocol.Release, all, protocol.Done)
		a.hearsOfGrant(r)
		b.ask(again(r, 0), protocol.Granted)
		b.mine(r, protocol.Gone)
		a.mine(r, protocol.Done)
	}},
	{name: "a session that renews what it found is the one that may give it back", run: func(e *env) {
		holder, a, all, r := e.oneWaits()
		b := e.caller()
		holder.do(protocol.Release, all, protocol.Done)
		a.hearsOfGrant(r)
		b.ask(again(r, 0), protocol.Granted)
		b.do(protocol.Renew, r, protocol.Granted)
		b.mine(r, protocol.Gone)
		mine := r
		mine.Mine = true
		b.do(protocol.Renew, mine, protocol.Granted)
		a.mine(r, protocol.Gone)
		b.do(protocol.Renew, r, protocol.Granted)
		b.mine(r, protocol.Done)
	}},
	{name: "a session that gets the permit in its own step is the one that may give it back", run: func(e *env) {
		holder, a, all, r := e.oneWaits()
		release := all
		release.Kind = protocol.Release
		reply, err := holder.Step(e.ctx(), protocol.Call{Number: numbers.Add(1), Requests: []protocol.Request{release, again(r, 0)}})
		e.ok(err)
		if reply.Answers[1].Status != protocol.Granted {
			e.Fatalf("%+v", reply.Answers)
		}
		a.mine(r, protocol.Gone)
		holder.mine(r, protocol.Done)
	}},
	{name: "what another session asks for as well is left to that one", run: func(e *env) {
		holder, a, all, r := e.oneWaits()
		b, c := e.caller(), e.caller()
		b.ask(again(r, 0), protocol.Queued)
		a.mine(r, protocol.Gone)
		b.hears("to ask again", func(n protocol.Notification) bool { return n.Ask })
		holder.do(protocol.Release, all, protocol.Done)
		b.hearsOfGrant(r)
		c.ask(again(r, 0), protocol.Granted)
		a.ask(again(r, 0), protocol.Granted)
		b.mine(r, protocol.Gone)
		c.mine(r, protocol.Gone)
		b.do(protocol.Renew, r, protocol.Granted)
		a.mine(r, protocol.Done)
		b.do(protocol.Renew, r, protocol.Gone)
	}},
	{name: "asking again takes a name over from a session that ended", run: func(e *env) {
		b, a, _, r := e.oneWaits()
		e.ok(a.Close())
		r.Mine = true
		e.until(func() bool { // a may be reached a moment longer
			r.Kind = protocol.Ask
			b.ask(again(r, 0), protocol.Queued)
			r.Kind = protocol.Release
			got, err := step(e.ctx(), b, r)
			e.ok(err)
			return got.Status == protocol.Done
		})
	}},
	{name: "a permit is left to a session that cannot be notified, and may hold it", run: func(e *env) {
		a, b, r := e.caller(), e.caller(), named(1)
		a.ask(r, protocol.Granted)
		e.ok(a.Close())
		b.ask(r, protocol.Granted) // a late copy of an ask, say, whose caller is a's by now
		b.mine(r, protocol.Gone)
		b.do(protocol.Renew, r, protocol.Granted) // it is there still
	}},
	{name: "a key is kept, or refused", run: func(e *env) {
		a, r := e.caller(), named(1)
		r.Key = "acme"
		got, err := step(e.ctx(), a, r)
		e.ok(err)
		st := e.state(a)
		if got.Status != protocol.Granted || len(st.Holders) != 1 || st.Holders[0].Key != "acme" {
			e.Errorf("%v; %+v", got.Status, st)
		}
	}},
	{name: "State says who it is for", run: func(e *env) {
		a, b := e.caller(), e.caller()
		all, r := named(2), named(1)
		a.ask(all, protocol.Granted)
		a.ask(r, protocol.Queued)
		described(e, b, all, false)
		described(e, b, r, false)
		r.Who = &engine.Client{Host: "other", PID: 3, Caller: "a \"job\" ü", Lease: time.Millisecond}
		b.ask(again(r, 0), protocol.Queued)
		described(e, a, r, false)
		b.do(protocol.Release, all, protocol.Done)
		a.hearsOfGrant(r)
		described(e, b, r, false)
		b.do(protocol.Renew, r, protocol.Granted)
		described(e, b, r, false)
		r.Who = &engine.Client{}
		b.ask(r, protocol.Granted)
		described(e, b, r, false)
	}},
}

// described checks who State says that r is for.
func described(e *env, s protocol.Session, r protocol.Request, revoked bool) {
	e.Helper()
	st := e.state(s)
	for _, h := range st.Holders {
		if h.ID == r.ID.String() {
			if h.Client != *r.Who || h.Revoked != revoked {
				e.Errorf("holder %+v, want %+v", h, *r.Who)
			}
			return
		}
	}
	if !slices.ContainsFunc(st.Waiters, func(w engine.Waiter) bool { return w.ID == r.ID.String() && w.Client == *r.Who }) {
		e.Errorf("%v is not in %+v", r, st)
	}
}
