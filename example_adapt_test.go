package sema_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"sema"
	"sema/engines/memengine"
)

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
