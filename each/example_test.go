package each_test

import (
	"context"
	"fmt"

	"sema"
	"sema/each"
	"sema/engines/memengine"
)

// One at a time for each host, however many hosts there are.
func Example() {
	ctx := context.Background()
	hosts, err := each.New(memengine.New(), "hosts", 1, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hosts.Close() }()

	err = hosts.Do(ctx, "example.org", func(context.Context) error {
		_, err := hosts.TryAcquire(ctx, "example.org")
		fmt.Println(err)
		other, err := hosts.Acquire(ctx, "example.net")
		fmt.Println(other.Name(), err, other.Release())
		return nil
	})
	fmt.Println(err)
	// Output:
	// sema: no permit available: "hosts/example.org": 1 of 1 held
	// hosts/example.net <nil> <nil>
	// <nil>
}

// A tenant that paid for five.
func ExampleNew_limitOf() {
	paid := map[string]int{"acme": 5}
	tenants, err := each.New(memengine.New(), "tenants", 2, &each.Options{
		LimitOf: func(tenant string) int { return paid[tenant] }, // 0: the 2 above
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tenants.Close() }()

	for _, tenant := range []string{"acme", "initech"} {
		permit, err := tenants.Acquire(context.Background(), tenant, sema.Weight(5))
		fmt.Println(tenant, err)
		if err == nil {
			defer func() { _ = permit.Release() }()
		}
	}
	// Output:
	// acme <nil>
	// initech sema: weight 5 is above the limit 2 of "tenants/initech"
}
