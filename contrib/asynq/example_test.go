package semaasynq_test

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/engine/memengine"
)

// Twenty tasks at once on all servers together, five of each type, and of reports
// two. Reports have a queue of their own, which is left alone while reports wait.
func ExampleNew() {
	sem, err := sema.New(memengine.New(), "tasks", 20, &sema.Options{PerKey: 5})
	if err == nil {
		err = sem.For("report").Set(context.Background(), sema.Rule{Limit: 2})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Queues: map[string]string{"reports": "report"}})
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
