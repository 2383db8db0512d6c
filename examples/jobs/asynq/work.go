package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/engine/redisengine"
)

// So many tasks of each type run at once, and in all, whatever the number of
// servers.
var limits = map[string]int{"report": 2, "mail": 3}

const inAll = 4

// work starts a server that keeps the limits. stop shuts it down.
func work(rdb redis.UniversalClient, mux *asynq.ServeMux) (stop func(), err error) {
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return nil, err
	}
	sem, err := sema.New(engine, "tasks", inAll, &sema.Options{PerKey: 1})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	letGo := func() {
		_ = sem.Close()
		_ = engine.Close()
	}
	for name, most := range limits {
		if err := sem.For(name).Set(context.Background(), sema.Rule{Limit: most}); err != nil {
			letGo()
			return nil, err
		}
	}
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem})
	if err != nil {
		letGo()
		return nil, err
	}
	mux.Use(limiter.Middleware)
	server := limiter.NewServer(rdb, asynq.Config{
		Concurrency:              10,
		DelayedTaskCheckInterval: time.Second, // tasks that went back come again soon
		LogLevel:                 asynq.ErrorLevel,
	})
	if err := server.Start(mux); err != nil {
		letGo()
		return nil, err
	}
	return func() { server.Shutdown(); letGo() }, nil
}
