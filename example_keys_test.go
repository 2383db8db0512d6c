package sema_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"sema"
	"sema/engines/memengine"
)

// Two at once for each tenant, and three in all.
func ExampleFor() {
	ctx := context.Background()
	sem, err := sema.New(memengine.New(), "api", 3, &sema.Options{Caps: sema.Caps{2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()

	for _, tenant := range []string{"acme", "acme", "acme", "initech", "initech"} {
		permit, err := sem.TryAcquire(ctx, sema.For(tenant))
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
	// initech sema: no permit available: "api": 3 of 3 held
	// acme holds 2 of 2
	// initech holds 1 of 2
}

// Limits within limits: three at once in all, two for each organisation, one for each user of one. A user
// at her cap blocks nobody, and a full organisation none of another.
func ExampleFor_path() {
	ctx := context.Background()
	sem, err := sema.New(memengine.New(), "api", 3, &sema.Options{Caps: sema.Caps{2, 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()

	for _, path := range [][]string{{"acme", "alice"}, {"acme", "alice"}, {"acme", "bob"}, {"acme", "carol"}, {"initech", "alice"}} {
		permit, err := sem.TryAcquire(ctx, sema.For(path...))
		fmt.Println(path, err)
		if err == nil {
			defer func() { _ = permit.Release() }()
		}
	}
	state, err := sem.State(ctx)
	for _, key := range state.Keys {
		fmt.Println(key.Key, "holds", key.Held, "of", key.Cap)
	}
	// Output:
	// [acme alice] <nil>
	// [acme alice] sema: no permit available: "api"
	// [acme bob] <nil>
	// [acme carol] sema: no permit available: "api"
	// [initech alice] <nil>
	// acme holds 2 of 2
	// acme/alice holds 1 of 1
	// acme/bob holds 1 of 1
	// initech holds 1 of 2
	// initech/alice holds 1 of 1
}

// Several limits at once: a simulation takes a licence, a GPU and a connection, all of them in one step or none. A test
// that wants a connection alone goes on while the next simulation waits for the licence.
func ExampleTake() {
	ctx := context.Background()
	sem, err := sema.New(memengine.New(), "ci", 100, &sema.Options{Pools: "db=3,gpu=2,licence=1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	simulation := []sema.AcquireOption{sema.Take("db", 1), sema.Take("gpu", 1), sema.Take("licence", 1)}

	first, err := sem.Acquire(ctx, simulation...)
	fmt.Println("a simulation:", err)
	_, err = sem.TryAcquire(ctx, simulation...)
	fmt.Println("another one:", err)
	test, err := sem.TryAcquire(ctx, sema.Take("db", 1))
	fmt.Println("a test:", err)
	state, _ := sem.State(ctx)
	for _, pool := range state.Pools {
		fmt.Println(pool.Pool, pool.Used, "of", pool.Limit)
	}
	_, err = sem.Acquire(ctx, sema.Take("gpu", 3))
	fmt.Println(err)
	fmt.Println(test.Release(), first.Release())
	// Output:
	// a simulation: <nil>
	// another one: sema: no permit available: "ci"
	// a test: <nil>
	// db 2 of 3
	// gpu 1 of 2
	// licence 1 of 1
	// sema: 3 of pool "gpu" is above the 2 that "ci" has
	// <nil> <nil>
}

// keyOf is what operators see of an API key. The pepper is the program's own secret, the
// same in all processes.
func keyOf(pepper []byte, apiKey string) string {
	mac := hmac.New(sha256.New, pepper)
	mac.Write([]byte(apiKey))
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// A key that is a secret is hashed, so that operators do not see it.
func ExampleFor_secret() {
	ctx := context.Background()
	sem, _ := sema.New(memengine.New(), "api", 20, &sema.Options{Caps: sema.Caps{2}})
	defer func() { _ = sem.Close() }()

	permit, err := sem.Acquire(ctx, sema.For(keyOf([]byte("pepper"), "sk-live-1234")))
	state, _ := sem.State(ctx)
	fmt.Println(state.Holders[0].Key, err, permit.Release())
	// Output:
	// b07f797a3e94cd5b797ea006 <nil> <nil>
}

// A tenant that paid for more: up to three at once, and three times as large a share
// while others wait as well.
func ExampleOperator_Set_key() {
	ctx := context.Background()
	engine := memengine.New()
	sem, _ := sema.New(engine, "api", 4, &sema.Options{Caps: sema.Caps{2}})
	defer func() { _ = sem.Close() }()
	permit, _ := sem.Acquire(ctx, sema.For("acme")) // the semaphore exists from here on
	_ = permit.Release()

	operator, _ := sema.Operate(engine, "api")
	defer func() { _ = operator.Close() }()
	fmt.Println(operator.Set(ctx, sema.Rule{Limit: 3, Share: 300}, "acme"))
	permit, err := sem.Acquire(ctx, sema.For("acme"), sema.Weight(3))
	fmt.Println(permit.Weight(), err, permit.Release())
	fmt.Println(operator.Unset(ctx, "acme"))
	_, err = sem.Acquire(ctx, sema.For("acme"), sema.Weight(3))
	fmt.Println(err)
	// Output:
	// <nil>
	// 3 <nil> <nil>
	// <nil>
	// sema: weight 3 is above the 2 that key "acme" of "api" may hold
}
