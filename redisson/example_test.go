package redisson_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/local"
	"sema/redisson"
)

func server() (addr string, end func()) {
	s, err := local.Redis(context.Background())
	if err != nil {
		panic(err)
	}
	return s.Address, s.Stop
}

func Example() {
	addr, end := server()
	defer end()
	ctx := context.Background()

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, err := redisson.New(rdb, nil) // one per process
	if err != nil {
		panic(err)
	}
	defer client.Close()

	printers, err := client.Semaphore("printers")
	if err != nil {
		panic(err)
	}
	created, err := printers.TrySetPermits(ctx, 2, 0) // false if Java was first
	fmt.Println("created:", created, err)

	if err := printers.Acquire(ctx, 2); err != nil {
		panic(err)
	}
	err = printers.TryAcquire(ctx, 1)
	fmt.Println("one more:", errors.Is(err, redisson.ErrBusy))
	err = printers.Release(ctx, 2) // also if ctx has ended
	fmt.Println("released:", err)
	// Output:
	// created: true <nil>
	// one more: true
	// released: <nil>
}

// What Redisson calls wait time is a context's deadline here.
func ExampleSemaphore_Acquire_waitTime() {
	addr, end := server()
	defer end()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, _ := redisson.New(rdb, nil)
	defer client.Close()
	printers, _ := client.Semaphore("printers")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := printers.Acquire(ctx, 1)
	fmt.Println(errors.Is(err, redisson.ErrBusy), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleExpirableSemaphore() {
	addr, end := server()
	defer end()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, _ := redisson.New(rdb, nil)
	defer client.Close()

	seats, err := client.ExpirableSemaphore("seats")
	if err != nil {
		panic(err)
	}
	if err := seats.SetPermits(ctx, 10); err != nil {
		panic(err)
	}
	id, err := seats.Acquire(ctx, time.Minute)
	if err != nil {
		panic(err)
	}
	fmt.Println("id:", len(id), "digits")
	ok, err := seats.UpdateLeaseTime(ctx, id, time.Hour)
	fmt.Println("renewed:", ok, err)
	held, err := seats.AcquiredPermits(ctx)
	fmt.Println("held:", held, err)
	fmt.Println("released:", seats.Release(ctx, id))
	err = seats.Release(ctx, id)
	fmt.Println("again:", errors.Is(err, redisson.ErrNotHeld))
	// Output:
	// id: 32 digits
	// renewed: true <nil>
	// held: 1 <nil>
	// released: <nil>
	// again: true
}
