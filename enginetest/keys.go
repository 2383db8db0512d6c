package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/engine"
)

// queueFor starts an acquisition of a key, and returns when it is seen to wait.
func (e *env) queueFor(s *semaphore, key string, n int, options ...sema.AcquireOption) *waiter {
	e.Helper()
	return e.queue(s, n, append(options, sema.For(key))...)
}

func (e *env) acquireFor(s *semaphore, key string, n int) *permit {
	e.Helper()
	return e.acquire(s, n, sema.For(key))
}

// keyState is what State says of a key.
func (e *env) keyState(s *semaphore, key string) (of engine.KeyState) {
	e.Helper()
	for _, k := range e.state(s).Keys {
		if k.Key.String() == key {
			return k
		}
	}
	return of
}

var keyTests = []test{
	{name: "a key holds no more than its cap, and blocks nobody", atOnce: true, run: func(e *env) {
		two := &sema.Options{Caps: sema.Caps{2}}
		a, b := e.sem(4, two), e.sem(4, two)
		first := e.acquireFor(a, "acme", 1)
		second := e.acquireFor(b, "acme", 1)
		if _, err := b.TryAcquire(e.ctx(), sema.For("acme")); !errors.Is(err, sema.ErrBusy) {
			e.broken("a third of two: %v", err)
		}
		w := e.queueFor(b, "acme", 1)
		if k := e.keyState(a, "acme"); k.Held != 2 || k.Waiting != 1 || k.Cap != 2 || !k.Full || k.Ruled || k.Share != engine.DefaultShare {
			e.Errorf("%+v", k)
		}
		p, err := a.TryAcquire(e.ctx(), sema.For("beta")) // passes what waits for its cap
		e.ok(err)
		q, err := b.TryAcquire(e.ctx()) // and so does a caller without a key
		e.ok(err)
		e.release(p, q)
		e.waits(w)
		e.release(first)
		e.release(e.permit(w), second)
		e.empty(a, 4)
	}},
	{name: "the next permit goes to the key that holds least", run: func(e *env) {
		heavy, light := e.sem(2, nil), e.sem(2, nil)
		a, b := e.acquireFor(heavy, "heavy", 1), e.acquireFor(heavy, "heavy", 1)
		more := e.queueFor(heavy, "heavy", 1)
		w := e.queueFor(light, "light", 1)
		other := e.queueFor(light, "other", 1)
		if turns := e.state(light).Turns; len(turns) != 3 || turns[0].Key != "heavy" || turns[1].Key != "light" || turns[2].Key != "other" {
			e.Errorf("%+v", turns)
		}
		if ks := e.state(light).Keys; len(ks) != 3 || ks[0].Key != "light" || ks[1].Key != "other" || ks[2].Key != "heavy" || ks[2].Before != 2 {
			e.Errorf("%+v", ks)
		}
		e.release(a)
		p := e.permit(w)
		e.waits(more)
		e.waits(other)
		e.release(b)
		q := e.permit(more) // it holds as little as the other now, and stood there first
		e.waits(other)
		e.release(p)
		e.release(e.permit(other), q)
	}},
	{name: "a share is what a key gets of what several want", run: func(e *env) {
		s, gate := e.held(4, nil, 4)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Share: 300}, "big"))
		big, small := e.sem(4, nil), e.sem(4, nil)
		for range 4 {
			e.queueFor(small, "small", 1)
			e.queueFor(big, "big", 1)
		}
		e.until(func() bool { return e.keyState(s, "big").Waiting >= 3 }) // tickets: queue also counts who asks after an answer that is slow
		e.release(gate)
		e.until(func() bool { return e.state(s).Used == 4 })
		if b, sm := e.keyState(s, "big"), e.keyState(s, "small"); b.Held != 3 || sm.Held != 1 || b.Share != 300 {
			e.Errorf("%+v, %+v", b, sm)
		}
	}},
	{name: "the rule of a key holds for all, serves, and ends", run: func(e *env) {
		o := e.operator()
		e.is(o.Set(e.ctx(), sema.Rule{Limit: 1}, "acme"), sema.ErrNotFound)
		e.is(o.Unset(e.ctx(), "acme"), sema.ErrNotFound)
		one := &sema.Options{Caps: sema.Caps{1}}
		s, other := e.sem(5, one), e.sem(5, one)
		e.release(e.acquire(s, 1))
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 2}, "acme")) // a key that nobody has used yet
		held := []*permit{e.acquireFor(s, "acme", 1), e.acquireFor(other, "acme", 1), e.acquireFor(s, "beta", 1)}
		w, v := e.queueFor(other, "acme", 1), e.queueFor(other, "beta", 1)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 3}, "acme"))
		held = append(held, e.permit(w))
		e.waits(v)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 5, Caps: sema.Caps{2}}))
		held = append(held, e.permit(v))
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 1}, "acme")) // and takes nothing away
		if k := e.keyState(s, "acme"); k.Held != 3 || k.Cap != 1 || !k.Ruled {
			e.Errorf("%+v", k)
		}
		e.release(held...)
		e.acquireFor(s, "acme", 1)
		e.busy(other, sema.For("acme"))
		e.ok(o.Unset(e.ctx(), "acme"))
		e.ok(o.Unset(e.ctx(), "acme"))
		e.acquireFor(other, "acme", 1)
		if k := e.keyState(s, "acme"); k.Held != 2 || k.Cap != 2 || k.Ruled {
			e.Errorf("%+v", k)
		}
	}},
	{name: "what is above the cap of its key fails, and says so", run: func(e *env) {
		s := e.sem(5, &sema.Options{Caps: sema.Caps{2}})
		e.release(e.acquireFor(s, "acme", 2))
		_, err := s.Acquire(e.ctx(), sema.For("acme"), sema.Weight(3))
		if e.tooHeavy(err, 3, 2).Key != "acme" || !strings.Contains(err.Error(), "acme") {
			e.Fatal(err)
		}
		e.release(e.acquire(s, 5)) // nobody's key has no cap
		w := func() *waiter {
			held := e.acquireFor(s, "acme", 1)
			defer e.release(held)
			w := e.queueFor(e.sem(5, &sema.Options{Caps: sema.Caps{2}}), "acme", 2)
			e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 1}, "acme"))
			return w
		}()
		e.ends(w)
		e.tooHeavy(w.err, 2, 1)
	}},
	{name: "one policy is for the limit and the cap of keys", run: func(e *env) {
		e.release(e.acquireFor(e.sem(9, &sema.Options{Caps: sema.Caps{3}}), "a", 3))
		o, told := e.differing(sema.Options{Caps: sema.Caps{1}, OnConflict: sema.LimitStored})
		adopts := e.sem(9, o)
		e.release(e.acquireFor(adopts, "a", 3))
		if differs := told(); differs.WantedCaps != (sema.Caps{1}) || differs.StoredCaps != (sema.Caps{3}) {
			e.Errorf("reported %+v", differs)
		}
		_, err := e.sem(9, &sema.Options{OnConflict: sema.LimitStrict}).Acquire(e.ctx(), sema.For("a"))
		if refused, ok := errors.AsType[*sema.LimitError](err); !ok || refused.StoredCaps != (sema.Caps{3}) || refused.WantedCaps != (sema.Caps{}) || !strings.Contains(err.Error(), "caps 3") {
			e.Errorf("refused: %v", err)
		}
		e.release(e.acquireFor(e.sem(9, &sema.Options{Caps: sema.Caps{4}}), "a", 4))
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 8, Caps: sema.Caps{5}}))
		e.release(e.acquireFor(e.sem(9, &sema.Options{Caps: sema.Caps{1}}), "a", 5))
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 7})) // leaves it
		if st := e.state(adopts); st.Limit != 7 || st.Caps != (sema.Caps{5}) {
			e.Errorf("%+v", st)
		}
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Caps: sema.Caps{6}})) // leaves the limit
		if st := e.state(adopts); st.Limit != 7 || st.Caps != (sema.Caps{6}) || !st.Pinned {
			e.Errorf("%+v", st)
		}
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Caps: sema.Caps{engine.MaxLimit}}))
		if st := e.state(adopts); st.Caps != (sema.Caps{}) {
			e.Errorf("%+v", st)
		}
		e.release(e.acquireFor(adopts, "a", 7))
	}},
	{name: "a rule leaves what it does not name", run: func(e *env) {
		o, s := e.operator(), e.sem(9, &sema.Options{Caps: sema.Caps{2}})
		e.is(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{3}}), sema.ErrNotFound)
		e.release(e.acquire(s, 1))
		was := func(key string, most, share int) {
			e.Helper()
			if k := e.keyState(s, key); k.Cap != most || k.Share != share || !k.Ruled {
				e.Errorf("%+v, want a cap of %d and a share of %d", k, most, share)
			}
		}
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 5}, "acme"))
		was("acme", 5, engine.DefaultShare)
		e.ok(o.Set(e.ctx(), sema.Rule{Share: 300}, "acme"))
		was("acme", 5, 300)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 4}, "acme"))
		was("acme", 4, 300)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: engine.MaxLimit}, "acme")) // whatever other keys may hold
		was("acme", 0, 300)
		e.release(e.acquireFor(s, "acme", 9))
		e.ok(o.Set(e.ctx(), sema.Rule{Share: 50}, "beta"))
		was("beta", 2, 50)
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{3}}))
		was("beta", 3, 50)
		e.ok(o.Unset(e.ctx(), "acme"))
		e.ok(o.Set(e.ctx(), sema.Rule{Share: 200}, "acme")) // a rule that ended leaves nothing
		was("acme", 3, 200)
	}},
	{name: "a larger cap of keys serves all that are full", run: func(e *env) {
		const keys = 300 // more than a step looks at
		one := &sema.Options{Caps: sema.Caps{1}, Lease: long}
		s := e.sem(1000, one)
		var line []*waiter
		for i := range keys {
			e.acquireFor(s, fmt.Sprint(i), 1)
		}
		other := e.sem(1000, one)
		for i := range keys {
			line = append(line, e.start(other, 1, sema.For(fmt.Sprint(i))))
		}
		e.until(func() bool { return e.state(s).Waiting() == keys })
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 1000, Caps: sema.Caps{2}}))
		for _, w := range line {
			e.permit(w)
		}
	}},
	{name: "priority passes those of the same key that came less than that before", run: func(e *env) {
		options := &sema.Options{Lease: long}
		gate := e.acquireFor(e.sem(1, options), "acme", 1)
		old := e.queueFor(e.sem(1, options), "acme", 1)
		came := time.Now()
		e.pass(func() time.Time { return came.Add(3 * apart) })
		late := e.queueFor(e.sem(1, options), "acme", 1, sema.Priority(apart))
		quick := e.queueFor(e.sem(1, options), "acme", 1, sema.Priority(time.Hour))
		e.release(gate)
		e.inOrder([]*waiter{quick, old, late})
	}},
	{name: "priority passes callers of its own process", run: func(e *env) {
		options := &sema.Options{Lease: long}
		gate := e.acquireFor(e.sem(1, options), "acme", 1)
		s := e.sem(1, options)
		first := e.queueFor(s, "acme", 1)
		second := e.queueFor(s, "acme", 1)
		third := e.queueFor(s, "acme", 1) // behind as many as have tickets
		quick := e.queueFor(s, "acme", 1, sema.Priority(time.Hour))
		e.release(gate)
		e.inOrder([]*waiter{quick, first, second, third})
	}},
	{name: "within a process as well permits go to the key whose turn it is", run: func(e *env) {
		s := e.sem(2, &sema.Options{Caps: sema.Caps{1}})
		a, b := e.acquireFor(s, "a", 1), e.acquireFor(s, "b", 1)
		again := e.queueFor(s, "a", 1)
		c := e.queueFor(s, "c", 1)
		e.release(b)
		p := e.permit(c)
		e.waits(again)
		e.release(a)
		q := e.permit(again)
		if held := e.keyState(s, "a").Held + e.keyState(s, "c").Held; held != 2 {
			e.Errorf("%d, want a permit for each of two keys", held)
		}
		e.release(p, q)
		e.empty(s, 2)
	}},
	{name: "a semaphore in use may begin to have keys", atOnce: true, run: func(e *env) {
		plain, keyed := e.sem(2, nil), e.sem(2, &sema.Options{Caps: sema.Caps{1}, OnConflict: sema.LimitNewest})
		p, q := e.acquire(plain, 1), e.acquire(plain, 1)
		w := e.queue(plain, 1)
		v := e.queueFor(keyed, "acme", 1)
		u := e.queueFor(keyed, "acme", 1)
		e.release(p)
		r := e.permit(v) // the key of nobody holds more
		e.release(q)
		x := e.permit(w)
		e.waits(u)
		e.release(x)
		e.waits(u) // at its cap
		e.release(r)
		e.release(e.permit(u))
		e.empty(plain, 2)
	}},
	{name: "caps hold again after a store that forgot", own: true, needs: forgetting, run: func(e *env) {
		options := &sema.Options{Caps: sema.Caps{1}, Lease: steps}
		s := e.sem(3, options)
		p := e.acquireFor(s, "acme", 1)
		w := e.queueFor(e.sem(3, options), "acme", 1)
		v := e.queueFor(e.sem(3, options), "acme", 1)
		e.store.Forget(e)
		e.lost(p, sema.ErrLost)
		first, second := w, v
		if e.until(func() bool { return len(w.got)+len(v.got) > 0 }); len(v.got) > 0 {
			first, second = v, w // places may be told apart no better than messages take
		}
		q := e.permit(first)
		e.waits(second)
		if k := e.keyState(s, "acme"); k.Held != 1 || k.Cap != 1 {
			e.Errorf("%+v", k)
		}
		e.release(q)
		e.release(e.permit(second))
	}},
	{name: "a bad key, or a bad rule, fails and changes nothing", run: func(e *env) {
		s := e.sem(2, nil)
		for _, key := range []string{"", "a\x00b", "a\nb", "\xff", strings.Repeat("k", engine.MaxKey+1)} {
			k, o := sema.For(key), e.operator()
			_, err := s.Acquire(e.ctx(), k)
			_, err2 := s.TryAcquire(e.ctx(), k)
			for _, err := range []error{err, err2, s.Do(e.ctx(), func(context.Context) error { return nil }, k), o.Set(e.ctx(), sema.Rule{Limit: 1}, key), o.Unset(e.ctx(), key)} {
				e.bad(fmt.Sprintf("key %q", key), err, "key")
			}
		}
		for _, rule := range []sema.Rule{{}, {Limit: -1}, {Share: -1}, {Share: engine.MaxShare + 1}, {Limit: 1, Caps: sema.Caps{1}}} {
			e.bad(fmt.Sprintf("%+v", rule), e.operator().Set(e.ctx(), rule, "a"), "")
		}
		for _, rule := range []sema.Rule{{}, {Limit: -1}, {Caps: sema.Caps{0, -1}}, {Limit: 1, Share: 1}} {
			e.bad(fmt.Sprintf("%+v", rule), e.operator().Set(e.ctx(), rule), "")
		}
		if st := e.state(e.sem(3, nil)); st.Limit != 3 || len(st.Keys) > 0 {
			e.Errorf("there is something: %+v", st)
		}
		longest := strings.Repeat("ü", engine.MaxKey/2)
		e.release(e.acquireFor(s, longest, 2))
	}},
	{name: "many callers of many keys keep both limits", run: func(e *env) {
		const limit, perKey, most = 5, 2, 3
		var mu sync.Mutex
		held, all := map[string]int{}, 0
		count := func(key string, n int) {
			mu.Lock()
			defer mu.Unlock()
			held[key] += n
			all += n
			if held[key] > perKey || all > limit {
				e.broken("%d of %s, %d in all", held[key], key, all)
			}
		}
		var callers sync.WaitGroup
		for client := range 3 {
			s := e.sem(limit, &sema.Options{Caps: sema.Caps{perKey}, Lease: long})
			for i := range 8 {
				callers.Go(func() {
					r := rand.New(rand.NewPCG(uint64(client), uint64(i)))
					for range 30 {
						key, n, ctx := fmt.Sprint(r.IntN(6)), 1+r.IntN(2), e.ctx()
						acquire := s.Acquire
						switch r.IntN(4) {
						case 0:
							acquire = s.TryAcquire
						case 1:
							short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(most))*time.Millisecond)
							defer cancel()
							ctx = short
						}
						p, err := acquire(ctx, sema.For(key), sema.Weight(n))
						if err != nil {
							if !errors.Is(err, sema.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
								e.Error(err)
							}
							continue
						}
						count(key, n)
						time.Sleep(time.Duration(r.IntN(most)) * time.Millisecond)
						count(key, -n)
						if err := p.Release(); err != nil {
							e.Error(err)
						}
					}
				})
			}
		}
		callers.Wait()
		s := e.sem(limit, &sema.Options{Caps: sema.Caps{perKey}})
		e.release(e.acquire(s, limit))
	}},
}
