package outage_test

import (
	"fmt"
	"time"

	"sema/outage"
)

// A policy prints as a program writes it.
func ExamplePolicy() {
	var policy outage.Policy
	fmt.Println(policy == outage.Closed, policy)
	fmt.Println(outage.Open)
	fmt.Println(outage.Local(5, 1).After(time.Second))
	// Output:
	// true outage.Closed
	// outage.Open
	// outage.Local(5, 1).After(1s)
}
