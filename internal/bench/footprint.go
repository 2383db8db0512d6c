package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sema"
)

// footprint: what permits and waiters cost the server's memory.
func footprint(ctx context.Context, b *bench) (Result, error) {
	r := Result{
		About: "MEMORY USAGE of all keys of a semaphore with N permits held, and of one with N waiters, divided by N",
		Unit:  "permits and waiters",
	}
	for _, n := range slices.Compact(slices.Sorted(slices.Values([]int{1, 100, b.Permits}))) {
		if n > b.Permits {
			break
		}
		b.at("memory, N=%d", n)
		permit, err := b.permitBytes(ctx, n)
		if err != nil {
			return r, err
		}
		waiter, err := b.waiterBytes(ctx, n)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, Row{Case: fmt.Sprintf("N=%d", n), Who: "sema", Count: int64(n), Permit: &permit, Waiter: &waiter})
	}
	return r, nil
}

func (b *bench) permitBytes(ctx context.Context, n int) (float64, error) {
	name := b.name(fmt.Sprintf("permits-%d", n))
	sems, closing, err := b.open([]string{name}, n, sema.Options{})
	defer closing()
	if err != nil {
		return 0, err
	}
	b.tell(": acquiring")
	if err := hold(ctx, sems[0], n); err != nil {
		return 0, err
	}
	return b.bytes(ctx, name, n)
}

func (b *bench) waiterBytes(ctx context.Context, n int) (float64, error) {
	name := b.name(fmt.Sprintf("waiters-%d", n))
	l, err := b.fill(ctx, name, n)
	defer l.close()
	if err != nil {
		return 0, err
	}
	return b.bytes(ctx, name, n)
}

// bytes are those of all keys of a semaphore, each element looked at, for each
// of n.
func (b *bench) bytes(ctx context.Context, name string, n int) (float64, error) {
	server, err := master(ctx, b.Redis, name)
	if err != nil {
		return 0, err
	}
	keys, err := keysOf(ctx, server, name+"}:*")
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, key := range keys {
		used, err := server.MemoryUsage(ctx, key, 0).Result()
		if err != nil && err != redis.Nil { // gone since
			return 0, fmt.Errorf("MEMORY USAGE: %w", err)
		}
		sum += used
	}
	return float64(sum) / float64(n), nil
}
