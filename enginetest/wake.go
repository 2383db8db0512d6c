package enginetest

import (
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

var wakeTests = []test{
	{name: "a release wakes the head at once, long before it would ask again", run: func(e *env) {
		o := &sema.Options{Lease: long} // asks again only after the test's patience
		p := e.acquire(e.sem(1, o), 1)
		for range 20 {
			w := e.queue(e.sem(1, o), 1)
			e.release(p)
			p = e.permit(w)
		}
		e.release(p)
	}},
	{name: "weight that becomes free is handed to all it fits", run: func(e *env) {
		// Redisson #6664: a waiter for 1 slept beside a free permit.
		o := &sema.Options{Lease: long}
		p := e.acquire(e.sem(4, o), 4)
		var line []*waiter
		for range 4 {
			line = append(line, e.queue(e.sem(4, o), 1))
		}
		e.release(p)
		for _, w := range line {
			e.release(e.permit(w))
		}
	}},
	{name: "a cancelled head lets the next one in", run: func(e *env) {
		o := &sema.Options{Lease: long}
		p := e.acquire(e.sem(2, o), 1)
		heavy, light := e.queue(e.sem(2, o), 2), e.queue(e.sem(2, o), 1)
		heavy.cancel()
		e.release(e.permit(light), p)
	}},
	{name: "a lost message costs no more than the time until it asks again", run: func(e *env) {
		// Redisson #5762: a lost message hung a waiter for ever.
		line := &cutEngine{Engine: e.store.Client(e)}
		line.silenced.Store(true)
		p := e.acquire(e.sem(1, nil), 1)
		w := e.queue(e.semOn(line, 1, &sema.Options{Lease: steps}), 1)
		e.release(p)
		e.release(e.permit(w))
	}},
	{name: "a lost answer that told of a grant is made up for at once", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		o := &sema.Options{Lease: long} // asks again only after the test's patience
		s := e.semOn(line, 2, o)
		p := e.acquire(s, 2)
		other := e.queue(e.sem(2, o), 1) // so that s may not pass on what it has
		mine := e.queue(s, 1)
		line.mislays.Store(true)
		e.release(p)
		a, b := e.permit(mine), e.permit(other)
		e.release(a, b)
	}},
	{name: "the end of a lease wakes the head without anybody's call", run: func(e *env) {
		// dv/redis-semaphore: swept only on acquire, so idle waiters hung.
		dead := e.session()
		e.ask(dead, request(dead, 1, short), protocol.Granted)
		w := e.start(e.sem(1, &sema.Options{Lease: long}), 1)
		e.release(e.permit(w))
	}},
	{name: "the watch passes on when its keeper leaves", run: func(e *env) {
		o := &sema.Options{Lease: long}
		dead := e.session()
		e.ask(dead, request(dead, 1, 2*short), protocol.Granted)
		head := e.queue(e.sem(1, o), 1)
		tail := e.queue(e.sem(1, o), 1)
		tail.cancel()
		e.until(func() bool { return len(e.state(e.sem(1, o)).Waiters) < 2 })
		e.release(e.permit(head))
	}},
	{name: "a lease shorter than those before it is watched as well", run: func(e *env) {
		o := &sema.Options{Lease: long}
		p := e.acquire(e.sem(1, o), 1)
		// The head will hold for a short time and die; the next waits for it.
		dead := e.session()
		r := request(dead, 1, short)
		r.Wait, r.Ticket = true, steps
		e.ask(dead, r, protocol.Queued)
		w := e.queue(e.sem(1, o), 1)
		e.release(p)
		e.release(e.permit(w))
	}},
}

var deadTests = []test{
	{name: "a dead holder's permit comes back when its lease ends", run: func(e *env) {
		line := &cutEngine{Engine: e.store.Client(e)}
		p := e.acquire(e.semOn(line, 1, &sema.Options{Lease: short}), 1)
		line.cut.Store(true)
		w := e.queue(e.sem(1, nil), 1)
		e.release(e.permit(w))
		e.is(p.Err(), sema.ErrLost)
	}},
	{name: "a grant that nobody received comes back before a whole lease", run: func(e *env) {
		// Redisson #3730: an abandoned waiter later ate a permit.
		s, p := e.held(1, nil, 1)
		dead := e.session()
		r := request(dead, 1, long)
		r.Wait, r.Ticket = true, short
		e.ask(dead, r, protocol.Queued)
		w := e.queue(s, 1)
		e.release(p)
		e.release(e.permit(w)) // within the test's patience
	}},
	{name: "a waiter that fell silent is passed over", run: func(e *env) {
		s, p := e.held(1, nil, 1)
		dead := e.session()
		r := request(dead, 1, short)
		r.Wait, r.Ticket = true, engine.MinLease
		e.ask(dead, r, protocol.Queued)
		w := e.queue(s, 1)
		e.until(func() bool { return len(e.state(s).Waiters) == 1 })
		e.release(p)
		e.release(e.permit(w))
		e.do(dead, protocol.Renew, r, protocol.Gone)
	}},
	{name: "who was passed over and lives has its place back", run: func(e *env) {
		s, p := e.held(1, nil, 1)
		slow := e.session()
		r := request(slow, 1, short)
		r.Wait, r.Ticket, r.Waited = true, engine.MinLease, time.Second // longer than a step is on its way
		came := time.Now().Add(-r.Waited)
		e.ask(slow, r, protocol.Queued)
		w := e.queue(s, 1)
		e.until(func() bool { return len(e.state(s).Waiters) == 1 })
		r.Waited, r.Ticket = time.Since(came), long
		if again := e.ask(slow, r, protocol.Queued); again.Ahead != 0 {
			e.Fatalf("%d tickets ahead; it was first", again.Ahead)
		}
		e.do(slow, protocol.Release, r, protocol.Done)
		e.release(p)
		e.release(e.permit(w))
	}},
}
