package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/contrib/river"
	"sema/engines/redisengine"
)

// So many jobs of each kind run at once, and in all, whatever the number of
// clients.
var limits = map[string]int{"report": 2, "mail": 3}

const inAll = 4

// setLimits stores the limits for good.
func setLimits(ctx context.Context, engine sema.Engine) error {
	operator, err := sema.Operate(engine, "jobs")
	if err != nil {
		return err
	}
	err = operator.Set(ctx, sema.Rule{Limit: inAll, Caps: sema.Caps{1}})
	for name, most := range limits {
		err = errors.Join(err, operator.Set(ctx, sema.Rule{Limit: most}, name))
	}
	return errors.Join(err, operator.Close())
}

// work starts a client that keeps the limits. stop stops it.
func work(ctx context.Context, rdb redis.UniversalClient, pool *pgxpool.Pool, workers *river.Workers) (stop func(), err error) {
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return nil, err
	}
	sem, err := sema.New(engine, "jobs", inAll, &sema.Options{Caps: sema.Caps{1}})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	letGo := func() {
		_ = sem.Close()
		_ = engine.Close()
	}
	if err := setLimits(ctx, engine); err != nil {
		letGo()
		return nil, err
	}
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem})
	if err != nil {
		letGo()
		return nil, err
	}
	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(pool)), &river.Config{
		Queues:              map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:             workers,
		Middleware:          []rivertype.Middleware{limiter},
		FetchOnlyKnownKinds: true, // so that the driver can leave out a kind
		Logger:              slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		letGo()
		return nil, err
	}
	return func() { _ = client.Stop(context.WithoutCancel(ctx)); letGo() }, nil
}
