package semariver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/river"
	"sema/engines/redisengine"
	"sema/internal/fixture/atonce"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
)

func TestMain(m *testing.M) {
	child.Role("worker", work)
	child.Play()
	goleak.VerifyTestMain(m)
}

// mail and report are two kinds of jobs.
type (
	mail   struct{}
	report struct{}
)

func (mail) Kind() string   { return "mail" }
func (report) Kind() string { return "report" }

// doing are workers that do the same for both kinds.
func doing(work func(ctx context.Context, job *rivertype.JobRow) error) *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[mail]) error { return work(ctx, job.JobRow) }))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[report]) error { return work(ctx, job.JobRow) }))
	return workers
}

// quick is a config that looks for jobs often, and logs nothing.
func quick(workers int, work func(ctx context.Context, job *rivertype.JobRow) error, middleware ...rivertype.Middleware) *river.Config {
	return &river.Config{
		Queues:              map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:             doing(work),
		Middleware:          middleware,
		FetchOnlyKnownKinds: true,
		FetchCooldown:       5 * time.Millisecond,
		FetchPollInterval:   20 * time.Millisecond,
		RetryPolicy:         soon{},
		Logger:              slog.New(slog.DiscardHandler),
	}
}

// soon retries a failed job at once.
type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// worker is the job of a process.
type worker struct {
	Redis, Postgres string
	Label           string
	Sleep           time.Duration // a job's work
}

// The limits that all processes have: so many jobs of each kind, and in all.
const ofKind, inAll = 2, 3

// work works on jobs until its parent has no more orders.
func work(w worker) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: w.Redis, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	sem, err := sema.New(engine, "jobs", inAll, &sema.Options{Caps: sema.Caps{ofKind}, Lease: 5 * time.Second, Label: w.Label})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	limiter, err := semariver.New(semariver.Limit{Semaphore: sem, Wait: 200 * time.Millisecond, Back: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, w.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	config := quick(10, func(ctx context.Context, job *rivertype.JobRow) error {
		atonce.Work(job.Kind, fmt.Sprint(job.ID), func() { time.Sleep(w.Sleep) })
		return ctx.Err()
	}, limiter)
	config.ID = w.Label
	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(pool)), config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	fmt.Println("works")
	if _, err := child.Order(); err != io.EOF {
		return err
	}
	return client.Stop(ctx)
}

// ground is what a test has of River.
type ground struct {
	tb       testing.TB
	postgres string
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx] // inserts only
}

func newGround(tb testing.TB) *ground {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server")
	}
	server, err := local.Postgres(tb.Context())
	expect.OK(tb, err)
	tb.Cleanup(server.Stop)
	g := &ground{tb: tb, postgres: server.Address}
	g.pool = g.newPool()
	migrator, err := rivermigrate.New(riverpgxv5.New(g.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	expect.OK(tb, err)
	_, err = migrator.Migrate(tb.Context(), rivermigrate.DirectionUp, nil)
	expect.OK(tb, err)
	g.client, err = river.NewClient(riverpgxv5.New(g.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	expect.OK(tb, err)
	return g
}

func (g *ground) newPool() *pgxpool.Pool {
	g.tb.Helper()
	pool, err := pgxpool.New(g.tb.Context(), g.postgres)
	expect.OK(g.tb, err)
	g.tb.Cleanup(pool.Close)
	return pool
}

// add adds jobs of a kind.
func (g *ground) add(kind river.JobArgs, n int, options *river.InsertOpts) {
	g.tb.Helper()
	many := make([]river.InsertManyParams, n)
	for i := range many {
		many[i] = river.InsertManyParams{Args: kind, InsertOpts: options}
	}
	_, err := g.client.InsertMany(g.tb.Context(), many)
	expect.OK(g.tb, err)
}

// count counts the jobs for which a condition holds.
func (g *ground) count(where string, args ...any) (n int) {
	g.tb.Helper()
	expect.OK(g.tb, g.pool.QueryRow(g.tb.Context(), "SELECT count(*) FROM river_job WHERE "+where, args...).Scan(&n))
	return n
}

// allDone waits until jobs are done, and wants each to have had one attempt.
func (g *ground) allDone(n int) {
	g.tb.Helper()
	expect.Until(g.tb, fmt.Sprintf("%d jobs are done", n), func() bool { return g.count("state = 'completed'") >= n })
	if f := g.count("state <> 'completed' OR attempt <> 1 OR array_length(errors, 1) > 0"); f != 0 {
		g.tb.Errorf("%d of %d jobs have failed, or had more than one attempt; want none", f, n)
	}
}

// start starts a client, which works on jobs until the test ends.
func (g *ground) start(limiter *semariver.Limiter, config *river.Config) {
	g.tb.Helper()
	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(g.newPool())), config)
	expect.OK(g.tb, err)
	expect.OK(g.tb, client.Start(context.WithoutCancel(g.tb.Context())))
	g.tb.Cleanup(func() { expect.OK(g.tb, client.Stop(context.Background())) })
}

// engineAt is a client's engine, at a Redis at that address.
func engineAt(tb testing.TB, network, addr string) *redisengine.Engine {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Network: network, Addr: addr, ContextTimeoutEnabled: true})
	engine, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		expect.OK(tb, engine.Close())
		expect.OK(tb, rdb.Close())
	})
	return engine
}

// connect is for what needs a pool, and no server.
func connect() *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1/jobs")
	if err != nil {
		panic(err)
	}
	return pool
}
