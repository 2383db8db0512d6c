package admit_test

import (
	"fmt"
	"time"

	"sema/admit"
)

// A policy prints as a program writes it.
func ExamplePolicy() {
	var policy admit.Policy
	fmt.Println(policy == admit.Closed, policy)
	fmt.Println(admit.Open)
	fmt.Println(admit.Local(5, 1).After(time.Second))
	// Output:
	// true admit.Closed
	// admit.Open
	// admit.Local(5, 1).After(1s)
}
