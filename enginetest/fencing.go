package enginetest

import (
	"sync"
	"time"

	"sema"
	"sema/internal/fixture/history"
)

var fencingTests = []test{
	{name: "tokens grow in the order of grants", run: func(e *env) {
		const limit, clients, rounds = 3, 6, 40
		h := &history.Holds{}
		var all sync.WaitGroup
		for range clients {
			s := e.sem(limit, nil)
			all.Go(func() {
				for range rounds {
					call := e.now()
					p, err := s.Acquire(e.ctx())
					if err != nil {
						e.Error(err)
						return
					}
					hold := history.Hold{Call: call, Return: e.now(), ID: p.ID(), Weight: 1, Token: p.Token(), Slot: -1, Trusted: p.Deadline().UnixNano()}
					hold.Release = e.now()
					if err := p.Release(); err != nil {
						e.Error(err)
					}
					h.Add(hold)
				}
			})
		}
		all.Wait()
		slack := time.Duration(0)
		if e.store.Keep {
			slack = short
		}
		e.judge(h, limit, slack)
	}},
	{name: "slots are unique among live permits, and within one tokens grow", run: func(e *env) {
		const limit, rounds = 3, 40
		o := &sema.Options{Slots: true}
		var mu sync.Mutex
		taken, last := map[int]bool{}, map[int]int64{}
		var all sync.WaitGroup
		for range 2 * limit {
			s := e.sem(limit, o)
			all.Go(func() {
				e.turns(rounds, s, func(p *permit) {
					mu.Lock()
					if p.Slot() < 0 || p.Slot() >= limit || taken[p.Slot()] || p.Token() <= last[p.Slot()] {
						e.Errorf("slot %d, token %d: taken %v, last tokens %v", p.Slot(), p.Token(), taken, last)
					}
					taken[p.Slot()], last[p.Slot()] = true, p.Token()
					mu.Unlock()
					mu.Lock()
					taken[p.Slot()] = false
					mu.Unlock()
				})
			})
		}
		all.Wait()
	}},
	{name: "the lowest free slot is given, and none beyond a smaller limit", atOnce: true, run: func(e *env) {
		s := e.sem(4, &sema.Options{Slots: true})
		slot := func(s *semaphore, want int) *permit {
			e.Helper()
			p := e.acquire(s, 1)
			if p.Slot() != want {
				e.Fatalf("slot %d, want %d", p.Slot(), want)
			}
			return p
		}
		var ps []*permit
		for i := range 4 {
			ps = append(ps, slot(s, i))
		}
		e.release(ps[1], ps[2])
		slot(s, 1)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 3}))
		e.release(ps[0])
		slot(s, 0)
		e.release(ps[3])
		slot(e.sem(3, nil), -1) // which asks for none
	}},
	{name: "tokens grow across a store that forgets", own: true, needs: forgetting, run: func(e *env) {
		s := e.sem(1, nil)
		var last int64
		for range 3 {
			p := e.acquire(s, 1)
			if p.Token() <= last {
				e.Fatalf("token %d after %d", p.Token(), last)
			}
			last = p.Token()
			e.release(p)
			e.store.Forget(e)
		}
	}},
}
