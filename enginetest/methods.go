package enginetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"sema"
	"sema/internal/fixture/expect"
)

type valueKey struct{}

// expiring is a context whose deadline passes when done is closed.
type expiring struct {
	context.Context
	done chan struct{}
}

func (x expiring) Done() <-chan struct{} { return x.done }

func (x expiring) Err() error {
	select {
	case <-x.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

var methodTests = []test{
	{name: "a deadline is both ours and the context's", run: func(e *env) {
		queued := make(chan struct{})
		s, p := e.held(1, &sema.Options{Observer: sema.Observer{Queued: func(sema.Event) { close(queued) }}}, 1)
		ctx, failed := expiring{e.ctx(), make(chan struct{})}, make(chan error)
		go func() {
			_, err := s.Acquire(ctx)
			failed <- err
		}()
		<-queued // before that it is the engine that the caller waits for
		close(ctx.done)
		err := <-failed
		e.is(err, sema.ErrBusy)
		e.is(err, context.DeadlineExceeded)
		_, err = s.Acquire(ctx) // already over
		e.is(err, sema.ErrBusy)
		e.is(err, context.DeadlineExceeded)
		e.release(p)
	}},
	{name: "the acquisition's context bounds the wait and not the permit", run: func(e *env) {
		// As with x/sync/semaphore: a timeout around Acquire, cancelled at once.
		ctx, cancel := context.WithTimeout(e.ctx(), patience)
		p, err := e.sem(1, nil).Acquire(ctx)
		cancel()
		e.ok(err)
		work := p.Context(e.ctx())
		e.ok(p.Err())
		e.ok(work.Err())
		e.release(p)
	}},
	{name: "a permit's context carries values and ends with its parent", run: func(e *env) {
		ctx, cancel := context.WithCancel(context.WithValue(e.ctx(), valueKey{}, "v"))
		p := e.acquire(e.sem(1, nil), 1)
		work, other := p.Context(ctx), p.Context(e.ctx())
		child, stop := context.WithCancel(work)
		defer stop()
		if work.Value(valueKey{}) != "v" {
			e.Error("the value is lost")
		}
		cancel()
		<-child.Done()
		e.is(work.Err(), context.Canceled)
		e.ok(other.Err())
		e.ok(p.Err()) // still held: its holder decides when it is done
		e.release(p)
		<-other.Done()
		e.is(context.Cause(other), sema.ErrReleased)
	}},
	{name: "operators see the label of each acquisition", run: func(e *env) {
		s := e.sem(2, &sema.Options{Label: "program", Lease: long, Keep: long / 6})
		var permits []*permit
		for _, label := range []string{"job 1", "job 2"} {
			permits = append(permits, e.permit(e.start(s, 1, sema.Label(label))))
		}
		waits := e.start(s, 1, sema.Label("job 3"))
		shown := func() (held, waiting []string) {
			st := e.state(s)
			for _, h := range st.Holders {
				held = append(held, h.Client.Label)
			}
			for _, w := range st.Waiters {
				waiting = append(waiting, w.Client.Label)
			}
			return held, waiting
		}
		e.until(func() bool {
			held, waiting := shown()
			return slices.Equal(held, []string{"job 1", "job 2"}) && slices.Equal(waiting, []string{"job 3"})
		})
		e.release(permits[0]) // it does not pass to a caller with another label
		p := e.permit(waits)
		if held, _ := shown(); !slices.Equal(held, []string{"job 2", "job 3"}) {
			e.Errorf("held by %q", held)
		}
		e.release(permits[1], p)
		plain := e.acquire(s, 1)
		if held, _ := shown(); !slices.Equal(held, []string{"program"}) {
			e.Errorf("held by %q", held)
		}
		e.release(plain)
		_, err := s.TryAcquire(e.ctx(), sema.Label("a\nb"))
		e.bad("a label of two lines", err, "label")
	}},
	{name: "others count all who wait in a process, with tickets and without", run: func(e *env) {
		s, other := e.sem(1, &sema.Options{Lease: steps}), e.sem(1, &sema.Options{Lease: steps})
		p := e.acquire(other, 1)
		all := []*waiter{e.queue(s, 1)}
		for range 11 {
			all = append(all, e.start(s, 1))
		}
		leave := func(gone ...*waiter) {
			for _, w := range gone {
				w.cancel()
				<-w.got
			}
		}
		e.release(p)
		p = e.permit(all[0])
		counted := func(n int) {
			e.ok(p.Renew(e.ctx())) // any call of the client's says how many wait
			e.until(func() bool { return e.state(other).Waiting() == n })
		}
		counted(11)
		leave(all[7:]...)
		counted(6)
		leave(all[1:4]...)
		counted(3)
		leave(all[4:7]...)
		counted(0)
		e.release(p)
		e.empty(other, 1)
	}},
	{name: "releasing ends the permit's context", run: func(e *env) {
		p := e.acquire(e.sem(1, nil), 1)
		e.release(p)
		e.lost(p, sema.ErrReleased)
		e.is(p.Renew(e.ctx()), sema.ErrReleased)
	}},
	{name: "Do holds while it runs, and releases after a panic", run: func(e *env) {
		s := e.sem(1, nil)
		boom := errors.New("boom")
		e.is(s.Do(e.ctx(), func(ctx context.Context) error {
			if _, err := s.TryAcquire(ctx); !errors.Is(err, sema.ErrBusy) {
				e.Error("not held:", err)
			}
			return boom
		}), boom)
		func() {
			defer func() { _ = recover() }()
			_ = s.Do(e.ctx(), func(context.Context) error { panic("boom") })
		}()
		e.empty(s, 1)
		err := e.sem(1, &sema.Options{Lease: short}).Do(e.ctx(), func(ctx context.Context) error {
			e.ok(e.operator().Release(e.ctx(), e.state(s).Holders[0].ID))
			<-ctx.Done()
			return boom
		})
		e.is(err, sema.ErrLost)
		e.is(err, boom)
	}},
	{name: "a weight of all that is free is granted if nobody waits", run: func(e *env) {
		s, a := e.held(5, nil, 2)
		st := e.state(s)
		d, err := s.TryAcquire(e.ctx(), sema.Weight(st.Limit-st.Used))
		e.ok(err)
		if d.Weight() != 3 {
			e.Fatalf("took %d of 3", d.Weight())
		}
		e.busy(s)
		e.release(d)
		w := e.queue(s, 5)
		e.busy(s, sema.Weight(3))
		e.release(a)
		e.release(e.permit(w))
	}},
	{name: "Renew gives a whole lease", run: func(e *env) {
		s, p := e.held(1, &sema.Options{Lease: long, Renew: sema.NoRenewal}, 1)
		before := p.Deadline()
		// An engine that knows its store's clock to within a round trip takes that off the lease.
		e.until(func() bool {
			e.ok(p.Renew(e.ctx()))
			return p.Deadline().After(before)
		})
		if left := e.state(s).Holders[0].Left; left > long || left < long/2 {
			e.Errorf("%v left of a lease of %v", left, long)
		}
		e.release(p)
	}},
	{name: "a hand-off gives a whole lease even without renewal", run: func(e *env) {
		o := &sema.Options{Lease: long, Renew: sema.NoRenewal}
		s, p := e.held(1, o, 1)
		w := e.queue(e.semOn(e.store.Client(e), 1, o), 1) // as another process
		e.release(p)
		p = e.permit(w)
		if left := e.state(s).Holders[0].Left; left < long*3/4 {
			e.Errorf("%v left of a lease of %v", left, long)
		}
		e.release(p)
	}},
	{name: "Resume takes up a detached permit", run: func(e *env) {
		o := &sema.Options{Lease: long, Renew: sema.NoRenewal, Detached: true}
		first, p := e.held(1, o, 1)
		e.ok(first.Close())
		e.is(p.Err(), sema.ErrLost)
		second := e.semOn(e.store.Client(e), 1, o)
		e.busy(second)
		r, err := second.Resume(e.ctx(), p.ID())
		e.ok(err)
		if r.ID() != p.ID() || r.Weight() != 1 || r.Token() != p.Token() {
			e.Errorf("resumed %s, %d, token %d; want %s, token %d", r.ID(), r.Weight(), r.Token(), p.ID(), p.Token())
		}
		e.release(r)
		_, err = second.Resume(e.ctx(), p.ID())
		e.is(err, sema.ErrLost)
		e.empty(second, 1)
	}},
	{name: "Resume renews, and never revives", run: func(e *env) {
		o := &sema.Options{Lease: steps}
		first, second := e.sem(1, o), e.sem(1, o)
		p := e.acquire(first, 1)
		r, err := second.Resume(e.ctx(), p.ID())
		e.ok(err)
		before := r.Deadline()
		e.until(func() bool { return r.Deadline().After(before.Add(steps / 2)) })
		e.ok(r.Err())
		e.ok(e.operator().Release(e.ctx(), p.ID()))
		expect.Is(e, r.Renew(e.ctx()), sema.ErrLost)
		e.empty(e.sem(1, nil), 1)
	}},
	{name: "a permit's context can be used to acquire again", run: func(e *env) {
		// A context asked under the lock of the Semaphore that made it.
		s, other := e.sem(3, nil), e.sem(3, nil)
		done := make(chan error, 1)
		go func() {
			done <- s.Do(e.ctx(), func(ctx context.Context) error {
				return other.Do(context.WithValue(ctx, valueKey{}, 1), func(ctx context.Context) error {
					return s.Do(ctx, func(context.Context) error { return nil })
				})
			})
		}()
		select {
		case err := <-done:
			e.ok(err)
		case <-e.ctx().Done():
			e.Fatal("deadlock")
		}
	}},
	{name: "closing the engine loses its permits and ends its waits", own: true, run: func(e *env) {
		engine := e.store.Client(e)
		s := e.semOn(engine, 1, nil)
		p := e.acquire(s, 1)
		w := e.queue(s, 1)
		e.ok(engine.Close())
		e.is(p.Err(), sema.ErrLost)
		<-p.Context(e.ctx()).Done()
		e.ends(w, sema.ErrClosed)
		_, err := s.Acquire(e.ctx())
		e.is(err, sema.ErrClosed)
	}},
	{name: "holders and waiters are visible", run: func(e *env) {
		s, a := e.held(3, &sema.Options{Label: "nightly \"job\" ü"}, 2)
		e.queue(s, 2)
		time.Sleep(time.Millisecond) // so that it has an age
		st := e.state(s)
		if st.Limit != 3 || st.Used != 2 || len(st.Holders) != 1 || len(st.Waiters) != 1 || st.Pinned {
			e.Fatalf("%+v", st)
		}
		h, w := st.Holders[0], st.Waiters[0]
		if h.ID != a.ID() || h.Weight != 2 || h.Slot != -1 || h.Token != a.Token() || h.Left <= 0 || h.Age <= 0 ||
			h.Client.Label != "nightly \"job\" ü" || h.Client.PID == 0 || h.Client.Host == "" || h.Revoked {
			e.Errorf("holder %+v", h)
		}
		if w.Weight != 2 || w.Waiting < 0 || w.Client != h.Client {
			e.Errorf("waiter %+v", w)
		}
		e.ok(e.operator().Revoke(e.ctx(), a.ID()))
		seen, err := e.operator().State(e.ctx()) // through another server the id may be another
		e.ok(err)
		if st = e.state(s); st.Holders[0].ID != a.ID() || st.Used != seen.Used {
			e.Errorf("revoked: %+v, and to its operator %+v", st, seen)
		}
		for _, st := range []sema.State{st, seen} {
			if len(st.Holders) != 1 || !st.Holders[0].Revoked || len(st.Waiters) != 1 {
				e.Errorf("revoked: %+v", st)
			}
		}
	}},
	{name: "looking at a semaphore nobody has used does not make one", run: func(e *env) {
		s := e.sem(7, nil)
		e.limited(s, 7, 0)
		if e.listed() {
			e.Error("it exists")
		}
		if s.Name() != e.name {
			e.Error(s.Name())
		}
	}},
	{name: "a pinned limit is marked, and can be unset", run: func(e *env) {
		s := e.sem(1, nil)
		o := e.operator()
		for what, do := range map[string]func(context.Context) error{"unset": func(ctx context.Context) error { return o.Unset(ctx) }, "pause": o.Pause, "unpause": o.Unpause, "remove": o.Remove} {
			if err := do(e.ctx()); !errors.Is(err, sema.ErrNotFound) {
				e.Errorf("%s without a semaphore: %v", what, err)
			}
		}
		_, err := o.State(e.ctx())
		e.is(err, sema.ErrNotFound)
		if e.listed() {
			e.Error("an operator's call made it")
		}
		e.ok(o.Close())
		e.is(o.Pause(e.ctx()), sema.ErrClosed)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 2}))
		if st := e.state(s); !st.Pinned || st.Limit != 2 {
			e.Errorf("%+v", st)
		}
		e.ok(e.operator().Unset(e.ctx()))
		if st := e.state(s); st.Pinned || st.Limit != 2 {
			e.Errorf("unset: %+v", st)
		}
	}},
	{name: "an idle semaphore can be removed, a used one cannot", atOnce: true, run: func(e *env) {
		s := e.sem(1, nil)
		e.is(e.operator().Remove(e.ctx()), sema.ErrNotFound)
		p := e.acquire(s, 1)
		e.is(e.operator().Remove(e.ctx()), sema.ErrInUse)
		w := e.queue(s, 1)
		e.release(p)
		e.release(e.permit(w))
		e.ok(e.operator().Remove(e.ctx()))
		if e.listed() {
			e.Fatal("it is still there")
		}
		e.empty(e.sem(7, nil), 7) // the next user's limit counts
	}},
	{name: "a permit is not held longer than allowed", run: func(e *env) {
		s := e.sem(1, &sema.Options{Lease: long, MaxHold: steps}) // an answer may be late, and a renewal make up for it
		p := e.acquire(s, 1)
		work := p.Context(e.ctx())
		<-work.Done()
		e.is(context.Cause(work), sema.ErrHeldTooLong)
		e.is(p.Err(), sema.ErrLost)
		e.release(e.acquire(e.sem(1, nil), 1)) // nobody released it
		e.is(p.Release(), sema.ErrHeldTooLong)
	}},
	{name: "a permit that is lost from sight is given back and reported", run: func(e *env) {
		found := make(chan sema.Event, 1)
		s := e.sem(1, &sema.Options{Lease: steps, Observer: sema.Observer{
			Abandoned: func(o sema.Event) { found <- o },
		}})
		lose := func() string {
			p, err := s.Acquire(e.ctx(), sema.Label("here"))
			e.ok(err)
			return p.ID()
		}
		id := lose()
		e.until(func() bool { // it is noticed when it is to be renewed
			runtime.GC()
			time.Sleep(steps / 100)
			return len(found) == 1
		})
		if o := <-found; o.Permit != id || o.Label != "here" {
			e.Errorf("%+v", o)
		}
		e.release(e.acquire(s, 1))
		p, err := s.Acquire(e.ctx())
		e.ok(err)
		work := p.Context(e.ctx())
		runtime.GC()
		runtime.GC()
		e.ok(work.Err()) // as long as the context lives, the permit is held
		runtime.KeepAlive(work)
	}},
	{name: "the observer hears of everything", run: func(e *env) {
		heard := make(chan string, 100)
		note := func(what string, about sema.Event) {
			if about.Semaphore != e.name || about.Permit == "" || about.Weight != 1 {
				e.Errorf("%s: %+v", what, about)
			}
			heard <- what
		}
		s := e.sem(1, &sema.Options{Lease: steps, Observer: sema.Observer{
			Queued:   func(o sema.Event) { note("queued", o) },
			Acquired: func(o sema.Event) { note("acquired", o) },
			Failed:   func(o sema.Event) { note("failed", o) },
			Released: func(o sema.Event) { note("released", o) },
			Lost:     func(o sema.Event) { note("lost", o) },
		}})
		p := e.acquire(s, 1)
		e.busy(s)
		counts := map[string]int{}
		await := func(what string) {
			for counts[what] == 0 {
				select {
				case heard := <-heard:
					counts[heard]++
				case <-e.ctx().Done():
					e.Fatalf("%s: not heard, but %v", what, counts)
				}
			}
		}
		w := e.queue(s, 1)
		await("queued") // a grant that overtakes the answer leaves nothing to tell of a queue
		e.release(p)
		p = e.permit(w)
		e.ok(e.operator().Release(e.ctx(), p.ID()))
		await("lost")
		if counts["acquired"] != 2 || counts["failed"] != 1 || counts["released"] != 1 {
			e.Error(counts)
		}
	}},
}
