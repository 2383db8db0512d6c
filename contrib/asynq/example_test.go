package semaasynq_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/engines/memengine"
)

// Twenty tasks at once on all servers together, five of each type, and of reports
// two. Reports have a queue of their own, which is left alone while reports wait.
func ExampleNew() {
	engine, ctx := memengine.New(), context.Background()
	sem, err := sema.New(engine, "tasks", 20, &sema.Options{Caps: sema.Caps{5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	operator, err := sema.Operate(engine, "tasks")
	if err == nil {
		err = errors.Join(operator.Set(ctx, sema.Rule{Limit: 20, Caps: sema.Caps{5}}), operator.Set(ctx, sema.Rule{Limit: 2}, "report"), operator.Close())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Queues: map[string][]string{"reports": {"report"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := asynq.NewServeMux()
	mux.Use(limiter.Middleware)
	mux.HandleFunc("report", func(ctx context.Context, _ *asynq.Task) error { return ctx.Err() })

	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	server := limiter.NewServer(rdb, asynq.Config{Concurrency: 10, Queues: map[string]int{"default": 1, "reports": 1}})
	_ = server // server.Run(mux) works on tasks until the process is told to end
	fmt.Println(rdb.Close(), sem.Close())
	// Output: <nil> <nil>
}
