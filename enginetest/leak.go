package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sema"
)

var leakTests = []test{
	{name: "a cancelled wait leaves the queue", run: func(e *env) {
		told := make(chan struct{}, 100) // that it waits: until then its call may be late, which is another error
		s, p := e.held(1, &sema.Options{Lease: long, Observer: sema.Observer{Queued: func(sema.Event) { told <- struct{}{} }}}, 1)
		w := e.start(s, 1)
		<-told
		w.cancel()
		e.ends(w, sema.ErrBusy, context.Canceled)
		e.until(func() bool { return len(e.state(s).Waiters) == 0 })
		e.release(p)
		e.empty(s, 1)
	}},
	{name: "a wait cancelled at the moment of its grant loses and doubles nothing", run: func(e *env) {
		cancelStorm(e, rounds(200))
	}},
	{name: "closing gives back everything", run: func(e *env) {
		s := e.sem(2, nil)
		a, b := e.acquire(s, 1), e.acquire(s, 1)
		w := e.queue(s, 1)
		e.ok(s.Close())
		e.ends(w, sema.ErrClosed)
		for _, p := range []*permit{a, b} {
			e.lost(p, sema.ErrLost)
			e.is(p.Release(), sema.ErrReleased)
		}
		_, err := s.Acquire(e.ctx())
		e.is(err, sema.ErrClosed)
		_, err = s.State(e.ctx())
		e.is(err, sema.ErrClosed)
		e.ok(s.Close())
		e.empty(e.sem(2, nil), 2)
	}},
	{name: "shutting down refuses waiters and lets holders end", run: func(e *env) {
		s, p := e.held(1, nil, 1)
		w := e.queue(s, 1)
		ended := make(chan error, 1)
		go func() { ended <- s.Shutdown(e.ctx()) }()
		e.ends(w, sema.ErrClosed)
		_, err := s.Acquire(e.ctx())
		e.is(err, sema.ErrClosed)
		e.ok(p.Renew(e.ctx()))
		e.ok(p.Release())
		e.ok(<-ended)
		e.empty(e.sem(1, nil), 1)
	}},
	{name: "lost permits may be released while the semaphore closes", run: func(e *env) {
		for range 20 {
			e.name += "." // what Close overtakes ends with its lease
			s := e.sem(8, &sema.Options{Lease: long})
			var all sync.WaitGroup
			for range 8 {
				p := e.acquire(s, 1)
				e.ok(e.operator().Revoke(e.ctx(), p.ID()))
				_ = p.Renew(e.ctx()) // tells it that it is lost
				all.Go(func() { _ = p.Release() })
			}
			e.ok(s.Close())
			all.Wait()
		}
	}},
	{name: "clients that die at random leave nothing behind", run: func(e *env) {
		const limit = 3
		var all sync.WaitGroup
		for range 6 {
			line := &cutEngine{Engine: e.store.Client(e)}
			s := e.semOn(line, limit, &sema.Options{Lease: short})
			all.Go(func() {
				for i := range 10 {
					ctx, cancel := context.WithTimeout(e.ctx(), time.Duration(rand.IntN(50))*time.Millisecond)
					p, err := s.Acquire(ctx, sema.Weight(1+i%limit))
					if i == 9 {
						line.cut.Store(true)
					}
					if err == nil && i < 9 {
						_ = p.Release()
					}
					cancel()
				}
			})
		}
		all.Wait()
		s := e.sem(limit, nil)
		e.until(func() bool { // an ask of the dead that is on its way yet is granted once more
			p, err := s.TryAcquire(e.ctx(), sema.Weight(limit))
			if err == nil {
				e.release(p)
			}
			return err == nil && len(e.state(s).Waiters) == 0
		})
	}},
}

// rounds is how often a storm blows: n, or n times $SEMA_STORM where longer
// runs are wanted.
func rounds(n int) int {
	if f, err := strconv.Atoi(os.Getenv("SEMA_STORM")); err == nil && f > 0 {
		return n * f
	}
	return n
}

// cancelStorm cancels waits at the moment of their grant: the gate's release
// and the cancellation start together. Afterwards the whole limit must be
// free, and at no time two hold.
func cancelStorm(e *env, n int) {
	s, other := e.sem(1, nil), e.sem(1, nil)
	var held, granted, cancelled atomic.Int64
	spin := 1000 // how long the cancellation waits; finds the moment by itself
	const most = 100_000
	for range n {
		before := granted.Load()
		gate := e.acquire(s, 1)
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(e.ctx())
		all.Go(func() {
			p, err := other.Acquire(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					e.Error(err)
				}
				cancelled.Add(1)
				return
			}
			granted.Add(1)
			if held.Add(1) > 1 {
				e.Error("two hold one permit")
			}
			held.Add(-1)
			if err := p.Release(); err != nil {
				e.Error(err)
			}
		})
		if rand.IntN(4) > 0 { // mostly once it is queued
			for len(e.state(s).Waiters) == 0 {
				time.Sleep(20 * time.Microsecond)
			}
		}
		start := make(chan struct{})
		all.Go(func() { <-start; _ = gate.Release() })
		all.Go(func() {
			<-start
			wait := rand.IntN(2 * spin)
			for range min(wait, most) {
				_ = ctx.Err()
			}
			time.Sleep(time.Duration(wait-most) * 10 * time.Nanosecond) // a step may take time that only passes for those at rest
			cancel()
		})
		close(start)
		all.Wait()
		cancel()
		if granted.Load() > before {
			spin = max(1, spin*9/10)
		} else {
			spin += spin/10 + 1
		}
	}
	e.Logf("%d granted, %d cancelled", granted.Load(), cancelled.Load())
	e.empty(waitFree(e, 1), 1)
}
