package semaasynq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/contrib/asynq"
	"sema/each"
	"sema/engines/memengine"
	"sema/sematest"
)

// Three servers with ten workers each work on tasks of two types. No cap is exceeded, and each task
// is worked on.
func TestServers(t *testing.T) {
	server, e, c := startRedis(t), memengine.New(), newAtOnce()
	t.Cleanup(func() { must(t, e.Close()) })
	q := newQueue(t, server)
	const a, b, ofType, inAll = 120, 40, 2, 3
	q.add(t, "a", a)
	q.add(t, "b", b)
	for range 3 {
		sem := open(t, e, "tasks", inAll, &sema.Options{Caps: sema.Caps{ofType}})
		limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Wait: 200 * time.Millisecond, Back: 200 * time.Millisecond})
		must(t, err)
		start(t, server, limiter, quick(10), func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			c.work(task.Type(), id)
			return ctx.Err()
		})
	}
	q.allDone(t, "default", a+b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most["a"] > ofType || c.most["b"] > ofType || c.most[""] != inAll || len(c.done) != a+b {
		t.Errorf("%v at once, %d were worked on; want %d of a type and %d in all, and %d", c.most, len(c.done), ofType, inAll, a+b)
	}
}

// held is a group of which somebody else has the only permit of a key.
func held(t *testing.T, key string) (group *each.Group, release func()) {
	t.Helper()
	e := memengine.New()
	t.Cleanup(func() { must(t, e.Close()) })
	make := func() *each.Group {
		group, err := each.New(e, "tasks", 1, nil)
		must(t, err)
		t.Cleanup(func() { must(t, group.Close()) })
		return group
	}
	permit, err := make().Acquire(t.Context(), key)
	must(t, err)
	return make(), func() { must(t, permit.Release()) }
}

// While the cap of one type is reached, tasks of another one are worked on, and none
// of those that find no permit has failed, though each has one try.
func TestOneTypeDoesNotHoldUpAnother(t *testing.T) {
	server := startRedis(t)
	q := newQueue(t, server)
	group, release := held(t, "a")
	q.add(t, "a", 50, asynq.MaxRetry(1))
	q.add(t, "b", 10, asynq.MaxRetry(1))
	limiter, err := semaasynq.New(semaasynq.Limit{Group: group, Wait: 20 * time.Millisecond, Back: 20 * time.Millisecond})
	must(t, err)
	var b atomic.Int64
	start(t, server, limiter, quick(2), func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "b" {
			b.Add(1)
		}
		return nil
	})
	until(t, "b is done", func() bool { return b.Load() == 10 })
	release()
	q.allDone(t, "default", 60)
}

// If a tenant floods the queue and its cap is reached, the next tenant still gets the free permits.
func TestAFloodLeavesWorkersToOthers(t *testing.T) {
	const flood, others = 60, 20
	server, e := startRedis(t), memengine.New()
	t.Cleanup(func() { must(t, e.Close()) })
	sem := open(t, e, "tasks", 4, &sema.Options{Caps: sema.Caps{2}})
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem})
	must(t, err)
	q := newQueue(t, server)
	q.add(t, "a", flood)
	q.add(t, "b", others)
	done := make(chan string, flood+others)
	config := quick(10)
	config.DelayedTaskCheckInterval = 0 // as it is for most
	start(t, server, limiter, config, func(_ context.Context, task *asynq.Task) error {
		time.Sleep(100 * time.Millisecond)
		done <- task.Type()
		return nil
	})
	q.allDone(t, "default", flood+others)
	place := 1
	for <-done != "b" {
		place++
	}
	if place > 30 {
		t.Errorf("the first of the others was done as number %d of %d", place, flood+others)
	}
	t.Logf("the first of the others was done as number %d of %d", place, flood+others)
}

// Of a queue with one type nothing is taken while a task of it waits.
func TestQueueIsLeftAlone(t *testing.T) {
	t.Run("group", func(t *testing.T) {
		server := startRedis(t)
		group, release := held(t, "a")
		leftAlone(t, server, semaasynq.Limit{Group: group, Queues: map[string][]string{"as": {"a"}}}, release)
	})
	t.Run("semaphore", func(t *testing.T) {
		e := memengine.New()
		sem, err := sema.New(e, "tasks", 5, &sema.Options{Caps: sema.Caps{5, 1}})
		must(t, err)
		t.Cleanup(func() { _, _ = sem.Close(), e.Close() })
		permit, err := sem.Acquire(t.Context(), sema.For("acme", "a"))
		must(t, err)
		leftAlone(t, startRedis(t), semaasynq.Limit{
			Semaphore: sem, Key: func(_ context.Context, task *asynq.Task) []string { return []string{"acme", task.Type()} },
			Queues: map[string][]string{"as": {"acme", "a"}},
		}, func() { must(t, permit.Release()) })
	})
}

func leftAlone(t *testing.T, server *redis.Options, limit semaasynq.Limit, release func()) {
	q := newQueue(t, server)
	const a = 300
	q.add(t, "a", a, asynq.Queue("as"))
	limit.Wait = 100 * time.Millisecond
	limiter, err := semaasynq.New(limit)
	must(t, err)
	config := quick(2)
	config.Queues = map[string]int{"as": 1, "bs": 1}
	var waited, atOnce atomic.Int64
	config.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		if errors.Is(err, context.DeadlineExceeded) {
			waited.Add(1)
		} else {
			atOnce.Add(1)
		}
	})
	start(t, server, limiter, config, func(context.Context, *asynq.Task) error { return nil })
	q.add(t, "b", 10, asynq.Queue("bs"))
	until(t, "tasks of a have waited in vain", func() bool { return waited.Load() >= 5 })
	// One may be taken while another is on its way to its wait.
	if n := atOnce.Load(); n > a/4 {
		t.Errorf("%d of %d tasks were taken while another one waited; want few", n, a)
	}
	q.allDone(t, "bs", 10)
	release()
	q.allDone(t, "as", a)
}

// A task in its last try has nowhere to go back to: asynq would archive it.
func TestLastTryIsNotLost(t *testing.T) {
	server := startRedis(t)
	q := newQueue(t, server)
	group, release := held(t, "a")
	q.add(t, "a", 1, asynq.MaxRetry(0))
	q.add(t, "a", 10, asynq.MaxRetry(1))
	limiter, err := semaasynq.New(semaasynq.Limit{Group: group, Wait: 10 * time.Millisecond, Back: 10 * time.Millisecond})
	must(t, err)
	start(t, server, limiter, quick(2), func(context.Context, *asynq.Task) error { return nil })
	until(t, "a task has waited in vain", func() bool { return q.info(t, "default").Retry > 0 })
	release()
	q.allDone(t, "default", 11)
}

// The engine is away: tasks go back, and none has failed, nor one in its last try.
func TestOutage(t *testing.T) {
	server, e := startRedis(t), sematest.New(t)
	q := newQueue(t, server)
	sem := open(t, e, "tasks", 3, &sema.Options{Caps: sema.Caps{2}})
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Wait: 50 * time.Millisecond, Back: 50 * time.Millisecond})
	must(t, err)
	back := e.Inject(sematest.Fault{Err: sematest.Unreachable(), Times: sematest.Always})
	q.add(t, "a", 20)
	q.add(t, "b", 1, asynq.MaxRetry(0))
	start(t, server, limiter, quick(5), func(context.Context, *asynq.Task) error { return nil })
	until(t, "tasks go back", func() bool { return q.info(t, "default").Retry > 5 })
	back()
	q.allDone(t, "default", 21)
}

// A task whose permit is lost is cancelled, and tried again, though it returns what ends a task
// and has no tries left.
func TestLost(t *testing.T) {
	server := startRedis(t)
	q := newQueue(t, server)
	e := sematest.New(t)
	sem := open(t, e, "tasks", 1, nil)
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Back: time.Millisecond})
	must(t, err)
	for _, tries := range []int{0, 1} {
		q.add(t, fmt.Sprint("tries ", tries), 1, asynq.MaxRetry(tries))
	}
	calls := map[string]int{} // one at a time, by the semaphore
	start(t, server, limiter, quick(2), func(ctx context.Context, task *asynq.Task) error {
		calls[task.Type()]++
		if calls[task.Type()] == 1 {
			e.Lose("tasks")
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, sema.ErrLost) {
				t.Errorf("cause %v", cause)
			}
			return fmt.Errorf("given up: %w, %w", asynq.SkipRetry, asynq.RevokeTask) // whatever it returns
		}
		return nil
	})
	q.allDone(t, "default", 2)
	for kind, n := range calls {
		if n != 2 {
			t.Errorf("%s was called %d times; want 2", kind, n)
		}
	}
}

// What a config says of the handlers' own errors stays.
func TestConfigStays(t *testing.T) {
	server := startRedis(t)
	q := newQueue(t, server)
	sem := open(t, memengine.New(), "tasks", 1, nil)
	permit, err := sem.Acquire(t.Context())
	must(t, err)
	limiter, err := semaasynq.New(semaasynq.Limit{Semaphore: sem, Wait: time.Millisecond, Back: time.Millisecond})
	must(t, err)
	errBusy := errors.New("busy")
	var delays, handled, postponed atomic.Int64
	config := quick(1)
	config.IsFailure = func(err error) bool { return !errors.Is(err, errBusy) }
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { delays.Add(1); return 0 }
	config.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		if semaasynq.Postponed(err) {
			postponed.Add(1)
		} else {
			handled.Add(1)
		}
	})
	var calls atomic.Int64
	start(t, server, limiter, config, func(context.Context, *asynq.Task) error {
		if calls.Add(1) == 1 {
			return errBusy
		}
		return nil
	})
	q.add(t, "a", 1)
	until(t, "it was postponed", func() bool { return postponed.Load() > 0 })
	must(t, permit.Release())
	q.allDone(t, "default", 1)
	if d, h := delays.Load(), handled.Load(); d != 1 || h != 1 {
		t.Errorf("the config was asked for %d delays and told of %d errors; want 1 and 1", d, h)
	}
}

// Keys and weights may depend on the task, and on what asynq says of it.
func TestKeyAndWeight(t *testing.T) {
	server := startRedis(t)
	q := newQueue(t, server)
	e := sematest.New(t)
	group, err := each.New(e, "queues", 5, nil)
	must(t, err)
	t.Cleanup(func() { must(t, group.Close()) })
	limiter, err := semaasynq.New(semaasynq.Limit{
		Group: group,
		Key: func(ctx context.Context, _ *asynq.Task) []string {
			name, _ := asynq.GetQueueName(ctx)
			return []string{name, "alice"}
		},
		Weight: func(_ context.Context, task *asynq.Task) int { return len(task.Payload()) },
	})
	must(t, err)
	start(t, server, limiter, quick(1), func(context.Context, *asynq.Task) error {
		if held := e.Held("queues/default"); len(held) != 1 || held[0].Weight != 3 || held[0].Key != "alice" {
			t.Errorf("%v are held; want one of weight 3, of alice", held)
		}
		return nil
	})
	_, err = q.client.EnqueueContext(t.Context(), asynq.NewTask("a", []byte("xxx")))
	must(t, err)
	q.allDone(t, "default", 1)
	_, err = q.client.EnqueueContext(t.Context(), asynq.NewTask("a", []byte("too heavy")), asynq.MaxRetry(0))
	must(t, err)
	until(t, "what is too heavy has failed", func() bool { return q.info(t, "default").Archived == 1 })
}

func TestBadLimits(t *testing.T) {
	sem := open(t, memengine.New(), "tasks", 1, nil)
	for _, bad := range []semaasynq.Limit{
		{},
		{Semaphore: sem, Wait: -1},
	} {
		var argument *sema.ArgumentError
		if _, err := semaasynq.New(bad); !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "semaasynq: ") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
