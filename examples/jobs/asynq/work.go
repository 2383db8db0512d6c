package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/engines/redisengine"
)

// So many tasks of each type run at once, and in all, whatever the number of
// servers.
var limits = map[string]int{"report": 2, "mail": 3}

const inAll = 4

// setLimits stores the limits for good.
func setLimits(ctx context.Context, engine sema.Engine) error {
	operator, err := sema.Operate(engine, "tasks")
	if err != nil {
		return err
	}
	err = operator.Set(ctx, sema.Rule{Limit: inAll, Caps: sema.Caps{1}})
	for name, most := range limits {
		err = errors.Join(err, operator.Set(ctx, sema.Rule{Limit: most}, name))
	}
	return errors.Join(err, operator.Close())
}

// work starts a server that keeps the limits. stop shuts it down.
func work(rdb redis.UniversalClient, mux *asynq.ServeMux) (stop func(), err error) {
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return nil, err
	}
	sem, err := sema.New(engine, "tasks", inAll, &sema.Options{Caps: sema.Caps{1}})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	letGo := func() {
		_ = sem.Close()
		_ = engine.Close()
	}
	if err := setLimits(context.Background(), engine); err != nil {
		letGo()
		return nil, err
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
