package semariver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/river"
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
func serve(tb testing.TB, words ...string) {
	tb.Helper()
	_, err := exec.LookPath(words[0])
	must(tb, err)
	cmd := exec.Command("sh", append([]string{"-c", `"$@" >&2 & read x; kill -INT $!; wait $!`, "sh"}, words...)...)
	input, err := cmd.StdinPipe()
	must(tb, err)
	must(tb, cmd.Start())
	tb.Cleanup(func() { _, _ = input.Close(), cmd.Wait() })
}

// startPostgres starts a server with an empty database, and says where it is.
func startPostgres(tb testing.TB) (url string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server")
	}
	dir, err := os.MkdirTemp("", "sema") // the path of a socket has to be short
	must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as []string // PostgreSQL refuses to be root
	if os.Getuid() == 0 {
		must(tb, os.Chmod(dir, 0o777))
		as = []string{"setpriv", "--reuid=nobody", "--clear-groups"}
	}
	// Debian has the programs outside of the path.
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	tb.Setenv("PATH", strings.Join(append(bins, os.Getenv("PATH")), ":"))
	words := append(as, "initdb", "-D", dir+"/data", "-U", "sema", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if said, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v: %s", words, err, said)
	}
	serve(tb, append(as, "postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200")...)
	url = "postgres://sema@/postgres?host=" + dir
	pool, err := pgxpool.New(tb.Context(), url)
	must(tb, err)
	defer pool.Close()
	until(tb, "the server answers", func() bool { return pool.Ping(tb.Context()) == nil })
	return url
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

// ground is what a test has of River.
type ground struct {
	tb       testing.TB
	postgres string
	pool     *pgxpool.Pool
	client   *river.Client[pgx.Tx] // inserts only
}

func newGround(tb testing.TB) *ground {
	tb.Helper()
	g := &ground{tb: tb, postgres: startPostgres(tb)}
	g.pool = g.newPool()
	migrator, err := rivermigrate.New(riverpgxv5.New(g.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	must(tb, err)
	_, err = migrator.Migrate(tb.Context(), rivermigrate.DirectionUp, nil)
	must(tb, err)
	g.client, err = river.NewClient(riverpgxv5.New(g.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	must(tb, err)
	return g
}

func (g *ground) newPool() *pgxpool.Pool {
	g.tb.Helper()
	pool, err := pgxpool.New(g.tb.Context(), g.postgres)
	must(g.tb, err)
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
	must(g.tb, err)
}

// count counts the jobs for which a condition holds.
func (g *ground) count(where string, args ...any) (n int) {
	g.tb.Helper()
	must(g.tb, g.pool.QueryRow(g.tb.Context(), "SELECT count(*) FROM river_job WHERE "+where, args...).Scan(&n))
	return n
}

// allDone waits until jobs are done, and wants each to have had one attempt.
func (g *ground) allDone(n int) {
	g.tb.Helper()
	until(g.tb, fmt.Sprintf("%d jobs are done", n), func() bool { return g.count("state = 'completed'") >= n })
	if f := g.count("state <> 'completed' OR attempt <> 1 OR array_length(errors, 1) > 0"); f != 0 {
		g.tb.Errorf("%d of %d jobs have failed, or had more than one attempt; want none", f, n)
	}
}

// start starts a client, which works on jobs until the test ends.
func (g *ground) start(limiter *semariver.Limiter, config *river.Config) {
	g.tb.Helper()
	client, err := river.NewClient(semariver.Driver(limiter, riverpgxv5.New(g.newPool())), config)
	must(g.tb, err)
	must(g.tb, client.Start(context.WithoutCancel(g.tb.Context())))
	g.tb.Cleanup(func() { must(g.tb, client.Stop(context.Background())) })
}

// connect is for what needs a pool, and no server.
func connect() *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1/jobs")
	if err != nil {
		panic(err)
	}
	return pool
}
