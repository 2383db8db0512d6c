package semariver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sema"
	"sema/contrib/river"
	"sema/engines/redisengine"
)

// How many jobs a second three clients with ten workers each do, with a limiter
// beside without, in turns:
//
//	free   nothing waits: each job takes a permit of its kind and one of the total.
//	       Beside that, the same clients without a limiter. The jobs do nothing.
//	full   a job takes 20 ms, and 6 may run at once. Beside that, clients without a
//	       limiter that have 6 workers together.
func BenchmarkThroughput(b *testing.B) {
	b.Run("free", func(b *testing.B) { throughput(b, 2000, 0, 10, 30) })
	b.Run("full", func(b *testing.B) { throughput(b, 500, 20*time.Millisecond, 2, 6) })
}

const clients = 3

func throughput(b *testing.B, jobs int, work time.Duration, without, limit int) {
	g := newGround(b)
	semaphores := &redis.Options{Network: "unix", Addr: b.TempDir() + "/redis", ContextTimeoutEnabled: true}
	serve(b, "redis-server", "--port", "0", "--unixsocket", semaphores.Addr, "--save", "")
	do := func(context.Context, *rivertype.JobRow) error { time.Sleep(work); return nil }
	// round is how long the jobs take.
	round := func(driver func(i int) riverdriver.Driver[pgx.Tx], config func(i int) *river.Config) time.Duration {
		_, err := g.pool.Exec(b.Context(), "TRUNCATE river_job")
		must(b, err)
		g.add(mail{}, jobs, nil)
		began := time.Now()
		var all []*river.Client[pgx.Tx]
		for i := range clients {
			client, err := river.NewClient(driver(i), config(i))
			must(b, err)
			must(b, client.Start(context.WithoutCancel(b.Context())))
			all = append(all, client)
		}
		until(b, "all jobs are done", func() bool { return g.count("state = 'completed'") >= jobs })
		took := time.Since(began)
		for _, client := range all {
			must(b, client.Stop(context.WithoutCancel(b.Context())))
		}
		return took
	}
	var drivers [clients]riverdriver.Driver[pgx.Tx]
	var limiters [clients]*semariver.Limiter
	for i := range clients {
		drivers[i] = riverpgxv5.New(g.newPool())
		rdb := redis.NewClient(semaphores)
		until(b, "the server answers", func() bool { return rdb.Ping(b.Context()).Err() == nil })
		engine, err := redisengine.New(rdb, nil)
		must(b, err)
		b.Cleanup(func() { _, _ = engine.Close(), rdb.Close() })
		sem := open(b, engine, "jobs", limit, &sema.Options{Caps: sema.Caps{limit}})
		limiters[i], err = semariver.New(semariver.Limit{Semaphore: sem})
		must(b, err)
	}
	var bare, limited time.Duration
	for b.Loop() {
		bare += round(func(i int) riverdriver.Driver[pgx.Tx] { return drivers[i] },
			func(int) *river.Config { return quick(without, do) })
		limited += round(func(i int) riverdriver.Driver[pgx.Tx] { return semariver.Driver(limiters[i], drivers[i]) },
			func(i int) *river.Config { return quick(10, do, limiters[i]) })
	}
	n := float64(b.N * jobs)
	b.ReportMetric(n/bare.Seconds(), "without/s")
	b.ReportMetric(n/limited.Seconds(), "with/s")
	b.ReportMetric(bare.Seconds()/limited.Seconds(), "with/without")
	b.ReportMetric(0, "ns/op")
}
