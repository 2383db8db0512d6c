package sema_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"sema"
	"sema/engine/memengine"
)

// Two at once for each tenant, and three in all.
func ExampleSemaphore_For() {
	ctx := context.Background()
	sem, err := sema.New(memengine.New(), "api", 3, &sema.Options{PerKey: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()

	for _, tenant := range []string{"acme", "acme", "acme", "initech", "initech"} {
		permit, err := sem.For(tenant).TryAcquire(ctx)
		fmt.Println(tenant, err)
		if err == nil {
			defer func() { _ = permit.Release() }()
		}
	}
	state, err := sem.State(ctx)
	for _, key := range state.Keys {
		fmt.Println(key.Key, "holds", key.Held, "of", key.Cap)
	}
	// Output:
	// acme <nil>
	// acme <nil>
	// acme sema: no permit available: "api"
	// initech <nil>
	// initech sema: no permit available: "api"
	// acme holds 2 of 2
	// initech holds 1 of 2
}

// keyOf is what operators see of an API key. The pepper is the program's own secret, the
// same in all processes.
func keyOf(pepper []byte, apiKey string) string {
	mac := hmac.New(sha256.New, pepper)
	mac.Write([]byte(apiKey))
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// A key that is a secret is hashed, so that operators do not see it.
func ExampleSemaphore_For_secret() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "api", 20, &sema.Options{PerKey: 2})
	defer func() { _ = sem.Close() }()

	permit, err := sem.For(keyOf([]byte("pepper"), "sk-live-1234")).Acquire(ctx)
	fmt.Println(permit.Key(), err, permit.Release())
	// Output:
	// b07f797a3e94cd5b797ea006 <nil> <nil>
}

// A tenant that paid for more: up to three at once, and three times as large a share
// while others wait as well.
func ExampleKey_Set() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "api", 4, &sema.Options{PerKey: 2})
	defer func() { _ = sem.Close() }()

	acme := sem.For("acme")
	fmt.Println(acme.Set(ctx, sema.KeyRule{Cap: 3, Share: 3 * sema.DefaultShare}))
	permit, err := acme.AcquireN(ctx, 3)
	fmt.Println(permit.Key(), permit.Weight(), err, permit.Release())
	fmt.Println(acme.Unset(ctx))
	_, err = acme.AcquireN(ctx, 3)
	fmt.Println(err)
	// Output:
	// <nil>
	// acme 3 <nil> <nil>
	// <nil>
	// sema: weight 3 is above the 2 that key "acme" of "api" may hold
}

// One at a time for each host, however many hosts there are.
func ExampleKeys() {
	keys, _ := sema.NewKeys(memengine.New(), "hosts", 1, nil)
	ctx := context.Background()
	permit, _ := keys.Acquire(ctx, "example.org")
	_, err := keys.TryAcquire(ctx, "example.org")
	fmt.Println(err)
	other, err := keys.TryAcquire(ctx, "example.net")
	fmt.Println(err, keys.Len(), "open")
	fmt.Println(other.Release(), permit.Release(), keys.Close())
	// Output:
	// sema: no permit available: "hosts/example.org"
	// <nil> 2 open
	// <nil> <nil> <nil>
}

// The work ends with its context, and with the key's permit.
func ExampleKeys_Do() {
	keys, _ := sema.NewKeys(memengine.New(), "hosts", 1, nil)
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
