package enginetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/protocol"
)

// kept are options for keeping released permits as long as possible, if the
// engine allows it.
var kept = &sema.Options{Lease: long, Keep: long / 6}

// The tests of permits that are kept and passed on hold whether or not the
// engine has any of that: they are about what everybody else may rely on.
var keepTests = []test{
	{name: "a newcomer gets what another client keeps", run: func(e *env) {
		s := e.sem(2, kept)
		for range 3 {
			a, b := e.acquire(s, 1), e.acquire(s, 1)
			e.release(a, b)
		}
		e.release(e.acquire(e.sem(2, nil), 2))
	}},
	{name: "a newcomer who does not wait gets it too", run: func(e *env) {
		s, newcomer := e.sem(1, kept), e.sem(1, nil)
		for range 10 {
			e.release(e.acquire(s, 1))
			p, err := newcomer.TryAcquire(e.ctx())
			e.ok(err)
			e.release(e.keep(p))
		}
	}},
	{name: "what is kept goes back by itself", run: func(e *env) {
		s := e.sem(1, &sema.Options{Keep: 5 * time.Millisecond})
		e.release(e.acquire(s, 1))
		e.until(func() bool { return e.state(s).Used == 0 })
	}},
	{name: "Close gives back what is kept", run: func(e *env) {
		s := e.sem(3, kept)
		a, b := e.acquire(s, 1), e.acquire(s, 2)
		e.release(a, b)
		e.ok(s.Close())
		e.empty(e.sem(3, nil), 3)
	}},
	{name: "a heavier caller gets what its own client keeps", run: func(e *env) {
		s := e.sem(3, kept)
		a, b := e.acquire(s, 1), e.acquire(s, 1)
		e.release(a, b)
		p, err := s.Acquire(e.ctx(), sema.Weight(3))
		e.ok(err)
		e.release(p)
	}},
	{name: "a caller of another weight gets what is kept in portions", run: func(e *env) {
		s := e.sem(4, kept)
		var all []*permit
		for range 4 {
			all = append(all, e.acquire(s, 1))
		}
		e.release(all...)
		heavy := e.acquire(s, 3)
		e.release(heavy)
		e.release(e.acquire(s, 4))
	}},
	{name: "tokens grow from caller to caller and from client to client", run: func(e *env) {
		a, b := e.sem(1, kept), e.sem(1, kept)
		last := int64(0)
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, s := range []*semaphore{a, a, a, b, b, b} {
			all.Go(func() {
				e.turns(50, s, func(p *permit) {
					mu.Lock()
					if p.Token() <= last {
						e.Errorf("token %d after %d", p.Token(), last)
					}
					last = p.Token()
					mu.Unlock()
				})
			})
		}
		all.Wait()
	}},
	{name: "a revoked permit is not passed on", run: func(e *env) {
		s, p := e.held(1, &sema.Options{Lease: steps, Keep: steps / 6}, 1)
		w := e.queue(s, 1)
		e.ok(e.operator().Revoke(e.ctx(), p.ID()))
		<-p.Context(e.ctx()).Done()
		e.is(p.Release(), sema.ErrRevoked)
		next := e.permit(w)
		if next.ID() == p.ID() {
			e.Fatalf("%s went on to the next caller", p.ID())
		}
		e.release(next)
	}},
	{name: "a permit that an operator gave back is not given out again", run: func(e *env) {
		s := e.sem(1, &sema.Options{Lease: steps, Keep: steps / 6}) // without a notification it learns that from a renewal
		p := e.acquire(s, 1)
		id := p.ID()
		e.ok(e.operator().Release(e.ctx(), id))
		<-p.Context(e.ctx()).Done()
		next := e.acquire(s, 1)
		if next.ID() == id {
			e.Fatalf("%s is given out again", id)
		}
		e.release(next)
	}},
	{name: "a pause stops what is kept and passed on", run: func(e *env) {
		s, operator := e.sem(1, kept), e.operator()
		e.release(e.acquire(s, 1))
		e.ok(operator.Pause(e.ctx()))
		e.until(func() bool { return e.state(s).Used == 0 })
		w := e.queue(s, 1)
		e.waits(w)
		e.busy(s)
		if !e.state(s).Paused {
			e.Fatal("not paused")
		}
		e.ok(operator.Unpause(e.ctx()))
		e.release(e.permit(w))
		e.ok(s.Close()) // which may keep it again
		e.is(operator.Remove(e.ctx()), nil)
		e.is(operator.Unpause(e.ctx()), sema.ErrNotFound)
	}},
	{name: "holders stay through a pause", run: func(e *env) {
		p := e.acquire(e.sem(1, &sema.Options{Lease: steps}), 1)
		e.ok(e.operator().Pause(e.ctx()))
		before := p.Deadline()
		e.until(func() bool { return p.Deadline().After(before) })
		e.release(p)
		e.ok(e.operator().Unpause(e.ctx()))
	}},
	{name: "a cooldown stops all grants, and ends by itself", run: func(e *env) {
		s, operator := e.sem(2, kept), e.operator()
		p, other := e.acquire(s, 1, sema.Label("the one")), e.acquire(s, 1)
		p.RetryAfter(time.Hour)
		p.RetryAfter(time.Second) // shortens nothing
		other.RetryAfter(0)
		e.release(other)
		e.until(func() bool { return e.state(s).Cooldown != nil })
		if c := e.state(s).Cooldown; c.By.Label != "the one" || c.Left > engine.MaxCooldown || c.Left < engine.MaxCooldown-time.Minute {
			e.Errorf("%+v", c)
		}
		w := e.queue(s, 1)
		e.waits(w)
		e.busy(s)
		e.ok(operator.Unpause(e.ctx()))
		next := e.permit(w)
		next.RetryAfter(100 * time.Millisecond)
		e.release(next, p) // nobody holds any
		e.release(e.acquire(s, 2))
		if c := e.state(s).Cooldown; c != nil {
			e.Errorf("granted, and %+v", c)
		}
	}},
	{name: "a pause outlives idleness", run: func(e *env) {
		operator := e.operator()
		e.release(e.acquire(e.sem(1, nil), 1))
		e.ok(operator.Pause(e.ctx()))
		if st := e.state(e.sem(7, nil)); !st.Paused || st.Limit != 1 {
			e.Fatalf("%+v", st)
		}
		e.ok(operator.Unpause(e.ctx()))
	}},
	{name: "a smaller limit holds for what is kept", run: func(e *env) {
		s, other := e.sem(3, kept), e.sem(3, nil)
		var all []*permit
		for range 3 {
			all = append(all, e.acquire(s, 1))
		}
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 1}))
		e.release(all...)
		e.until(func() bool { return e.state(other).Used <= 1 })
		e.release(e.acquire(other, 1))
	}},
	{name: "a process with many waiters queues few tickets", run: func(e *env) {
		const limit, waiters = 3, 100
		s, heavy := e.held(limit, nil, limit)
		var all []*waiter
		for range waiters {
			all = append(all, e.start(s, 1))
		}
		e.until(func() bool { return e.state(s).Waiting() == waiters })
		if n := len(e.state(s).Waiters); n > 2*limit {
			e.Fatalf("%d tickets, limit %d", n, limit)
		}
		e.release(heavy)
		var served sync.WaitGroup
		for _, w := range all { // in whatever order they came
			served.Go(func() {
				p := <-w.got
				if p == nil {
					e.Errorf("waiting ended with %v", w.err)
				} else if err := p.Release(); err != nil {
					e.Error(err)
				}
			})
		}
		served.Wait()
		e.until(func() bool { return e.state(s).Waiting() == 0 })
		e.empty(s, limit)
	}},
	{name: "who is cut off while it passes permits on has stopped before anybody else has them", own: true, run: func(e *env) {
		const limit = 2
		h := &history.Holds{}
		line := &cutEngine{Engine: e.store.Client(e)}
		lost, o := e.semOn(line, limit, &sema.Options{Lease: short, Keep: short / 6}), &sema.Options{Lease: short}
		var stop atomic.Bool
		var all sync.WaitGroup
		use := func(s *semaphore, served func()) {
			for !stop.Load() {
				hold := history.Hold{Call: e.now(), Slot: -1, Weight: 1, Faulty: s == lost}
				p, err := s.Acquire(e.ctx())
				if err != nil {
					continue // it was cut off
				}
				hold.Return, hold.ID, hold.Token, hold.Trusted = e.now(), p.ID(), p.Token(), p.Deadline().UnixNano()
				time.Sleep(time.Millisecond)
				hold.Release = e.now()
				hold.Trusted = min(hold.Trusted, p.Deadline().UnixNano()) // it may have been lost meanwhile
				_ = p.Release()
				h.Add(hold)
				served()
			}
		}
		for range 4 {
			all.Go(func() { use(lost, func() {}) })
		}
		e.until(func() bool { return h.Len() > 20 })
		line.cut.Store(true)
		done := make(chan struct{}, 1000)
		for range 2 {
			s := e.sem(limit, o)
			all.Go(func() {
				use(s, func() {
					select {
					case done <- struct{}{}:
					default:
					}
				})
			})
		}
		for range 20 {
			<-done
		}
		line.cut.Store(false)
		before := h.Len()
		e.until(func() bool { return h.Len() > before+20 })
		stop.Store(true)
		all.Wait()
		e.judge(h, limit, short)
	}},
	{name: "a busy client overtakes nobody that waits", run: func(e *env) {
		busy, other := e.sem(1, nil), e.sem(1, nil)
		served, stop := e.keepBusy(busy, 6*time.Millisecond) // a message of a busy machine may take half a second, and a lost recall five
		defer stop()
		for range 20 {
			before := served.Load()
			e.until(func() bool { return served.Load() > before+10 }) // it is among itself again
			before = served.Load()
			p := e.acquire(other, 1)
			if n := served.Load() - before; n > 100 { // a message's delay, and not seconds
				e.Errorf("%d callers of another client were served first", n)
			}
			e.release(p)
		}
	}},
	{name: "a lowered cap is kept to by a process that is busy with its key alone", run: func(e *env) {
		o, s := e.operator(), e.sem(40, &sema.Options{Caps: sema.Caps{0, 4}})
		for range 3 { // twelve callers
			_, stop := e.keepBusy(s, time.Millisecond, path("acme/a"))
			defer stop()
		}
		holds := func(n int) {
			e.until(func() bool { return e.keyState(s, "acme/a").Held <= n })
			for range 20 {
				if held := e.keyState(s, "acme/a").Held; held > n {
					e.Fatalf("%d are held, and %d may be", held, n)
				}
			}
			e.until(func() bool { return e.keyState(s, "acme/a").Held == n })
		}
		holds(4)
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{0, 1}}))
		holds(1)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 3}, "acme", "a"))
		holds(3)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 2}, "acme"))
		holds(2)
	}},
	{name: "a client with hundreds of tickets knows that it is alone, until it is not", run: func(e *env) {
		alone := e.session()
		holds := request(alone, 1, long)
		e.ask(alone, holds, protocol.Granted)
		may := func(kind protocol.Kind, requests ...protocol.Request) bool {
			for i := range requests {
				requests[i].Kind, requests[i].Wait = kind, true
			}
			reply, err := alone.Step(e.ctx(), protocol.Call{Number: numbers.Add(1), Keep: long / 6, Requests: requests})
			e.ok(err)
			return reply.Keep
		}
		told := may(protocol.Renew, holds) // unless the engine cannot notify it yet
		for range 3 {
			var asks []protocol.Request
			for range 100 {
				asks = append(asks, request(alone, 1, long))
			}
			if !may(protocol.Ask, asks...) && told {
				e.Fatal("a client alone may not keep permits any more")
			}
		}
		other := e.session()
		waits := request(other, 1, long)
		waits.Wait = true
		e.ask(other, waits, protocol.Queued)
		if may(protocol.Renew, holds) {
			e.Error("a client may keep permits beside one that waits")
		}
	}},
}

// keepBusy has four callers take a semaphore again and again, each for so long, until
// stop is called. served is how often they have had it.
func (e *env) keepBusy(s *semaphore, hold time.Duration, options ...sema.AcquireOption) (served *atomic.Int64, stop func()) {
	served = &atomic.Int64{}
	var stopped atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stopped.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), expect.Patience) // e.ctx would be kept until the test ends
				p, err := s.Acquire(ctx, options...)
				cancel()
				if err != nil {
					e.Error(err)
					return
				}
				time.Sleep(hold)
				served.Add(1)
				_ = p.Release()
			}
		})
	}
	return served, func() { stopped.Store(true); all.Wait() }
}
