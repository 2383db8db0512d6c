package sema_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sema"
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
func ExampleHeadStart() {
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
	waits("a person", sema.HeadStart(time.Minute))
	_ = held.Release()
	fmt.Println(<-served)
	fmt.Println(<-served)
	// Output:
	// a person
	// a job
}
