// Command river has three clients with ten workers each work off forty jobs, of
// which four may run at once.
//
//	go run ./river
//
// starts PostgreSQL for River, and Redis for sema. limit.go is what a program
// needs of it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

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

const clients, workers, atOnce, jobs = 3, 10, 4, 40

// report is a job.
type report struct{}

func (report) Kind() string { return "report" }

// reporter does it, and counts how many are done at once.
type reporter struct {
	river.WorkerDefaults[report]
	now, most atomic.Int64
	done      chan struct{}
}

func (r *reporter) Work(ctx context.Context, _ *river.Job[report]) error {
	n := r.now.Add(1)
	for m := r.most.Load(); n > m && !r.most.CompareAndSwap(m, n); m = r.most.Load() {
	}
	time.Sleep(20 * time.Millisecond) // the work
	r.now.Add(-1)
	if err := ctx.Err(); err != nil {
		return err // River tries again
	}
	r.done <- struct{}{}
	return nil
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

	r := &reporter{done: make(chan struct{}, jobs)}
	var client *river.Client[pgx.Tx]
	for i := range clients {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Address, ContextTimeoutEnabled: true})
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
		kinds := river.NewWorkers()
		river.AddWorker(kinds, r)
		client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
			ID:         fmt.Sprint("client ", i),
			Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
			Workers:    kinds,
			Middleware: []rivertype.Middleware{&limit{sem: sem}},
			Logger:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		c := client
		defer func() { _ = c.Stop(context.WithoutCancel(ctx)) }()
	}
	for range jobs {
		if _, err := client.Insert(ctx, report{}, nil); err != nil {
			return err
		}
	}
	for i := range jobs {
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d jobs done: %w", i, jobs, ctx.Err())
		}
	}
	if r.most.Load() > atOnce {
		return fmt.Errorf("%d jobs at once", r.most.Load())
	}
	fmt.Fprintf(out, "%d workers have done %d jobs, never more than %d at once\n", clients*workers, jobs, atOnce)
	return nil
}
