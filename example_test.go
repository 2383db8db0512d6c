package sema_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
)

// At most two of these jobs run at once, in the order they came.
func Example() {
	sem, err := sema.New(memengine.New(), "github-api", 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()

	var jobs sync.WaitGroup
	for range 5 {
		jobs.Go(func() {
			permit, err := sem.Acquire(context.Background())
			if err != nil {
				fmt.Println(err)
				return
			}
			defer func() { _ = permit.Release() }()
			call(permit.Context(context.Background())) // ends before anybody else can hold the permit
		})
	}
	jobs.Wait()
	both, err := sem.Acquire(context.Background(), sema.Weight(2))
	fmt.Println(both.Weight(), "free again,", err)
	// Output: 2 free again, <nil>
}

func call(context.Context) {}

func ExampleSemaphore_Do() {
	sem, _ := sema.New(memengine.New(), "reports", 1, nil)
	err := sem.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("working, and nobody else is")
		return nil
	})
	fmt.Println(err)
	// Output:
	// working, and nobody else is
	// <nil>
}

// A program that is told to stop lets what runs end, and refuses what waits.
func ExampleSemaphore_Shutdown() {
	sem, _ := sema.New(memengine.New(), "reports", 1, nil)
	permit, _ := sem.Acquire(context.Background())
	waits := make(chan error)
	go func() {
		_, err := sem.Acquire(context.Background())
		waits <- err
	}()
	go func() {
		fmt.Println("the one that waits:", <-waits)
		fmt.Println("the one that works:", permit.Err())
		_ = permit.Release()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(sem.Shutdown(ctx))
	// Output:
	// the one that waits: sema: closed: "reports"
	// the one that works: <nil>
	// <nil>
}

func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "db", 1, nil)
	permit, err := sem.TryAcquire(ctx)
	fmt.Println(err)
	_, err = sem.TryAcquire(ctx)
	fmt.Println(errors.Is(err, sema.ErrBusy))
	fmt.Println(permit.Release())
	// Output:
	// <nil>
	// true
	// <nil>
}

// A weight takes more than one unit of the limit at once.
func ExampleWeight() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "gpu-memory-gb", 24, nil)
	big, _ := sem.Acquire(ctx, sema.Weight(16))
	state, _ := sem.State(ctx)
	fmt.Println(big.Weight(), "held,", state.Limit-state.Used, "free")
	_, err := sem.Acquire(ctx, sema.Weight(40))
	fmt.Println(err)
	// Output:
	// 16 held, 8 free
	// sema: weight 40 is above the limit 24 of "gpu-memory-gb"
}

// A slot is an index that no other permit has at the time: which key, which
// port, which card.
func ExampleOptions_slots() {
	ctx := context.Background()
	keys := []string{"key-a", "key-b"}
	sem, _ := sema.New(memengine.New(), "vendor", len(keys), &sema.Options{Slots: true})
	first, _ := sem.Acquire(ctx)
	second, _ := sem.Acquire(ctx)
	fmt.Println(keys[first.Slot()], keys[second.Slot()])
	// Output: key-a key-b
}

// A caller that has little time for an engine that is away.
func ExampleAnswerWithin() {
	sem, err := sema.New(memengine.New(), "db", 1, nil)
	if err != nil {
		panic(err)
	}
	defer sem.Close()
	// It waits for others for as long as it takes.
	p, err := sem.Acquire(context.Background(), sema.AnswerWithin(time.Second))
	if err != nil {
		fmt.Println("go on without:", err)
		return
	}
	defer p.Release()
	fmt.Println("held")
	// Output: held
}

// The wait is bounded, the work is not.
func ExampleSemaphore_Acquire_timeout() {
	sem, _ := sema.New(memengine.New(), "db", 1, nil)
	_, _ = sem.Acquire(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := sem.Acquire(ctx)
	fmt.Println(errors.Is(err, sema.ErrBusy), err)
	// Output: true sema: no permit available: "db": context deadline exceeded
}

// The wait is bounded, and the work has all the time of its context.
func ExampleWaitAtMost() {
	sem, _ := sema.New(memengine.New(), "db", 1, nil)
	work := func(context.Context) error { return nil }
	fmt.Println(sem.Do(context.Background(), work, sema.WaitAtMost(time.Second)))
	_, _ = sem.Acquire(context.Background()) // somebody else
	fmt.Println(sem.Do(context.Background(), work, sema.WaitAtMost(time.Millisecond)))
	// Output:
	// <nil>
	// sema: no permit available: "db"
}

// A person who waits goes before jobs that came up to a minute earlier, and before no other
// person.
func ExamplePriority() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "model", 1, nil)
	held, _ := sem.Acquire(ctx)
	served := make(chan string)
	waits := func(who string, options ...sema.AcquireOption) {
		before, _ := sem.State(ctx)
		go func() {
			permit, _ := sem.Acquire(ctx, options...)
			served <- who
			_ = permit.Release()
		}()
		for after := before; after.Waiting() == before.Waiting(); {
			after, _ = sem.State(ctx)
		}
	}
	waits("a job")
	waits("a person", sema.Priority(time.Minute))
	_ = held.Release()
	fmt.Println(<-served)
	fmt.Println(<-served)
	// Output:
	// a person
	// a job
}

// An error is of one class; see docs/errors.md.
func Example_errors() {
	sem, err := sema.New(memengine.New(), "db", 1, nil)
	if err != nil {
		panic(err)
	}
	defer sem.Close()
	say := func(p *sema.Permit, err error) string {
		var heavy *sema.WeightError
		switch {
		case err == nil:
			defer p.Release()
			return "held"
		case errors.Is(err, sema.ErrBusy):
			return "busy"
		case errors.Is(err, sema.ErrEngine):
			return "the engine is away"
		case errors.As(err, &heavy):
			return fmt.Sprintf("never: %d of %d", heavy.Weight, heavy.Limit)
		default:
			return err.Error()
		}
	}
	fmt.Println(say(sem.Acquire(context.Background(), sema.Weight(2))))
	p, _ := sem.Acquire(context.Background())
	fmt.Println(say(sem.TryAcquire(context.Background())))
	_ = p.Release()
	fmt.Println(say(sem.TryAcquire(context.Background())))
	// Output:
	// never: 2 of 1
	// busy
	// held
}

// The number in the code of the process that was started last holds, until an operator
// says another.
func Example_limits() {
	ctx, engine := context.Background(), memengine.New()
	uses := func(limit int) {
		sem, err := sema.New(engine, "github-api", limit, &sema.Options{Observer: sema.Observer{
			LimitDiffers: func(e sema.Event) { fmt.Println(e.Err) },
		}})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = sem.Close() }()
		err = sem.Do(ctx, func(context.Context) error { return nil })
		state, _ := sem.State(ctx)
		fmt.Println("limit", state.Limit, err)
	}
	uses(2)
	uses(50) // the next deployment

	operator, _ := sema.Operate(engine, "github-api")
	fmt.Println("an operator sets 10:", operator.Set(ctx, sema.Rule{Limit: 10}))
	uses(50)
	fmt.Println("and takes that back:", operator.Unset(ctx))
	uses(50)
	// Output:
	// limit 2 <nil>
	// limit 50 <nil>
	// an operator sets 10: <nil>
	// sema: "github-api" has limit 10, not 50
	// limit 10 <nil>
	// and takes that back: <nil>
	// limit 50 <nil>
}

// A permit of a process that was killed is back after ten seconds, and work has one second
// to stop in when its permit is lost. How long the work takes is another matter.
func ExampleOptions_lease() {
	sem, err := sema.New(memengine.New(), "import", 1, &sema.Options{
		Lease:   10 * time.Second, // renewed every three
		Margin:  time.Second,      // to stop in, after a loss
		MaxHold: time.Hour,        // of the work: longer is a mistake
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	fmt.Println(sem.Do(context.Background(), func(context.Context) error {
		return nil // for an hour, if need be: the lease is renewed
	}))
	_, err = sema.New(memengine.New(), "import", 1, &sema.Options{Lease: 10 * time.Second, Margin: 5 * time.Second})
	fmt.Println(err)
	// Output:
	// <nil>
	// sema: margin 5s: want 0 … 2.5s, a quarter of the lease
}

// Work runs under the permit's context, which ends before anybody else can hold the permit:
// here because it takes longer than it may.
func Example_losingAPermit() {
	sem, err := sema.New(memengine.New(), "ledger", 1, &sema.Options{MaxHold: engine.MinLease})
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
	defer func() { _ = permit.Release() }()

	ctx := permit.Context(context.Background())
	<-ctx.Done() // as a call that is given this context would
	fmt.Println(context.Cause(ctx))
	fmt.Println("lost:", errors.Is(permit.Err(), sema.ErrLost), "- a token for storage to compare:", permit.Token() > 0)
	// Output:
	// sema: permit lost: held longer than allowed: "ledger"
	// lost: true - a token for storage to compare: true
}

// Acquire, TryAcquire and Do take the same options.
func Example_optionsOfOneCall() {
	ctx := context.Background()
	sem, err := sema.New(memengine.New(), "api", 5, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	options := []sema.AcquireOption{sema.Weight(3), sema.For("acme"), sema.WaitAtMost(time.Second), sema.Label("job 7")}
	fmt.Println(sem.Do(ctx, func(ctx context.Context) error {
		_, err := sem.TryAcquire(ctx, options...) // three more are not free
		fmt.Println(err)
		return ctx.Err()
	}, options...))
	// Output:
	// sema: no permit available: "api": 3 of 5 held
	// <nil>
}

// A function that passes options on, and logs whose permit it takes; and one that asks whether a
// Semaphore can be closed.
func ExampleReadOptions() {
	sem, err := sema.New(memengine.New(), "api", 5, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	do := func(options ...sema.AcquireOption) {
		asked := sema.ReadOptions(options...)
		fmt.Println(asked.Key, asked.Wait, sem.Do(context.Background(), func(context.Context) error {
			_, unused := sem.Unused()
			fmt.Println("unused:", unused)
			return nil
		}, options...))
	}
	do(sema.For("acme", "alice"), sema.WaitAtMost(time.Second))
	// Output:
	// unused: false
	// acme/alice 1s <nil>
}
