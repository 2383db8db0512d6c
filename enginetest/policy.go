package enginetest

import (
	"errors"
	"time"

	"sema"
)

// differing are options, and what Observer.LimitDiffers was told once, which may come late.
func (e *env) differing(o sema.Options) (*sema.Options, func() *sema.LimitError) {
	seen := make(chan error, 10)
	o.Observer.LimitDiffers = func(ev sema.Event) { seen <- ev.Err }
	return &o, func() *sema.LimitError {
		e.Helper()
		e.until(func() bool { return len(seen) > 0 })
		told, _ := errors.AsType[*sema.LimitError](<-seen)
		if told == nil || len(seen) != 0 {
			e.Fatalf("reported %v, and %d more", told, len(seen))
		}
		return told
	}
}

// tooHeavy checks that an acquisition failed because it weighs more than a limit, or a cap.
func (e *env) tooHeavy(err error, weight, limit int) (found *sema.WeightError) {
	e.Helper()
	if !errors.As(err, &found) || found.Weight != weight || found.Limit != limit {
		e.Fatal(err)
	}
	return found
}

var policyTests = []test{
	{name: "the newest limit holds, and others go by it and report it", run: func(e *env) {
		o, told := e.differing(sema.Options{})
		old := e.sem(2, o)
		e.release(e.acquire(old, 2))
		deployed := e.sem(50, nil)
		e.release(e.acquire(deployed, 50))
		// Sidekiq #4857: limits flapped while two versions were deployed.
		e.release(e.acquire(old, 3))
		e.limited(old, 50) // the old version has not taken it back
		if differs := told(); differs.Wanted != 2 || differs.Stored != 50 {
			e.Fatalf("reported %+v", differs)
		}
		e.release(e.acquire(e.sem(3, nil), 3)) // and less is as new as more
		_, err := deployed.TryAcquire(e.ctx(), sema.Weight(4))
		e.tooHeavy(err, 4, 3)
	}},
	{name: "a newer limit serves those who wait", run: func(e *env) {
		p := e.acquire(e.sem(1, &sema.Options{Lease: long}), 1)
		w := e.queue(e.sem(1, &sema.Options{Lease: long}), 1)
		e.release(e.acquire(e.sem(3, &sema.Options{Lease: long}), 1))
		e.release(e.permit(w), p)
	}},
	{name: "an operator's limit holds whoever is deployed, until it is unset", run: func(e *env) {
		s := e.sem(2, nil)
		e.release(e.acquire(s, 1))
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 4}))
		deployed := e.sem(9, nil)
		e.release(e.acquire(deployed, 4))
		e.limited(s, 4)
		e.ok(e.operator().Unset(e.ctx()))
		e.release(e.acquire(e.sem(9, nil), 9))
	}},
	{name: "LimitStored goes by the stored limit and reports it", run: func(e *env) {
		p := e.acquire(e.sem(2, nil), 1)
		o, told := e.differing(sema.Options{OnConflict: sema.LimitStored})
		s, a := e.held(5, o, 1)
		e.busy(s)
		if differs := told(); differs.Wanted != 5 || differs.Stored != 2 {
			e.Fatalf("reported %+v", differs)
		}
		e.limited(s, 2, 2)
		e.release(p, a)
	}},
	{name: "refuse fails and changes nothing", run: func(e *env) {
		p := e.acquire(e.sem(2, nil), 1)
		strict := e.sem(3, &sema.Options{OnConflict: sema.LimitStrict})
		_, err := strict.Acquire(e.ctx())
		if differs, ok := errors.AsType[*sema.LimitError](err); !ok || differs.Stored != 2 || differs.Wanted != 3 {
			e.Fatal(err)
		}
		if st := e.state(strict); st.Used != 1 || st.Limit != 2 || len(st.Waiters) != 0 {
			e.Fatalf("%+v", st)
		}
		e.release(p)
		e.release(e.acquire(e.sem(2, &sema.Options{OnConflict: sema.LimitStrict}), 2))
	}},
	{name: "a refused waiter is out of the way", run: func(e *env) {
		o := sema.Options{Lease: long}
		strict := o
		strict.OnConflict = sema.LimitStrict
		s, p := e.held(3, &o, 1)
		heavy := e.queue(e.sem(3, &strict), 3)
		light := e.queue(s, 1)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 4}))
		e.release(p) // whichever comes first: all of it is served or told
		if h := <-heavy.got; h != nil {
			e.release(h)
		}
		e.release(e.permit(light))
	}},
	{name: "a kept permit whose slot a smaller limit has no room for is given to nobody", run: func(e *env) {
		others := e.sem(3, &sema.Options{Lease: long, Slots: true, MaxHold: long})
		keeper := e.sem(3, &sema.Options{Lease: time.Hour, Slots: true, Keep: 10 * time.Minute})
		a, b, c := e.acquire(others, 1), e.acquire(others, 1), e.acquire(keeper, 1)
		if c.Slot() != 2 {
			e.Fatalf("slot %d, want the third", c.Slot())
		}
		e.release(a, b)
		e.release(c) // and it may stay there
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 2}))
		e.until(func() bool { return e.state(others).Used == 0 }) // the keeper has heard of it
		if p := e.acquire(keeper, 1); p.Slot() >= 2 {
			e.Errorf("slot %d of a limit of 2", p.Slot())
		}
	}},
	{name: "a smaller limit revokes nobody and drains", run: func(e *env) {
		s := e.sem(3, nil)
		a, b, c := e.acquire(s, 1), e.acquire(s, 1), e.acquire(s, 1)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 1}))
		w := e.queue(s, 1)
		e.release(a, b)
		e.waits(w)
		e.ok(c.Err())
		e.limited(s, 1, 1)
		e.release(c)
		e.release(e.permit(w))
	}},
	{name: "a limit is not restored while all permits are out", run: func(e *env) {
		// Redisson #4678, Sidekiq #2617: it doubled.
		p := e.acquire(e.sem(2, nil), 2)
		other := e.sem(2, nil)
		e.busy(other)
		e.release(p)
		e.empty(other, 2)
	}},
	{name: "a weight above the stored limit fails and changes nothing", run: func(e *env) {
		s := e.sem(2, nil)
		e.release(e.acquire(s, 1))
		_, err := e.sem(5, &sema.Options{OnConflict: sema.LimitStored}).Acquire(e.ctx(), sema.Weight(3))
		e.tooHeavy(err, 3, 2)
		e.empty(s, 2)
		// Nor does a first user that weighs too much make a semaphore, even if it asks twice because an answer is lost.
		e.name += " fresh"
		line := &cutEngine{Engine: e.store.Client(e)}
		line.mislays.Store(true)
		_, err = e.semOn(line, 2, nil).Acquire(e.ctx(), sema.Weight(3))
		e.tooHeavy(err, 3, 2)
		if e.listed() {
			e.Fatal("it exists")
		}
	}},
	{name: "a waiter that a smaller limit makes too heavy is told and out of the way", run: func(e *env) {
		o := &sema.Options{Lease: long}
		p := e.acquire(e.sem(3, o), 1)
		heavy, light := e.queue(e.sem(3, o), 3), e.queue(e.sem(3, o), 1)
		e.ok(e.operator().Set(e.ctx(), sema.Rule{Limit: 2}))
		e.ends(heavy)
		e.tooHeavy(heavy.err, 3, 2)
		e.release(e.permit(light), p)
	}},
}
