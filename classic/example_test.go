package classic_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
	"sema/internal/fixture/local"
)

// connect gives an example a client, with a server of its own.
func connect() (*redis.Client, func()) {
	server, err := local.Redis(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Address})
	return rdb, func() { _ = rdb.Close(); server.Stop() }
}

// Two services share a semaphore with the book's Python: same name, same
// limit, same lease.
func ExampleScripted() {
	rdb, done := connect()
	defer done()
	ctx := context.Background()

	sem, err := classic.NewScripted(rdb, "github-api", 1, classic.Options{Lease: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	id, ok, err := sem.Acquire(ctx)
	if err != nil {
		log.Fatal(err) // Redis cannot be asked
	}
	if !ok {
		return // all permits are out: try later
	}
	// Give it back even when ctx has ended.
	defer func() { _, _ = sem.Release(context.WithoutCancel(ctx), id) }()

	_, another, _ := sem.Acquire(ctx)
	fmt.Println("another one:", another)

	// Long work refreshes well within the lease, and stops when that is false.
	held, err := sem.Refresh(ctx, id)
	fmt.Println("still held:", held, err)
	// Output:
	// another one: false
	// still held: true <nil>
}

// A wrong clock is enough to get one permit too many from the basic one.
func ExampleBasic() {
	rdb, done := connect()
	defer done()
	ctx := context.Background()

	right, err := classic.NewBasic(rdb, "printer", 1, classic.Options{})
	if err != nil {
		log.Fatal(err)
	}
	behind := func() time.Time { return time.Now().Add(-time.Minute) }
	slow, err := classic.NewBasic(rdb, "printer", 1, classic.Options{Clock: behind})
	if err != nil {
		log.Fatal(err)
	}
	_, first, _ := right.Acquire(ctx)
	_, second, _ := slow.Acquire(ctx)
	fmt.Println(first, second, "holders of 1:", rdb.ZCard(ctx, "printer").Val())
	// Output: true true holders of 1: 2
}

func ExampleLock() {
	rdb, done := connect()
	defer done()
	ctx := context.Background()

	lock, err := classic.NewLock(rdb, "report", classic.Options{
		Wait:  5 * time.Millisecond, // the book's acquire_timeout
		Lease: 10 * time.Second,     // the book's lock_timeout
		Lua:   true,
	})
	if err != nil {
		log.Fatal(err)
	}
	id, ok, _ := lock.Acquire(ctx)
	fmt.Println("locked:", ok)
	_, ok, _ = lock.Acquire(ctx)
	fmt.Println("locked twice:", ok)
	ok, _ = lock.Release(ctx, id)
	fmt.Println("released:", ok)
	// Output:
	// locked: true
	// locked twice: false
	// released: true
}

func ExampleClockless_AcquireFor() {
	rdb, done := connect()
	defer done()
	ctx := context.Background()

	sem, err := classic.NewClockless(rdb, "gpu", 2, classic.Options{Lua: true})
	if err != nil {
		log.Fatal(err)
	}
	_, quick, _ := sem.AcquireFor(ctx, time.Second)
	id, batch, _ := sem.AcquireFor(ctx, time.Hour)
	fmt.Println(quick, batch)
	longer, err := sem.Extend(ctx, id, time.Hour)
	fmt.Println(longer, err, rdb.TTL(ctx, "gpu:holder:"+id).Val().Round(time.Hour))
	// Output:
	// true true
	// true <nil> 2h0m0s
}

func ExampleArgumentError() {
	rdb, done := connect()
	defer done()

	_, err := classic.NewFair(rdb, "api", 0, classic.Options{})
	fmt.Println(err)
	// Output: classic: limit 0: want 1 to 2147483647
}
