package sema_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sema"
	"sema/engines/memengine"
)

// Who holds, who waits, and how much is free.
func ExampleSemaphore_State() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "db", 3, &sema.Options{Label: "nightly report"})
	permit, _ := sem.TryAcquire(ctx, sema.Weight(2))
	state, _ := sem.State(ctx)
	fmt.Println(state.Used, "of", state.Limit, "held")
	holder := state.Holders[0]
	fmt.Println(holder.Client.Label, "holds", holder.Weight, "-", state.Waiting(), "wait")
	fmt.Println(sem.Name(), holder.ID == permit.ID(), holder.Token == permit.Token())
	_ = permit.Release()
	// Output:
	// 2 of 3 held
	// nightly report holds 2 - 0 wait
	// db true true
}

// An operator's limit outlives the program, and is not what New was given.
func ExampleOperator_Set() {
	ctx := context.Background()
	engine := memengine.New()
	operator, _ := sema.Operate(engine, "db")
	_ = operator.Set(ctx, sema.Rule{Limit: 5})
	sem, _ := sema.New(engine, "db", 3, nil)
	state, _ := sem.State(ctx)
	fmt.Println(state.Limit, operator.Unset(ctx))
	// Output: 5 <nil>
}

// Nobody gets a permit while the database is being moved.
func ExampleOperator_Pause() {
	ctx := context.Background()
	engine := memengine.New()
	sem, _ := sema.New(engine, "db", 3, nil)
	operator, _ := sema.Operate(engine, "db")
	fmt.Println(operator.Pause(ctx)) // nobody has used it yet, and nobody set its limit
	_ = operator.Set(ctx, sema.Rule{Limit: 3})
	_ = operator.Pause(ctx)
	_, err := sem.TryAcquire(ctx)
	fmt.Println(err)
	_ = operator.Unpause(ctx)
	permit, err := sem.TryAcquire(ctx)
	fmt.Println(err, permit.Release())
	// Output:
	// sema: no such semaphore: "db"
	// sema: no permit available: "db"
	// <nil> <nil>
}

// The holder is told to stop; its weight is free once it has released.
func ExampleOperator_Revoke() {
	ctx := context.Background()
	engine := memengine.New()
	sem, _ := sema.New(engine, "db", 1, nil)
	permit, _ := sem.Acquire(ctx)
	work := permit.Context(ctx)
	operator, _ := sema.Operate(engine, "db")
	_ = operator.Revoke(ctx, permit.ID())
	<-work.Done()
	fmt.Println(context.Cause(work))
	fmt.Println(errors.Is(permit.Err(), sema.ErrRevoked), permit.Release())
	// Output:
	// sema: permit lost: revoked by an operator: "db"
	// true sema: permit lost: revoked by an operator: "db"
}

// A permit by its id, whoever holds it; and what nobody uses is forgotten.
func ExampleOperator_Release() {
	ctx := context.Background()
	engine := memengine.New()
	sem, _ := sema.New(engine, "db", 1, nil)
	permit, _ := sem.Acquire(ctx)
	operator, _ := sema.Operate(engine, "db")
	fmt.Println(errors.Is(operator.Remove(ctx), sema.ErrInUse))
	fmt.Println(operator.Release(ctx, permit.ID()))
	fmt.Println(operator.Remove(ctx))
	// Output:
	// true
	// <nil>
	// <nil>
}

// A permit that outlives its process: another one takes it up.
func ExampleSemaphore_Resume() {
	ctx := context.Background()
	engine := memengine.New()
	options := &sema.Options{Detached: true}
	first, _ := sema.New(engine, "maintenance", 1, options)
	permit, _ := first.Acquire(ctx)
	id := permit.ID()
	_ = first.Close() // the process ends

	second, _ := sema.New(engine, "maintenance", 1, options)
	permit, err := second.Resume(ctx, id)
	fmt.Println(err, permit.Release(), second.Close())
	// Output: <nil> <nil> <nil>
}

// Without renewal in the background the program decides how long it may hold.
func ExamplePermit_Renew() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "import", 1, &sema.Options{Lease: time.Minute, Renew: sema.NoRenewal})
	permit, _ := sem.Acquire(ctx)
	before := permit.Deadline()
	err := permit.Renew(ctx) // after each batch
	fmt.Println(err, permit.Deadline().After(before), permit.Err())
	_ = permit.Release()
	// Output: <nil> true <nil>
}

// Tokens grow: storage that remembers the largest one refuses holders of the past.
func ExamplePermit_Token() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "writer", 1, nil)
	first, _ := sem.Acquire(ctx)
	_ = first.Release()
	second, _ := sem.Acquire(ctx)
	fmt.Println(second.Token() > first.Token())
	_ = second.Release()
	// Output: true
}

// Two that observe one Semaphore.
func ExampleObserver_And() {
	count := 0
	counting := sema.Observer{Acquired: func(sema.Event) { count++ }}
	logging := sema.Observer{Released: func(r sema.Event) { fmt.Println(r.Semaphore, "released") }}
	sem, _ := sema.New(memengine.New(), "db", 1, &sema.Options{Observer: counting.And(logging)})
	permit, _ := sem.Acquire(context.Background())
	_ = permit.Release()
	fmt.Println(count)
	// Output:
	// db released
	// 1
}

// What an operator gives to keys: two each, and more to one that pays for it.
func ExampleRule() {
	ctx := context.Background()
	operator, _ := sema.Operate(memengine.New(), "api")
	defer func() { _ = operator.Close() }()

	fmt.Println(operator.Set(ctx, sema.Rule{Limit: 20, Caps: sema.Caps{2}}))
	fmt.Println(operator.Set(ctx, sema.Rule{Limit: 5, Share: 300}, "acme"))
	state, err := operator.State(ctx)
	fmt.Println(state.Limit, state.Caps, state.Keys[0].Key, state.Keys[0].Cap, err)
	fmt.Println(operator.Unset(ctx, "acme"))
	// Output:
	// <nil>
	// <nil>
	// 20 2 acme 5 <nil>
	// <nil>
}

// Operators see what each permit is for, beside the process that has it.
func ExampleLabel() {
	sem, err := sema.New(memengine.New(), "reports", 2, nil)
	if err != nil {
		panic(err)
	}
	defer sem.Close()
	for _, job := range []string{"job 7", "job 8"} {
		permit, err := sem.Acquire(context.Background(), sema.Label(job))
		if err != nil {
			panic(err)
		}
		defer permit.Release()
	}
	state, err := sem.State(context.Background())
	if err != nil {
		panic(err)
	}
	for _, holder := range state.Holders {
		fmt.Println(holder.Client.Label)
	}
	// Output:
	// job 7
	// job 8
}

// The vendor does not say how much it takes. So each caller says how its call went, and
// the limit of the whole fleet follows.
func ExampleAdapt() {
	vendor := func(context.Context) int { return http.StatusTooManyRequests }
	sem, err := sema.New(memengine.New(), "vendor", 20, &sema.Options{
		Adapt: &sema.Adapt{Min: 2, Max: 200, Slow: 30 * time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()

	permit, err := sem.Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	switch vendor(permit.Context(context.Background())) {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		permit.Overloaded()
	}
	fmt.Println(permit.Release())
	// Output: <nil>
}

// One program decides about the limit for a fleet whose processes only report: those
// have an Adapt without a range.
func ExampleSemaphore_Decide() {
	sem, err := sema.New(memengine.New(), "vendor", 2, &sema.Options{
		Adapt: &sema.Adapt{Min: 2, Max: 200},
		Observer: sema.Observer{LimitChanged: func(e sema.Event) {
			fmt.Printf("%s: limit %d, was %d: %s\n", e.Semaphore, e.Limit, e.From, e.Why)
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop() // a program that serves goes on until it ends
	fmt.Println(sem.Decide(ctx))
	// Output: context deadline exceeded
}
