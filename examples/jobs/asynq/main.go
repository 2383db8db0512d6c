// Command asynq has three servers with ten workers each work off forty tasks, of
// which four may run at once.
//
//	go run ./asynq
//
// starts Redis for both asynq and sema. limit.go is what a program needs of it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine/redisengine"
	"sema/lab/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const servers, workers, atOnce, tasks = 3, 10, 4, 40

func demo(ctx context.Context, out io.Writer) error {
	server, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	var now, most, done atomic.Int64
	var all sync.WaitGroup
	all.Add(tasks)
	work := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond) // the work
		now.Add(-1)
		if err := ctx.Err(); err != nil {
			return err // asynq tries again
		}
		done.Add(1)
		all.Done()
		return nil
	})
	for range servers {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address, ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		engine, err := redisengine.New(rdb, nil)
		if err != nil {
			return err
		}
		defer func() { _ = engine.Close() }()
		sem, err := sema.New(engine, "reports", atOnce, nil)
		if err != nil {
			return err
		}
		defer func() { _ = sem.Close() }()
		mux := asynq.NewServeMux()
		mux.Use(limit(sem))
		mux.Handle("report", work)
		s := asynq.NewServerFromRedisClient(rdb, config(workers))
		if err := s.Start(mux); err != nil {
			return err
		}
		defer s.Shutdown()
	}

	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address})
	defer func() { _ = rdb.Close() }()
	client := asynq.NewClientFromRedisClient(rdb)
	for range tasks {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("report", nil), asynq.MaxRetry(3)); err != nil {
			return err
		}
	}
	if err := await(ctx, &all); err != nil {
		return fmt.Errorf("%d of %d tasks done: %w", done.Load(), tasks, err)
	}
	if most.Load() > atOnce {
		return fmt.Errorf("%d tasks at once", most.Load())
	}
	fmt.Fprintf(out, "%d workers have done %d tasks, never more than %d at once\n", servers*workers, done.Load(), atOnce)
	return nil
}

// await waits until all is done.
func await(ctx context.Context, all *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
