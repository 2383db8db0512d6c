// Command river has three clients with ten workers each work off reports, of which
// two may run at once, and mails, of which three may; and four in all.
//
//	go run ./jobs/river
//
// starts PostgreSQL for River, and Redis for sema. work is what a program needs
// of it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"sema/contrib/river"
	"sema/examples/jobs/internal/jobs"
	"sema/internal/fixture/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work starts a client that keeps the limits. stop stops it.
func work(ctx context.Context, rdb redis.UniversalClient, pool *pgxpool.Pool, workers *river.Workers) (stop func(), err error) {
	sem, end, err := jobs.Open(ctx, rdb)
	if err != nil {
		return nil, err
	}
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem})
	if err != nil {
		end()
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
		end()
		return nil, err
	}
	return func() { _ = client.Stop(context.WithoutCancel(ctx)); end() }, nil
}

const clients = 3

type (
	report struct{}
	mail   struct{}
)

func (report) Kind() string { return "report" }
func (mail) Kind() string   { return "mail" }

// worker does jobs of one kind, and counts how many are done at once.
func worker[J river.JobArgs](count *jobs.Count) river.Worker[J] {
	return river.WorkFunc(func(ctx context.Context, job *river.Job[J]) error { return count.Work(ctx, job.Kind) })
}

func demo(ctx context.Context, out io.Writer) error {
	redisServer, err := local.Redis(ctx)
	if err != nil {
		return err
	}
	defer redisServer.Stop()
	db, err := local.Postgres(ctx)
	if err != nil {
		return err
	}
	defer db.Stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, db.Address)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}

	count := jobs.NewCount()
	logging.Disable() // what matters comes as an error of sema
	for range clients {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Address, ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		workers := river.NewWorkers()
		river.AddWorker(workers, worker[report](count))
		river.AddWorker(workers, worker[mail](count))
		stop, err := work(ctx, rdb, pool, workers)
		if err != nil {
			return err
		}
		defer stop()
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	args := map[string]river.JobArgs{"report": report{}, "mail": mail{}}
	for _, kind := range jobs.Kinds {
		for range kind.Number {
			if _, err := client.Insert(ctx, args[kind.Name], nil); err != nil {
				return err
			}
		}
	}
	return count.Tell(ctx, out)
}
