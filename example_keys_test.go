package sema_test

import (
	"context"
	"errors"
	"fmt"

	"sema"
	"sema/engine/memengine"
)

// Two at once for each tenant, and three in all.
func ExampleKeys() {
	ctx := context.Background()
	keys, err := sema.NewKeys(memengine.New(), "tenants", 2, &sema.KeysOptions{Total: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = keys.Close() }()

	var permits []*sema.KeyPermit
	for _, tenant := range []string{"acme", "acme", "acme", "initech", "initech"} {
		permit, err := keys.TryAcquire(ctx, tenant)
		fmt.Println(tenant, err)
		if err == nil {
			permits = append(permits, permit)
		}
	}
	for _, permit := range permits {
		_ = permit.Release()
	}
	fmt.Println(keys.Len(), "open")
	// Output:
	// acme <nil>
	// acme <nil>
	// acme sema: no permit available: "tenants/acme"
	// initech <nil>
	// initech sema: no permit available: "tenants"
	// 2 open
}

// The work ends with its context, with the key's permit, and with the total's.
func ExampleKeys_Do() {
	keys, _ := sema.NewKeys(memengine.New(), "hosts", 1, &sema.KeysOptions{Total: 20})
	err := keys.Do(context.Background(), "example.org", func(ctx context.Context) error {
		fmt.Println("nobody else asks example.org")
		return ctx.Err()
	})
	fmt.Println(err, keys.Close())
	// Output:
	// nobody else asks example.org
	// <nil> <nil>
}

// A tenant that paid for five.
func ExampleKeys_Use() {
	ctx := context.Background()
	engine := memengine.New()
	keys, _ := sema.NewKeys(engine, "tenants", 2, nil)
	name, _ := keys.Name("acme")
	operator, _ := sema.Operate(engine, name)
	_ = operator.SetLimit(ctx, 5)
	err := keys.Use("acme", func(sem *sema.Semaphore) error {
		free, err := sem.Available(ctx)
		fmt.Println(sem.Name(), free)
		return err
	})
	fmt.Println(err)
	permit, err := keys.AcquireN(ctx, "acme", 5)
	fmt.Println(permit.Weight(), err, permit.Err(), permit.Release())
	_ = keys.Close()
	// Output:
	// tenants/acme 5
	// <nil>
	// 5 <nil> <nil> <nil>
}

// What operators see, and what no key can be.
func ExampleKeys_Name() {
	keys, _ := sema.NewKeys(memengine.New(), "hosts", 2, nil)
	fmt.Println(keys.Name("example.org:8080"))
	_, err := keys.Name("")
	var refused *sema.ArgumentError
	fmt.Println(errors.As(err, &refused), err)
	_ = keys.Close()
	// Output:
	// hosts/example.org:8080 <nil>
	// true sema: key "": want a key that is not empty
}
