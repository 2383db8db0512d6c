// Command river has three clients with ten workers each work off reports, of which
// two may run at once, and mails, of which three may; and four in all.
//
//	go run ./river
//
// starts PostgreSQL for River, and Redis for sema. work.go is what a program needs
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

	"sema/examples/jobs/internal/counter"
	"sema/internal/fixture/local"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const clients, reports, mails = 3, 20, 40

// report and mail are jobs.
type (
	report struct{}
	mail   struct{}
)

func (report) Kind() string { return "report" }
func (mail) Kind() string   { return "mail" }

// worker does one of them, and counts how many are done at once.
func worker[J river.JobArgs](count *counter.Counter) river.Worker[J] {
	return river.WorkFunc(func(ctx context.Context, job *river.Job[J]) error {
		return count.Work(job.Kind, func() error {
			time.Sleep(20 * time.Millisecond)
			return ctx.Err() // the permit is lost: River tries again
		})
	})
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

	var count counter.Counter
	logging.Disable() // what matters comes as an error of sema
	for range clients {
		rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Address, ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		workers := river.NewWorkers()
		river.AddWorker(workers, worker[report](&count))
		river.AddWorker(workers, worker[mail](&count))
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
	for _, of := range []struct {
		job river.JobArgs
		n   int
	}{{report{}, reports}, {mail{}, mails}} {
		for range of.n {
			if _, err := client.Insert(ctx, of.job, nil); err != nil {
				return err
			}
		}
	}
	if err := count.Await(ctx, reports+mails); err != nil {
		return err
	}
	for _, of := range []struct {
		name  string
		limit int
	}{{"report", limits["report"]}, {"mail", limits["mail"]}, {"in all", inAll}} {
		if err := count.Say(out, of.name, of.limit); err != nil {
			return err
		}
	}
	return nil
}
