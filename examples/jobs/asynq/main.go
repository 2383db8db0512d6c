// Command asynq has three servers with ten workers each work off reports, of which
// two may run at once, and mails, of which three may; and four in all.
//
//	go run ./jobs/asynq
//
// starts Redis for both asynq and sema. work is what a program needs of it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"sema/contrib/asynq"
	"sema/examples/jobs/internal/jobs"
	"sema/internal/fixture/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work starts a server that keeps the limits. stop shuts it down.
func work(ctx context.Context, rdb redis.UniversalClient, mux *asynq.ServeMux) (stop func(), err error) {
	sem, end, err := jobs.Open(ctx, rdb)
	if err != nil {
		return nil, err
	}
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem})
	if err != nil {
		end()
		return nil, err
	}
	mux.Use(limiter.Middleware)
	server := limiter.NewServer(rdb, asynq.Config{
		Concurrency:              10,
		DelayedTaskCheckInterval: time.Second, // tasks that went back come again soon
		LogLevel:                 asynq.ErrorLevel,
	})
	if err := server.Start(mux); err != nil {
		end()
		return nil, err
	}
	return func() { server.Shutdown(); end() }, nil
}

const servers = 3

func demo(ctx context.Context, out io.Writer) error {
	server, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	logging.Disable() // what matters comes as an error of sema
	connect := func() *redis.Client {
		return redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address, ContextTimeoutEnabled: true})
	}
	count := jobs.NewCount()
	for range servers {
		mux := asynq.NewServeMux()
		for _, kind := range jobs.Kinds {
			mux.HandleFunc(kind.Name, func(ctx context.Context, _ *asynq.Task) error { return count.Work(ctx, kind.Name) })
		}
		rdb := connect()
		defer func() { _ = rdb.Close() }()
		stop, err := work(ctx, rdb, mux)
		if err != nil {
			return err
		}
		defer stop()
	}

	rdb := connect()
	defer func() { _ = rdb.Close() }()
	client := asynq.NewClientFromRedisClient(rdb)
	for _, kind := range jobs.Kinds {
		for range kind.Number {
			if _, err := client.EnqueueContext(ctx, asynq.NewTask(kind.Name, nil), asynq.MaxRetry(3)); err != nil {
				return err
			}
		}
	}
	return count.Tell(ctx, out)
}
