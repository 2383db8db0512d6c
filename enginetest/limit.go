package enginetest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

var limitTests = []test{
	{name: "a limit that is only watched keeps nobody waiting, and then holds again", run: func(e *env) {
		s, operator := e.sem(2, pools("rpm=2/1h")), e.operator()
		all := []*permit{e.acquire(s, 2, sema.Take("rpm", 2))}
		w := e.queue(s, 1)
		e.ok(operator.Set(e.ctx(), sema.Rule{Observe: true}))
		all = append(all, e.permit(w))
		for n := range 5 {
			p, err := s.TryAcquire(e.ctx(), sema.Weight(n+1), sema.Take("rpm", 1))
			e.ok(err)
			if all = append(all, p); !p.WouldWait() || p.Slot() != -1 {
				e.Errorf("weight %d beside others, limit 2: would wait %v, slot %d", n+1, p.WouldWait(), p.Slot())
			}
		}
		st := e.state(s)
		if o := st.Observed; o == nil || *o != (engine.Observed{Grants: 6, WouldWait: 6, ForLimit: 6, Most: 18, Enough: 18}) || st.Limit != 2 || len(st.Holders) != 7 || st.Holders[0].WouldWait || !st.Holders[6].WouldWait {
			e.Fatalf("observed %+v of %+v", o, st)
		}
		inner, err := s.Acquire(all[1].Context(e.ctx()), sema.Weight(2))
		e.ok(err) // it waits for nobody, so not for itself
		e.release(append(all, inner)...)
		p := e.acquire(s, 1)
		if p.WouldWait() {
			e.Error("alone, and would wait")
		}
		e.ok(operator.Set(e.ctx(), sema.Rule{Limit: 1}))
		w = e.queue(s, 1)
		e.waits(w)
		if st := e.state(s); st.Observed != nil || e.poolState(s, "rpm").Used != 2 {
			e.Errorf("enforced, and %+v; of the rate %+v", st.Observed, e.poolState(s, "rpm"))
		}
		e.release(p)
		e.release(e.permit(w))
	}},
	{name: "a program only watches its limit until a newer one enforces it", run: func(e *env) {
		var would atomic.Int64
		s := e.sem(1, &sema.Options{Observe: true, MaxWaiting: 1, Observer: sema.Observer{Acquired: func(v sema.Event) {
			if v.WouldWait {
				would.Add(1)
			}
		}}})
		var all []*permit
		var line []*waiter
		for range 20 {
			line = append(line, e.start(s, 1))
		}
		for _, w := range line {
			all = append(all, e.permit(w))
		}
		if o := e.state(s).Observed; o == nil || *o != (engine.Observed{Grants: 20, WouldWait: 19, ForLimit: 19, Most: 20, Enough: 20}) || would.Load() != 19 {
			e.Errorf("observed %+v, and told of %d", o, would.Load())
		}
		newer := e.sem(1, nil)
		w := e.queue(newer, 1)
		e.release(all[1:]...)
		e.waits(w)
		e.release(all[0])
		if p := e.permit(w); p.WouldWait() || e.state(s).Observed != nil {
			e.Errorf("of a limit that holds: would wait %v, %+v", p.WouldWait(), e.state(s).Observed)
		}
	}},
	{name: "holds under a storm of clients and weights", run: func(e *env) {
		const limit, clients, rounds = 4, 8, 60
		var held, most atomic.Int64
		var all sync.WaitGroup
		for range clients {
			s := e.sem(limit, nil)
			all.Go(func() {
				for i := range rounds {
					n := 1 + rand.IntN(limit)
					var p *permit
					var err error
					if i%3 == 0 {
						p, err = s.TryAcquire(e.ctx(), sema.Weight(n))
					} else {
						p, err = s.Acquire(e.ctx(), sema.Weight(n))
					}
					if errors.Is(err, sema.ErrBusy) && i%3 == 0 {
						continue
					}
					if err != nil {
						e.Error(err)
						return
					}
					now := held.Add(int64(n))
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					if i%5 == 0 {
						time.Sleep(time.Millisecond)
					}
					held.Add(-int64(n))
					if err := p.Release(); err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if most.Load() > limit {
			e.broken("%d held at once, limit %d", most.Load(), limit)
		}
		e.empty(e.sem(limit, nil), limit)
	}},
	{name: "a short lease does not end another's long one", run: func(e *env) {
		// node redis-semaphore: 3 holders of 2; the book's Lua semaphore.
		s := e.session()
		lasting := request(s, 1, long)
		e.ask(s, lasting, protocol.Granted)
		e.ask(s, request(s, 1, engine.MinLease), protocol.Refused)
		e.do(s, protocol.Renew, lasting, protocol.Granted)
		e.ask(s, request(s, 1, engine.MinLease), protocol.Refused)
	}},
	{name: "leases that end free their weight", run: func(e *env) {
		s := e.session()
		r := request(s, 3, engine.MinLease)
		r.ID = id(s, 3)
		e.ask(s, r, protocol.Granted)
		e.empty(waitFree(e, 3), 3)
	}},
}

// waitFree waits until the whole limit is free.
func waitFree(e *env, limit int) *semaphore {
	s := e.sem(limit, nil)
	e.release(e.acquire(s, limit))
	return s
}
