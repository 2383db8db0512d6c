package semaasynq_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/engines/redisengine"
)

// How many tasks a second three servers with ten workers each do, with a limiter
// beside without, in turns:
//
//	free   nothing waits: each task takes a permit of its type and one of the total.
//	       Beside that, the same servers without a limiter. The tasks do nothing.
//	kept   the same with sema.Options.Keep of 5 ms.
//	full   a task takes 5 ms, and 6 may run at once. Beside that, servers without a
//	       limiter that have 6 workers together.
func BenchmarkThroughput(b *testing.B) {
	b.Run("free", func(b *testing.B) { throughput(b, 2000, 0, 10, 30, 0) })
	b.Run("kept", func(b *testing.B) { throughput(b, 2000, 0, 10, 30, 5*time.Millisecond) })
	b.Run("full", func(b *testing.B) { throughput(b, 1000, 5*time.Millisecond, 2, 6, 0) })
}

const servers = 3

func throughput(b *testing.B, tasks int, work time.Duration, without, limit int, keep time.Duration) {
	server := startRedis(b)
	handle := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { time.Sleep(work); return nil })
	// round is how long the tasks take.
	round := func(start func(i int) *asynq.Server) time.Duration {
		q := newQueue(b, server)
		must(b, q.rdb.FlushAll(b.Context()).Err())
		q.add(b, "a", tasks)
		began := time.Now()
		var all []*asynq.Server
		for i := range servers {
			all = append(all, start(i))
		}
		until(b, "all tasks are done", func() bool { return q.info(b, "default").Processed >= tasks })
		took := time.Since(began)
		for _, s := range all {
			s.Shutdown()
		}
		return took
	}
	var clients [servers]redis.UniversalClient
	var limiters [servers]*semaasynq.Limiter
	for i := range servers {
		clients[i] = connect(b, server)
		engine, err := redisengine.New(connect(b, server), nil)
		must(b, err)
		b.Cleanup(func() { must(b, engine.Close()) })
		sem := open(b, engine, "tasks", limit, &sema.Options{Caps: sema.Caps{limit}, Keep: keep})
		limiters[i], err = semaasynq.New(semaasynq.Limit{Semaphore: sem})
		must(b, err)
	}
	var bare, limited time.Duration
	for b.Loop() {
		bare += round(func(i int) *asynq.Server {
			s := asynq.NewServerFromRedisClient(clients[i], quick(without))
			must(b, s.Start(handle))
			return s
		})
		limited += round(func(i int) *asynq.Server {
			s := limiters[i].NewServer(clients[i], quick(10))
			must(b, s.Start(limiters[i].Middleware(handle)))
			return s
		})
	}
	n := float64(b.N * tasks)
	b.ReportMetric(n/bare.Seconds(), "without/s")
	b.ReportMetric(n/limited.Seconds(), "with/s")
	b.ReportMetric(bare.Seconds()/limited.Seconds(), "with/without")
	b.ReportMetric(0, "ns/op")
}
