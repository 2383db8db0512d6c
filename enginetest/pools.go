package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

func pools(text engine.Pools) *sema.Options { return &sema.Options{Pools: text} }

// poolState is a pool as State shows it.
func (e *env) poolState(s *semaphore, name string) engine.PoolState {
	e.Helper()
	for _, p := range e.state(s).Pools {
		if p.Pool == name {
			return p
		}
	}
	return engine.PoolState{Pool: name}
}

// wideFirst releases what is held. Only then a wide caller is served, and only then the narrow ones.
func (e *env) wideFirst(wide *waiter, held []*permit, narrow []*waiter) {
	e.Helper()
	for _, p := range held {
		e.waits(wide)
		e.release(p)
	}
	all := e.permit(wide)
	for _, w := range narrow {
		e.waits(w)
	}
	e.release(all)
	for _, w := range narrow {
		e.release(e.permit(w))
	}
}

var poolTests = []test{
	{name: "a pool is a limit of its own, and blocks those alone who want some of it", atOnce: true, run: func(e *env) {
		a, b := e.sem(9, pools("gpu=2,db=3")), e.sem(9, pools("db=3,gpu=2"))
		held := []*permit{e.acquire(a, 1, sema.Take("gpu", 2))}
		e.busy(b, sema.Take("gpu", 1))
		w := e.queue(b, 1, sema.Take("gpu", 1))
		held = append(held, e.acquire(b, 1, sema.Take("db", 3)), e.acquire(a, 3))
		e.busy(a, sema.Take("db", 1))
		e.waits(w)
		if st := e.state(a); st.Used != 5 || fmt.Sprint(st.Pools) != "[{db 3 3 0 0 0s 0s} {gpu 2 2 1 0 0s 0s}]" || st.Holders[0].Takes != "gpu=2" || st.Waiters[0].Takes != "gpu=1" {
			e.Errorf("used %d, %+v, %+v, %+v", st.Used, st.Pools, st.Holders, st.Waiters)
		}
		e.release(held...)
		e.release(e.permit(w))
		e.empty(a, 9)
		if p := e.poolState(a, "gpu"); p != (engine.PoolState{Pool: "gpu", Limit: 2}) {
			e.Errorf("%+v", p)
		}
	}},
	{name: "a rate comes back with time, and serves its waiter though nobody holds a permit", run: func(e *env) {
		s := e.sem(9, pools("gpu=1,rpm=2+1/100ms"))
		began := time.Now()
		e.release(e.acquire(s, 1, sema.Take("rpm", 2)))
		if p := e.poolState(s, "rpm"); p.Limit != 2 || p.Used == 0 || p.Back != 1 || p.Per != 100*time.Millisecond {
			e.Errorf("a release gave the rate back: %+v", p)
		}
		for range 4 { // 0.1 s each
			e.release(e.acquire(s, 1, sema.Take("rpm", 1)))
		}
		if took := time.Since(began); took < 390*time.Millisecond { // the clocks are two
			e.broken("six of a rate of two, and one each 100 ms, were granted within %v", took)
		}
		e.until(func() bool { return e.poolState(s, "rpm").Used == 0 })
		operator := e.operator()
		e.ok(operator.Set(e.ctx(), sema.Rule{Pools: "rpm=1/1h"}))
		e.release(e.acquire(s, 1, sema.Take("rpm", 1)))
		w := e.queue(s, 1, sema.Take("rpm", 1))
		e.release(e.acquire(s, 9)) // a caller that lacks a rate alone keeps nothing else
		e.waits(w)
		e.ok(operator.Set(e.ctx(), sema.Rule{Pools: "rpm=1/10ms"}))
		e.release(e.permit(w))
	}},
	{name: "a full key serves its callers of different pools in turn", atOnce: true, run: func(e *env) {
		plain, gpu, rpm := sema.For("acme"), sema.Take("gpu", 1), sema.Take("rpm", 1)
		s, other := e.sem(9, &sema.Options{Caps: sema.Caps{1}, Pools: "gpu=9,rpm=1/300ms"}), e.sem(9, &sema.Options{Caps: sema.Caps{1}, Pools: "gpu=9,rpm=1/300ms"})
		held := e.acquire(s, 1, plain)
		one, first, two := e.queue(s, 1, plain), e.queue(s, 1, plain, gpu), e.queue(s, 1, plain)
		e.release(held) // of one process: it passes none on beside them
		e.inOrder([]*waiter{one, first, two})
		held = e.acquire(s, 1, plain)
		e.release(e.acquire(other, 1, sema.For("beta"), rpm)) // what comes back of the rate is for acme, though it is full
		rated, next := e.queue(other, 1, plain, rpm), e.queue(s, 1, plain)
		e.release(held)
		e.inOrder([]*waiter{rated, next})
	}},
	{name: "what was not used of a rate comes back with the release", run: func(e *env) {
		s := e.sem(9, pools("tpm=100/1h"))
		p := e.acquire(s, 1, sema.Take("tpm", 100))
		w := e.queue(s, 1, sema.Take("tpm", 60))
		p.Used("tpm", 40)
		p.Used("other", 1)
		e.waits(w)
		e.release(p)
		next := e.permit(w)
		next.Used("tpm", 90) // a debt
		e.release(next)
		if p := e.poolState(s, "tpm"); p.Used != 130 {
			e.Errorf("%+v, want 130", p)
		}
		e.busy(s, sema.Take("tpm", 1))
		e.release(e.acquire(s, 1))
	}},
	{name: "a rate holds through cooldowns, changes and debts, and is not forgotten before it is back", run: func(e *env) {
		later := func(d time.Duration) {
			if e.store.Virtual {
				time.Sleep(d)
			}
		}
		begin := func(name string, there engine.Pools) (*semaphore, *operator) {
			e.name += " " + name
			return e.sem(9, pools(there)), e.operator()
		}
		used := func(s *semaphore, want int) {
			e.Helper()
			if p := e.poolState(s, "rpm"); p.Used != want {
				e.Errorf("%+v, want %d used", p, want)
			}
		}
		s, o := begin("changed in a cooldown", "rpm=5/10h")
		p := e.acquire(s, 1, sema.Take("rpm", 5))
		p.RetryAfter(10 * time.Minute)
		e.release(p)
		for _, pace := range []engine.Pools{"rpm=5/24h", "rpm=5/5h", "rpm=5/8h"} {
			e.ok(o.Set(e.ctx(), sema.Rule{Pools: pace}))
			used(s, 5)
			later(time.Minute)
		}
		e.ok(o.Unpause(e.ctx()))
		used(s, 5)
		e.busy(s, sema.Take("rpm", 1))

		s, _ = begin("given back in a cooldown", "rpm=5/1h")
		p, other := e.acquire(s, 1, sema.Take("rpm", 5)), e.acquire(s, 1)
		other.RetryAfter(10 * time.Minute)
		e.release(other)
		later(9 * time.Minute)
		p.Used("rpm", 0)
		e.release(p)
		used(s, 0)

		for _, end := range []engine.Pools{"rpm=0", "rpm=5"} {
			s, o = begin("ends as "+string(end), "rpm=5/1h")
			p = e.acquire(s, 1, sema.Take("rpm", 5))
			e.ok(o.Set(e.ctx(), sema.Rule{Pools: end}))
			e.ok(o.Set(e.ctx(), sema.Rule{Pools: "rpm=5/1h"}))
			e.release(e.acquire(s, 1, sema.Take("rpm", 5)))
			p.Used("rpm", 0)
			e.release(p)
			e.busy(s, sema.Take("rpm", 1)) // the permit had it of the pool that has ended
		}

		s, _ = begin("slower", "rpm=5/1m")
		e.release(e.acquire(s, 1, sema.Take("rpm", 5)))
		s = e.sem(9, pools("rpm=5/24h"))
		e.release(e.acquire(s, 1))
		later(time.Hour)
		used(s, 5)

		s, _ = begin("in debt", "rpm=1/24h")
		p = e.acquire(s, 1, sema.Take("rpm", 1))
		p.Used("rpm", engine.MaxLimit)
		e.release(p)
		e.busy(s, sema.Take("rpm", 1))
		e.release(e.acquire(s, 9))
	}},
	{name: "all that is taken is taken at once, or nothing", run: func(e *env) {
		s := e.sem(9, pools("db=2,gpu=1"))
		gpu := e.acquire(s, 1, sema.Take("gpu", 1))
		w := e.queue(s, 1, sema.Take("db", 1), sema.Take("gpu", 1))
		if p := e.poolState(s, "db"); p.Used != 0 || p.Waiting != 1 {
			e.Errorf("who waits holds some: %+v", p)
		}
		e.busy(s, sema.Take("db", 2)) // one is kept free for the one who waits
		db := e.acquire(s, 1, sema.Take("db", 1))
		e.release(gpu)
		both := e.permit(w)
		e.busy(s, sema.Take("db", 1))
		e.release(both, db)
		e.empty(s, 9)
	}},
	{name: "who wants much of a pool is not passed for ever", run: func(e *env) {
		s := e.sem(9, pools("gpu=2"))
		first := e.acquire(s, 1, sema.Take("gpu", 1))
		wide := e.queue(s, 1, sema.Take("gpu", 2))
		e.busy(s, sema.Take("gpu", 1))
		narrow := e.queue(s, 1, sema.Take("gpu", 1))
		e.waits(narrow)
		e.release(first)
		both := e.permit(wide)
		e.waits(narrow)
		e.release(both)
		e.release(e.permit(narrow))
	}},
	{name: "who wants the most of several pools is served beside those who want some of each", run: func(e *env) {
		s := e.sem(20, pools("db=4,gpu=4"))
		var held []*permit
		for range 4 {
			held = append(held, e.acquire(s, 1, sema.Take("db", 1)), e.acquire(s, 1, sema.Take("gpu", 1)))
		}
		wide := e.queue(s, 1, sema.Take("db", 4), sema.Take("gpu", 4))
		var narrow []*waiter
		for range 4 {
			narrow = append(narrow, e.queue(s, 1, sema.Take("db", 1)), e.queue(s, 1, sema.Take("gpu", 1)))
		}
		e.wideFirst(wide, held, narrow)
		e.empty(s, 20)
	}},
	{name: "a key that holds much without pools is not passed for ever by those who hold some of one", run: func(e *env) {
		s := e.sem(30, pools("db=2,gpu=2"))
		a, b := sema.For("a"), sema.For("b")
		idle := []*permit{e.acquire(s, 9, a), e.acquire(s, 9, a)}
		held := []*permit{e.acquire(s, 1, b, sema.Take("gpu", 1)), e.acquire(s, 1, b, sema.Take("gpu", 1))}
		wide := e.queue(s, 1, a, sema.Take("db", 2), sema.Take("gpu", 2))
		narrow := []*waiter{e.queue(s, 1, b, sema.Take("gpu", 1)), e.queue(s, 1, b, sema.Take("gpu", 1))}
		e.wideFirst(wide, held, narrow)
		e.release(idle...)
		e.empty(s, 30)
	}},
	{name: "who waits for a pool keeps its weight free", run: func(e *env) {
		s := e.sem(4, pools("gpu=1"))
		gpu := e.acquire(s, 2, sema.Take("gpu", 1))
		w := e.queue(s, 2, sema.Take("gpu", 1))
		e.busy(s) // two are kept free, and two are held
		other := e.queue(s, 2)
		e.waits(other)
		e.release(gpu)
		both := e.permit(w)
		e.release(e.permit(other), both)
		e.empty(s, 4)
	}},
	{name: "those who take the same pools are served as they came, whoever they are", run: func(e *env) {
		s := e.sem(9, pools("gpu=1"))
		gate := e.acquire(s, 1, sema.Take("gpu", 1))
		var line []*waiter
		for i := range 6 {
			line = append(line, e.queue(e.sem(9, pools("gpu=1")), 1+i%2, sema.Take("gpu", 1)))
		}
		e.release(gate)
		e.inOrder(line)
	}},
	{name: "keys share a pool by what they hold of it", run: func(e *env) {
		s := e.sem(99, pools("db=50,gpu=1"))
		gate := e.acquire(s, 1, sema.Take("gpu", 1))
		held := []*permit{e.acquire(s, 9, sema.For("a"), sema.Take("db", 9))} // no reason to wait longer for a GPU
		a := []*waiter{e.queue(s, 1, sema.For("a"), sema.Take("gpu", 1)), e.queue(s, 1, sema.For("a"), sema.Take("gpu", 1)), e.queue(s, 1, sema.For("a"), sema.Take("gpu", 1))}
		b := e.queue(s, 1, path("b/x"), sema.Take("gpu", 1))
		e.release(gate)
		e.inOrder([]*waiter{a[0], b, a[1], a[2]})
		e.release(held...)
	}},
	{name: "the caps of keys hold beside pools", run: func(e *env) {
		s := e.sem(9, &sema.Options{Pools: "gpu=4", Caps: sema.Caps{2}})
		a := e.acquire(s, 2, path("acme/alice"), sema.Take("gpu", 1))
		w := e.queue(s, 1, path("acme/bob"), sema.Take("gpu", 1)) // for acme's cap
		other := e.acquire(s, 1, path("beta/bob"), sema.Take("gpu", 3))
		e.waits(w)
		e.busy(s, path("acme/alice")) // its organisation holds all it may
		e.release(a)
		e.release(e.permit(w), other)
		e.empty(s, 9)
	}},
	{name: "a wide caller of a key is not passed by those of it who want other pools", run: func(e *env) {
		s := e.sem(9, &sema.Options{Pools: "gpu=4", Caps: sema.Caps{4}})
		first := e.acquire(s, 1, sema.For("acme"))
		wide := e.queue(s, 4, sema.For("acme"))
		light := e.queue(s, 1, sema.For("acme"), sema.Take("gpu", 1))
		e.busy(s, sema.For("acme"), sema.Take("gpu", 1))
		e.waits(light)
		e.release(first)
		e.release(e.permit(light)) // of different sets it goes by what they cost
		e.release(e.permit(wide))
	}},
	{name: "an operator changes pools, and serves or tells who waits", run: func(e *env) {
		o, s := e.operator(), e.sem(9, pools("db=1,gpu=1"))
		held := []*permit{e.acquire(s, 1, sema.Take("gpu", 1))}
		w := e.queue(s, 1, sema.Take("gpu", 1))
		e.ok(o.Set(e.ctx(), sema.Rule{Pools: "gpu=2"}))
		held = append(held, e.permit(w))
		e.ok(o.Set(e.ctx(), sema.Rule{Pools: "new=3,gpu=1"})) // less than is used; the permits stay
		w = e.queue(s, 1, sema.Take("gpu", 1))
		e.release(e.acquire(s, 1, sema.Take("db", 1), sema.Take("new", 3)))
		e.release(held[0])
		e.waits(w)
		e.release(held[1])
		last := e.permit(w)
		w = e.queue(e.sem(9, pools("db=1,gpu=1")), 1, sema.Take("gpu", 1))
		e.ok(o.Set(e.ctx(), sema.Rule{Pools: "gpu=0"}))
		e.ends(w, sema.ErrNoPool)
		if p := e.poolState(s, "gpu"); p != (engine.PoolState{Pool: "gpu", Used: 1}) {
			e.Errorf("%+v", p)
		}
		e.release(last) // and it may be kept until the recall arrives
		e.until(func() bool { return fmt.Sprint(e.state(s).Pools) == "[{db 1 0 0 0 0s 0s} {new 3 0 0 0 0s 0s}]" })
	}},
	{name: "who waits behind others is told within a lease that a pool has ended", run: func(e *env) {
		o, options := e.operator(), &sema.Options{Pools: "gpu=1", Lease: steps}
		s, gate := e.held(1, options, 1)
		first := e.queue(s, 1)
		w := e.queue(e.sem(1, options), 1, sema.Take("gpu", 1))
		e.ok(o.Set(e.ctx(), sema.Rule{Pools: "gpu=0"}))
		e.ends(w, sema.ErrNoPool)
		e.release(gate)
		e.release(e.permit(first))
	}},
	{name: "what is above a pool fails, and names it", run: func(e *env) {
		s := e.sem(9, pools("db=5,gpu=2"))
		for _, acquire := range []func(...sema.AcquireOption) error{
			func(o ...sema.AcquireOption) error { _, err := s.Acquire(e.ctx(), o...); return err },
			func(o ...sema.AcquireOption) error { _, err := s.TryAcquire(e.ctx(), o...); return err },
		} {
			err := acquire(sema.Take("db", 1), sema.Take("gpu", 3))
			heavy := (*sema.WeightError)(nil)
			if !errors.As(err, &heavy) || heavy.Pool != "gpu" || heavy.Limit != 2 || heavy.Weight != 3 || !strings.Contains(err.Error(), `"gpu"`) {
				e.Errorf("%v", err)
			}
			err = acquire(sema.Take("db", 1), sema.Take("gpus", 1))
			if !errors.Is(err, sema.ErrNoPool) || !strings.Contains(err.Error(), `"gpus"`) {
				e.Errorf("%v", err)
			}
		}
		e.release(e.acquire(s, 9, sema.Take("db", 5), sema.Take("gpu", 2)))
		e.empty(s, 9)
	}},
	{name: "who takes of pools that it does not bring changes nothing", run: func(e *env) {
		none := e.sem(5, nil)
		_, err := none.Acquire(e.ctx(), sema.Take("gpu", 1))
		e.is(err, sema.ErrNoPool)
		_, err = e.operator().State(e.ctx())
		e.is(err, sema.ErrNotFound)
		s := e.sem(5, pools("gpu=1"))
		gpu := e.acquire(s, 1, sema.Take("gpu", 1))
		w := e.queue(s, 1, sema.Take("gpu", 1))
		_, err = e.sem(5, nil).Acquire(e.ctx(), sema.Take("gpu", 1)) // as the newest it would end the pool
		e.is(err, sema.ErrNoPool)
		e.waits(w)
		e.release(gpu)
		e.release(e.permit(w))
	}},
	{name: "the pools of the newest program hold, unless an operator said otherwise", run: func(e *env) {
		old, strict := e.sem(5, pools("gpu=1")), e.sem(5, &sema.Options{Pools: "gpu=1", OnConflict: sema.LimitStrict})
		e.release(e.acquire(old, 1, sema.Take("gpu", 1)))
		e.release(e.acquire(strict, 1, sema.Take("gpu", 1)))
		e.release(e.acquire(e.sem(5, pools("db=2,gpu=3")), 1, sema.Take("gpu", 3)))
		e.release(e.acquire(old, 1, sema.Take("db", 2)))
		_, err := strict.Acquire(e.ctx(), sema.Take("gpu", 1))
		differs := (*sema.LimitError)(nil)
		if !errors.As(err, &differs) || differs.StoredPools != "db=2,gpu=3" || differs.WantedPools != "gpu=1" || !strings.Contains(err.Error(), "db=2,gpu=3") {
			e.Errorf("%v", err)
		}
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Pools: "db=7"}))
		e.release(e.acquire(e.sem(5, nil), 1, sema.Take("db", 7), sema.Take("gpu", 3)))
	}},
	{name: "no more sets of pools are waited for than a step can look at", run: func(e *env) {
		s, gate := e.held(99, pools("a=1,b=1,c=1,d=1,e=1,f=1"), 99)
		names := []string{"a", "b", "c", "d", "e", "f"}
		var line []*waiter
		set := func(bits int) (takes []sema.AcquireOption) {
			for i, name := range names {
				if bits&(1<<i) != 0 {
					takes = append(takes, sema.Take(name, 1))
				}
			}
			return takes
		}
		for bits := 1; bits <= engine.MaxPools; bits++ {
			line = append(line, e.queue(s, 1, set(bits)...))
		}
		_, err := s.Acquire(e.ctx(), set(17)...)
		e.is(err, sema.ErrBusy)
		if _, busy := errors.AsType[*sema.BusyError](err); !busy {
			e.Errorf("%v", err)
		}
		line = append(line, e.queue(s, 1, set(3)...), e.queue(s, 1)) // these are waited for, or take none
		e.release(gate)
		has := func(w *waiter) bool { return len(w.got) > 0 }
		for len(line) > 0 { // they are served in any order
			e.until(func() bool { return slices.ContainsFunc(line, has) })
			i := slices.IndexFunc(line, has)
			e.release(e.permit(line[i]))
			line = slices.Delete(line, i, i+1)
		}
		e.release(e.acquire(s, 1, set(17)...))
		e.empty(s, 99)
	}},
	{name: "a permit passes within a process to those alone who take the same", run: func(e *env) {
		options := &sema.Options{Pools: "db=2,gpu=1", Keep: 5 * time.Millisecond}
		s, other := e.sem(3, options), e.sem(3, options)
		for range 20 {
			e.release(e.acquire(s, 1, sema.Take("gpu", 1)))
			e.release(e.acquire(s, 1, sema.Take("db", 2)))
			e.release(e.acquire(s, 1))
		}
		served, stop := e.keepBusy(s, time.Millisecond, sema.Take("db", 1))
		defer stop()
		e.until(func() bool { return served.Load() > 3 })
		e.release(e.acquire(other, 1, sema.Take("db", 2), sema.Take("gpu", 1)))
	}},
	{name: "a killed client's amounts come back to their pools", run: func(e *env) {
		dying, s := e.session(), e.sem(3, pools("db=2,gpu=1"))
		r := request(dying, 3, engine.MinLease)
		r.Target, r.Pools = protocol.Target{Key: "acme", Takes: "db=2,gpu=1"}, "db=2,gpu=1"
		e.ask(dying, r, protocol.Granted)
		w, v := e.queue(s, 1, sema.Take("db", 2)), e.queue(s, 1, sema.Take("gpu", 1))
		e.release(e.permit(w), e.permit(v))
		e.empty(s, 3)
	}},
	{name: "pools out of range are refused", run: func(e *env) {
		s := e.sem(3, pools("gpu=1"))
		for _, o := range []sema.AcquireOption{sema.Take("", 1), sema.Take("a b", 1), sema.Take("a,b", 1), sema.Take("a=1", 1), sema.Take("gpu", 0), sema.Take("gpu", -1), sema.Take("ü", 1), sema.Take(strings.Repeat("g", 33), 1)} {
			_, err := s.Acquire(e.ctx(), o)
			e.bad(fmt.Sprintf("%+v", o), err, "")
		}
		_, err := s.Acquire(e.ctx(), sema.For(strings.Repeat("k", 250)), sema.Take("gpu", 1))
		e.bad("a long key", err, "key")
		for _, text := range []engine.Pools{"gpu", "gpu=x", "gpu=0", "gpu=-1", "gpu=1,gpu=2", "=1", "a b=1", ",", "gpu=1,", "gpu=2147483648", "rpm=5++5/1m", "rpm=+5/1m"} {
			_, err := sema.New(e.client(), e.name, 3, pools(text))
			e.bad(fmt.Sprintf("%q", text), err, "")
		}
		e.bad("pools of a key", e.operator().Set(e.ctx(), sema.Rule{Pools: "gpu=1"}, "acme"), "pools")
		var many []string
		for i := range engine.MaxPools {
			many = append(many, fmt.Sprintf("p%d=1", i))
		}
		e.release(e.acquire(s, 1, sema.For(strings.Repeat("k", 249)), sema.Take("gpu", 1))) // the key and the amounts have 255 bytes
		e.bad("a pool more than there may be", e.operator().Set(e.ctx(), sema.Rule{Limit: 4, Pools: engine.Pools(strings.Join(many, ","))}), "pools")
		if st := e.state(s); st.Limit != 3 || len(st.Pools) != 1 {
			e.Errorf("%+v", st)
		}
	}},
	{name: "many callers of many pools keep each of them", run: func(e *env) {
		bounds := map[string]int{"": 7, "db": 4, "gpu": 2, "licence": 1}
		var mu sync.Mutex
		used := map[string]int{}
		count := func(takes map[string]int, sign int) {
			mu.Lock()
			defer mu.Unlock()
			for name, n := range takes {
				if used[name] += sign * n; used[name] > bounds[name] {
					e.broken("%d of %q are used, of %d", used[name], name, bounds[name])
				}
			}
		}
		var all sync.WaitGroup
		for range 4 {
			s := e.sem(7, &sema.Options{Pools: "db=4,gpu=2,licence=1", Caps: sema.Caps{5}, Keep: 5 * time.Millisecond})
			for i, takes := range []map[string]int{{"": 1}, {"": 2, "db": 1}, {"": 1, "db": 4}, {"": 1, "gpu": 1}, {"": 1, "gpu": 2, "db": 1}, {"": 1, "licence": 1, "gpu": 1, "db": 1}} {
				options := []sema.AcquireOption{sema.Weight(takes[""]), sema.For([]string{"acme", "beta"}[i%2])}
				for name, n := range takes {
					if name != "" {
						options = append(options, sema.Take(name, n))
					}
				}
				all.Go(func() {
					e.turns(6, s, func(*permit) {
						count(takes, 1)
						count(takes, -1)
					}, options...)
				})
			}
		}
		all.Wait()
	}},
}
