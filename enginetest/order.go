package enginetest

import (
	"time"

	"sema"
)

// apart is how long after one another waiters come whose places are to be told
// apart by how long they have waited: longer than a message takes that has to
// dial anew.
const apart = 300 * time.Millisecond

var orderTests = []test{
	{name: "first come, first served, weights included", run: func(e *env) {
		const limit = 3
		gate := e.acquire(e.sem(limit, nil), limit)
		weights := []int{1, 3, 1, 1, 2, 2, 3, 1, 1, 1, 3}
		var line []*waiter
		for i, n := range weights {
			engine := e.client()
			if i%2 == 0 { // as another process
				engine = e.store.Client(e)
			}
			line = append(line, e.queue(e.semOn(engine, limit, nil), n))
		}
		for i, w := range e.state(e.sem(limit, nil)).Waiters {
			if w.Weight != weights[i] {
				e.Fatalf("waiter %d weighs %d, want %d", i, w.Weight, weights[i])
			}
		}
		e.release(gate)
		e.inOrder(line)
	}},
	{name: "a heavy request at the head blocks light ones and does not starve", run: func(e *env) {
		// node redis-semaphore: 0 of 358 tries.
		s, other := e.sem(2, nil), e.sem(2, nil)
		a, b := e.acquire(s, 1), e.acquire(s, 1)
		heavy := e.queue(s, 2)
		light := e.queue(other, 1)
		e.release(a)
		for _, s := range []*semaphore{s, other, e.sem(2, nil)} {
			if _, err := s.TryAcquire(e.ctx()); err == nil {
				e.Fatal("TryAcquire passed the queue")
			}
		}
		e.waits(heavy)
		e.waits(light)
		e.release(b)
		p := e.permit(heavy)
		e.waits(light)
		e.release(p)
		e.release(e.permit(light))
	}},
	{name: "an unfair newcomer takes what is free, and queues like all others", run: func(e *env) {
		s := e.sem(2, nil)
		unfair := e.sem(2, &sema.Options{Unfair: true})
		a := e.acquire(s, 1)
		heavy := e.queue(s, 2)
		b, err := unfair.TryAcquire(e.ctx())
		e.ok(err)
		w := e.queue(unfair, 1)
		e.release(a, b)
		p := e.permit(heavy)
		e.waits(w)
		e.release(p)
		e.release(e.permit(w))
	}},
	{name: "a larger limit serves the queue in order", run: func(e *env) {
		s, p := e.held(1, nil, 1)
		a, b, c := e.queue(s, 1), e.queue(s, 1), e.queue(s, 1)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 3}))
		first, second := e.permit(a), e.permit(b)
		e.waits(c)
		if first.Token() > second.Token() {
			e.Fatal("served out of order")
		}
		e.release(p)
		for _, p := range []*permit{first, second, e.permit(c)} {
			e.release(p)
		}
	}},
	{name: "a place in the queue outlives a store that forgets", own: true, needs: forgetting, run: func(e *env) {
		o := &sema.Options{Lease: steps}
		s := e.sem(1, o)
		e.acquire(s, 1)
		var line []*waiter
		var lines []*cutEngine
		for range 5 {
			cut := &cutEngine{Engine: e.store.Client(e)}
			time.Sleep(apart)
			line, lines = append(line, e.queue(e.semOn(cut, 1, o), 1)), append(lines, cut)
		}
		for _, cut := range lines {
			cut.cut.Store(true)
		}
		e.store.Forget(e)
		gate := e.acquire(e.sem(1, o), 1)
		// They come back last first.
		for i := range lines {
			lines[len(lines)-1-i].cut.Store(false)
			e.until(func() bool { return len(e.state(s).Waiters) == i+1 })
		}
		e.release(gate)
		e.inOrder(line)
	}},
}
