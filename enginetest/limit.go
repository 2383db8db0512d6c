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
