package enginetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// path is the key of names with slashes between.
func path(names string) sema.AcquireOption { return sema.For(strings.Split(names, "/")...) }

var pathTests = []test{
	{name: "each key of a path is held to its cap, and blocks those below it alone", atOnce: true, run: func(e *env) {
		caps := &sema.Options{Caps: sema.Caps{3, 2}}
		a, b := e.sem(5, caps), e.sem(5, caps)
		alice := []*permit{e.acquire(a, 1, path("acme/alice")), e.acquire(b, 1, path("acme/alice"))}
		e.busy(b, path("acme/alice"))
		w := e.queue(b, 1, path("acme/alice"))
		bob, err := a.TryAcquire(e.ctx(), path("acme/bob")) // passes what waits for alice's cap
		e.ok(err)
		e.busy(b, path("acme/bob")) // acme holds all it may
		e.busy(b, path("acme"))
		carol := e.queue(a, 1, path("acme/carol"))
		other := e.acquire(b, 2, path("beta/alice")) // another alice
		for key, want := range map[string]engine.KeyState{
			"acme":       {Held: 3, Waiting: 2, Cap: 3, Full: true},
			"acme/alice": {Held: 2, Waiting: 1, Cap: 2, Full: true},
			"acme/bob":   {Held: 1, Cap: 2},
			"beta":       {Held: 2, Cap: 3},
			"beta/alice": {Held: 2, Cap: 2},
		} {
			k := e.keyState(a, key)
			k.Key, k.Share = "", 0
			if k != want {
				e.Errorf("%s: %+v, want %+v", key, k, want)
			}
		}
		e.release(other) // frees nothing for acme
		e.waits(w)
		e.waits(carol)
		e.release(bob)
		last := e.permit(carol)
		e.waits(w)
		e.release(alice[0])
		e.release(e.permit(w), alice[1], last)
		e.empty(a, 5)
	}},
	{name: "organisations take turns, however many users they have", run: func(e *env) {
		s, gate := e.held(1, nil, 1)
		big, small := e.sem(1, nil), e.sem(1, nil)
		var line []*waiter
		for i := range 6 {
			line = append(line, e.queue(big, 1, path(fmt.Sprint("big/", i))))
		}
		one, two := e.queue(small, 1, path("small/a")), e.queue(small, 1, path("small/a"))
		// Of two that hold nothing, each is served once while the other waits.
		e.release(gate)
		e.inOrder([]*waiter{line[0], one, line[1], two, line[2], line[3], line[4], line[5]})
		e.empty(s, 1)
	}},
	{name: "users of an organisation take turns, and its own callers are one of them", run: func(e *env) {
		_, gate := e.held(1, nil, 1)
		s := e.sem(1, nil)
		own := []*waiter{e.queue(s, 1, path("acme")), e.queue(s, 1, path("acme")), e.queue(s, 1, path("acme"))} // before there is any user
		alice := []*waiter{e.queue(s, 1, path("acme/alice")), e.queue(s, 1, path("acme/alice"))}
		bob := e.queue(s, 1, path("acme/bob/chat"))
		e.release(gate)
		e.inOrder([]*waiter{own[0], alice[0], bob, own[1], alice[1], own[2]})
	}},
	{name: "a share counts beside the others of its organisation", run: func(e *env) {
		s, gate := e.held(8, nil, 8)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Share: 300}, "acme", "alice"))
		both := e.sem(8, nil)
		for range 8 {
			e.queue(both, 1, path("acme/alice"))
			e.queue(both, 1, path("acme/bob"))
			e.queue(both, 1, path("beta"))
		}
		e.until(func() bool { return e.keyState(s, "beta").Waiting >= 4 }) // tickets: queue also counts who asks after an answer that is slow
		e.release(gate)
		e.until(func() bool { return e.state(s).Used == 8 })
		for key, held := range map[string]int{"acme": 4, "beta": 4, "acme/alice": 3, "acme/bob": 1} {
			if k := e.keyState(s, key); k.Held != held {
				e.Errorf("%s holds %d, want %d", key, k.Held, held)
			}
		}
	}},
	{name: "the rule of a path holds at its place, serves, and ends", run: func(e *env) {
		o, caps := e.operator(), &sema.Options{Caps: sema.Caps{4, 1}}
		s := e.sem(9, caps)
		held := []*permit{e.acquire(s, 1, path("acme/alice")), e.acquire(s, 1, path("beta/alice"))}
		w, v := e.queue(s, 1, path("acme/alice")), e.queue(s, 1, path("beta/alice"))
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 3}, "acme", "alice"))
		held = append(held, e.permit(w))
		e.waits(v)
		e.ok(o.Set(e.ctx(), sema.Rule{Limit: 2}, "acme")) // less than alice may hold
		e.busy(s, path("acme/alice"))
		e.ok(o.Unset(e.ctx(), "acme"))
		held = append(held, e.acquire(s, 1, path("acme/alice")))
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{0, 2}})) // of all users; that of organisations stays
		held = append(held, e.permit(v))
		if st := e.state(s); st.Caps != (sema.Caps{4, 2}) {
			e.Errorf("caps %v", st.Caps)
		}
		e.ok(o.Unset(e.ctx(), "acme", "alice"))
		if k := e.keyState(s, "acme/alice"); k.Held != 3 || k.Cap != 2 || k.Ruled {
			e.Errorf("%+v", k)
		}
		e.release(held...)
	}},
	{name: "a lowered cap of an organisation is waited for by all below it", run: func(e *env) {
		o := e.operator()
		s := e.sem(6, &sema.Options{Caps: sema.Caps{4}})
		held := []*permit{e.acquire(s, 1, path("acme/a")), e.acquire(s, 1, path("acme/b")), e.acquire(s, 2, path("acme/c"))}
		w := e.queue(s, 1, path("acme/a"))
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{2}}))
		e.release(held[0], held[1])
		e.waits(w)
		e.release(e.acquire(s, 2, path("beta/a")))
		e.release(held[2])
		e.release(e.permit(w))
	}},
	{name: "a user whose cap was lowered blocks nobody else of the organisation", run: func(e *env) {
		o, s := e.operator(), e.sem(10, &sema.Options{Caps: sema.Caps{4}})
		held := []*permit{e.acquire(s, 1, path("acme/alice")), e.acquire(s, 2, path("acme/bob"))}
		alice := e.queue(s, 3, path("acme/alice"))
		bob := e.queue(s, 1, path("acme/bob")) // behind her: acme has one left, and she wants three
		e.waits(bob)
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{4, 3}})) // now it is her own cap that she waits for
		held = append(held, e.permit(bob))
		e.waits(alice)
		bob = e.queue(s, 1, path("acme/carol"))
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{5, 2}})) // and now she can never have it
		held = append(held, e.permit(bob))
		e.ends(alice)
		e.tooHeavy(alice.err, 3, 2)
		e.release(held...)
		e.empty(s, 10)
	}},
	{name: "users whose caps were lowered block nobody, however many they are", run: func(e *env) {
		o, s := e.operator(), e.sem(44, &sema.Options{Caps: sema.Caps{0, 4}, Lease: long})
		held := []*permit{e.acquire(s, 2, path("acme/last"))}
		for i := range 40 { // more than a step handles
			held = append(held, e.acquire(s, 1, path(fmt.Sprint("acme/", i))))
		}
		for i := range 40 {
			e.queue(s, 3, path(fmt.Sprint("acme/", i))) // for the limit
		}
		last := e.queue(s, 1, path("acme/last"))
		e.waits(last)
		set := time.Now()
		e.ok(o.Set(e.ctx(), sema.Rule{Caps: sema.Caps{0, 3}})) // now they wait for their own caps
		e.release(append(held, e.permit(last))...)
		if took := time.Since(set); took > patience/2 { // when the first of the others gives up, that is a step as well
			e.Errorf("served after %v", took)
		}
	}},
	{name: "what is above a cap of its path fails, and names the key", run: func(e *env) {
		s := e.sem(9, &sema.Options{Caps: sema.Caps{3, 5, 2}})
		for names, want := range map[string]struct {
			key string
			cap int
		}{"acme/alice": {"acme", 3}, "acme/alice/chat": {"acme/alice/chat", 2}, "acme": {"acme", 3}} {
			_, err := s.Acquire(e.ctx(), path(names), sema.Weight(4))
			if found := e.tooHeavy(err, 4, want.cap); found.Key.String() != want.key || !strings.Contains(err.Error(), want.key) {
				e.Errorf("%s: %v", names, err)
			}
		}
		e.release(e.acquire(s, 3, path("acme/alice")), e.acquire(s, 2, path("beta/alice/chat")))
	}},
	{name: "a permit passes within a process only while nobody's turn has come", run: func(e *env) {
		options := &sema.Options{Caps: sema.Caps{1}, Keep: 5 * time.Millisecond}
		busy, other := e.sem(3, options), e.sem(3, options)
		served, stop := e.keepBusy(busy, time.Millisecond, path("acme/alice"))
		defer stop()
		e.until(func() bool { return served.Load() > 3 })
		e.release(e.acquire(other, 1, path("acme/bob"))) // behind many of alice's, whose organisation is full
	}},
	{name: "a killed client's permits come back to each key of their paths", run: func(e *env) {
		caps := sema.Caps{2, 1}
		dying, s := e.session(), e.sem(3, &sema.Options{Caps: caps})
		for _, key := range []engine.Key{"acme\x01alice", "acme\x01bob"} {
			r := request(dying, 3, engine.MinLease)
			r.Key, r.Caps = key, caps
			e.ask(dying, r, protocol.Granted)
		}
		w := e.queue(s, 1, path("acme/alice"))
		v := e.queue(s, 1, path("acme/carol"))
		e.release(e.permit(w), e.permit(v))
		e.empty(s, 3)
	}},
	{name: "paths out of range are refused", run: func(e *env) {
		s := e.sem(3, nil)
		for _, names := range [][]string{{""}, {"", "a"}, {"a", "b", "c", "d"}, {"a\x01b"}, {"a", "b\x01c"}, {"a", "\xff"}, {strings.Repeat("k", 200), strings.Repeat("k", 55)}} {
			_, err := s.Acquire(e.ctx(), sema.For(names...))
			e.bad(fmt.Sprintf("%q", names), err, "key")
			e.bad(fmt.Sprintf("rule of %q", names), e.operator().Set(e.ctx(), sema.Rule{Limit: 1}, names...), "key")
		}
		longest := []string{strings.Repeat("ü", 50), strings.Repeat("k", 76), strings.Repeat("k", 77)} // 255 bytes with the separators
		e.release(e.acquire(s, 2, sema.For(longest...)))
	}},
	{name: "many callers of many paths keep the caps of each level", run: func(e *env) {
		const limit, org, user, most = 6, 3, 2, 3
		var mu sync.Mutex
		held := map[string]int{}
		count := func(names string, n int) {
			mu.Lock()
			defer mu.Unlock()
			parts := strings.Split(names, "/")
			for depth := 0; depth <= len(parts); depth++ {
				key := strings.Join(parts[:depth], "/")
				held[key] += n
				if bound := []int{limit, org, user, most}[depth]; held[key] > bound {
					e.broken("%q holds %d of %d", key, held[key], bound)
				}
			}
		}
		var all sync.WaitGroup
		for c := range 4 {
			s := e.sem(limit, &sema.Options{Caps: sema.Caps{org, user}, Keep: 5 * time.Millisecond})
			for i, names := range []string{"acme/a", "acme/b/x", "acme/b/y", "acme", "beta/a", "beta/a", "gamma"} {
				all.Go(func() {
					n := 1 + (c+i)%2
					e.turns(6, s, func(*permit) {
						count(names, n)
						count(names, -n)
					}, path(names), sema.Weight(n))
				})
			}
		}
		all.Wait()
	}},
}
