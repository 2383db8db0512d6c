package semaasynq_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/asynq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// open is a semaphore that is open until the test ends.
func open(tb testing.TB, e sema.Engine, name string, limit int, o *sema.Options) *sema.Semaphore {
	tb.Helper()
	s, err := sema.New(e, name, limit, o)
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
	return s
}

// patience bounds every wait of a test.
const patience = time.Minute

// until waits until something is so that no event tells.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			tb.Fatalf("%s: not so after %v", what, patience)
		}
	}
}

// serve runs a program until the test ends, or this process does: then its standard input ends.
func serve(tb testing.TB, program string, args ...string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server")
	}
	path, err := exec.LookPath(program)
	must(tb, err)
	cmd := exec.Command("sh", append([]string{"-c", `"$@" >&2 & read x; kill -INT $!; wait $!`, "sh", path}, args...)...)
	input, err := cmd.StdinPipe()
	must(tb, err)
	must(tb, cmd.Start())
	tb.Cleanup(func() { _, _ = input.Close(), cmd.Wait() })
}

// startRedis starts a server that keeps nothing, and says where it is.
func startRedis(tb testing.TB) *redis.Options {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sema") // the path of a socket has to be short
	must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := &redis.Options{Network: "unix", Addr: filepath.Join(dir, "redis"), ContextTimeoutEnabled: true}
	serve(tb, cmp.Or(os.Getenv("SEMA_REDIS_SERVER"), "redis-server"), "--port", "0", "--unixsocket", o.Addr, "--save", "", "--dir", dir)
	rdb := connect(tb, o)
	until(tb, "the server answers", func() bool { return rdb.Ping(tb.Context()).Err() == nil })
	return o
}

// connect connects to a server until the test ends.
func connect(tb testing.TB, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	tb.Cleanup(func() { must(tb, rdb.Close()) })
	return rdb
}

// atOnce counts what runs at once, of each kind and in all.
type atOnce struct {
	mu        sync.Mutex
	now, most map[string]int // by kind; "" is all
	done      map[string]bool
}

func newAtOnce() *atOnce {
	return &atOnce{now: map[string]int{}, most: map[string]int{}, done: map[string]bool{}}
}

// work works on a job for a while.
func (c *atOnce) work(kind, id string) {
	c.count(kind, 1)
	time.Sleep(5 * time.Millisecond)
	c.count(kind, -1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[id] = true
}

func (c *atOnce) count(kind string, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []string{kind, ""} {
		c.now[k] += more
		c.most[k] = max(c.most[k], c.now[k])
	}
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

func newQueue(tb testing.TB, server *redis.Options) *queue {
	rdb := connect(tb, server)
	return &queue{rdb, asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)}
}

// add adds tasks of a type.
func (q *queue) add(tb testing.TB, kind string, n int, options ...asynq.Option) {
	tb.Helper()
	for range n {
		_, err := q.client.EnqueueContext(tb.Context(), asynq.NewTask(kind, nil), options...)
		must(tb, err)
	}
}

// info is what asynq says of a queue.
func (q *queue) info(tb testing.TB, name string) *asynq.QueueInfo {
	tb.Helper()
	info, err := q.inspector.GetQueueInfo(name)
	must(tb, err)
	return info
}

// allDone waits until nothing is left of a queue, and wants no task to have failed
// or been archived.
func (q *queue) allDone(tb testing.TB, name string, n int) {
	tb.Helper()
	until(tb, fmt.Sprintf("%d tasks are done", n), func() bool { return q.info(tb, name).Processed >= n })
	if i := q.info(tb, name); i.Failed != 0 || i.Archived != 0 || i.Processed != n {
		tb.Errorf("%+v: want %d processed, none failed or archived", i, n)
	}
}

// start starts a server, which works on tasks until the test ends.
func start(tb testing.TB, server *redis.Options, limiter *semaasynq.Limiter, config asynq.Config, work asynq.HandlerFunc) {
	tb.Helper()
	s := limiter.NewServer(connect(tb, server), config)
	must(tb, s.Start(limiter.Middleware(work)))
	tb.Cleanup(s.Shutdown)
}
