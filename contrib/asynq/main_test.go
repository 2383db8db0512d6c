package semaasynq_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/asynq"
	"sema/engines/redisengine"
	"sema/internal/fixture/atonce"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	child.Role("worker", work)
	child.Play()
	goleak.VerifyTestMain(redistest.Settled(m))
}

// worker is the job of a process.
type worker struct {
	Redis string
	Label string
	Sleep time.Duration // a task's work
}

// caps are the limits that all processes have: so many tasks of each type, and in
// all.
const ofType, inAll = 2, 3

// work works on tasks until its parent has no more orders.
func work(w worker) error {
	rdb := redis.NewClient(&redis.Options{Addr: w.Redis, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	engine, err := redisengine.New(rdb, nil)
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	sem, err := sema.New(engine, "tasks", inAll, &sema.Options{Caps: sema.Caps{ofType}, Lease: 5 * time.Second, Label: w.Label})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Wait: 200 * time.Millisecond, Back: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	handler := limiter.Middleware(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		atonce.Work(task.Type(), id, func() { time.Sleep(w.Sleep) })
		return ctx.Err()
	}))
	server := limiter.NewServer(rdb, quick(10))
	if err := server.Start(handler); err != nil {
		return err
	}
	defer server.Shutdown()
	fmt.Println("works")
	_, _ = child.Order()
	return nil
}

// quick is a config that looks for tasks often, and is silent.
func quick(workers int) asynq.Config {
	return asynq.Config{
		Concurrency:              workers,
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		LogLevel:                 asynq.FatalLevel,
		Logger:                   silent{},
	}
}

// silent logs nothing but what ends the process.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// queue is what a test has of asynq.
type queue struct {
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newQueue(tb testing.TB, server *redistest.Server) *queue {
	rdb := server.Client()
	return &queue{rdb, asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)}
}

// add adds tasks of a type.
func (q *queue) add(tb testing.TB, kind string, n int, options ...asynq.Option) {
	tb.Helper()
	for range n {
		_, err := q.client.EnqueueContext(tb.Context(), asynq.NewTask(kind, nil), options...)
		expect.OK(tb, err)
	}
}

// info is what asynq says of a queue.
func (q *queue) info(tb testing.TB, name string) *asynq.QueueInfo {
	tb.Helper()
	info, err := q.inspector.GetQueueInfo(name)
	expect.OK(tb, err)
	return info
}

// allDone waits until nothing is left of a queue, and wants no task to have failed
// or been archived.
func (q *queue) allDone(tb testing.TB, name string, n int) {
	tb.Helper()
	expect.Until(tb, fmt.Sprintf("%d tasks are done", n), func() bool { return q.info(tb, name).Processed >= n })
	if i := q.info(tb, name); i.Failed != 0 || i.Archived != 0 || i.Processed != n {
		tb.Errorf("%+v: want %d processed, none failed or archived", i, n)
	}
}

// client is a process's side of the tests that need one process only.
func client(tb testing.TB, server *redistest.Server, label string) *redisengine.Engine {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	engine, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		expect.OK(tb, engine.Close())
		expect.OK(tb, rdb.Close())
	})
	return engine
}

// start starts a server, which works on tasks until the test ends.
func start(tb testing.TB, server *redistest.Server, limiter *semaasynq.Limiter, config asynq.Config, work asynq.HandlerFunc) {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	s := limiter.NewServer(rdb, config)
	expect.OK(tb, s.Start(limiter.Middleware(work)))
	tb.Cleanup(func() {
		s.Shutdown()
		expect.OK(tb, rdb.Close())
	})
}
