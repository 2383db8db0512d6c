package adapt_test

import (
	"context"
	"fmt"
	"time"

	"sema"
	"sema/adapt"
	"sema/engines/memengine"
)

// One program decides about the limit for a fleet whose processes only report: those
// have an Adapt without a range.
func ExampleControl() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop() // a program that serves goes on until it ends
	err := adapt.Control(ctx, memengine.New(), "vendor", sema.Adapt{Min: 2, Max: 200}, func(a sema.Event) {
		fmt.Printf("%s: limit %d, was %d: %s\n", a.Semaphore, a.Limit, a.From, a.Why)
	})
	fmt.Println(err)
	// Output: context deadline exceeded
}
