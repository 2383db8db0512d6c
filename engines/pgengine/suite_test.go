//go:build unix

package pgengine_test

import (
	"context"
	"database/sql"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/pgengine"
	"sema/enginetest"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		_ = flag.Set("test.skip", "^Example") // the examples need a server
	}
	child.Role(stalledRole, stallInStep)
	enginetest.Main(m, func(address string) (sema.Engine, error) {
		o := &pgengine.Options{}
		if strings.Contains(address, pooled) {
			o = polling
		}
		pool, err := pgxpool.New(context.Background(), address)
		if err != nil {
			return nil, err
		}
		return pgengine.New(pool, o)
	})
}

// engineAt makes an engine with its own pool, as in another process.
func engineAt(tb testing.TB, address string, o *pgengine.Options) *pgengine.Engine {
	tb.Helper()
	config, err := pgxpool.ParseConfig(address)
	expect.OK(tb, err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	expect.OK(tb, err)
	e, err := pgengine.New(pool, o)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		pool.Close()
	})
	return e
}

func open(tb testing.TB) enginetest.Store {
	s := startServer(tb)
	return enginetest.Store{
		URL:    s.url(),
		Freeze: func() { expect.OK(tb, s.Freeze()) },
		Thaw:   func() { expect.OK(tb, s.Thaw()) },
		Client: func(tb testing.TB) sema.Engine { return engineAt(tb, s.url(), nil) },
	}
}

// openPooled puts a pooler in front of the server, so that clients cannot listen.
func openPooled(tb testing.TB) enginetest.Store {
	s := startServer(tb)
	pooler, err := local.PgBouncer(expect.Within(tb), s.Server)
	expect.OK(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { pooler.Keep(ctx, nil) }) // PgBouncer 1.18 sometimes exits when a client disconnects: "bad client state"
	tb.Cleanup(func() {
		cancel()
		keeping.Wait()
		pooler.Stop()
	})
	store := enginetest.Store{URL: pooler.Address, Client: func(tb testing.TB) sema.Engine { return engineAt(tb, pooler.Address, polling) }}
	if !strings.Contains(store.URL, pooled) {
		tb.Fatal(store.URL)
	}
	return store
}

var polling = &pgengine.Options{Poll: 50 * time.Millisecond}

// pooled is a part of a pooler's URL.
const pooled = "port=6432"

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, open)
}

func TestPromisesThroughPgBouncer(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, openPooled)
}

// TestPromisesThroughDatabaseSQL uses the pool of database/sql.
func TestPromisesThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		s := startServer(tb)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine {
			db, err := sql.Open("pgx", s.url())
			expect.OK(tb, err)
			db.SetMaxOpenConns(4)
			e, err := pgengine.NewSQL(db, nil)
			expect.OK(tb, err)
			tb.Cleanup(func() {
				_ = e.Close()
				_ = db.Close()
			})
			return e
		}}
	})
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, open(t), 4)
}

// Here a handed-over permit is unused for half a poll on average, so two faults take as long as
// four above.
func TestProcessesThroughPgBouncer(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, openPooled(t), 2)
}

func TestKeepers(t *testing.T) {
	t.Parallel()
	enginetest.RunKeepers(t, open(t))
}

// server is a PostgreSQL server for one test.
type server struct {
	*local.Server
	tb testing.TB
}

// startServer starts a server and creates the table.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a server")
	}
	one, err := local.Postgres(expect.Within(tb), append([]string{"-c", "max_connections=600"}, args...)...)
	expect.OK(tb, err)
	tb.Cleanup(one.Stop)
	s := &server{one, tb}
	pool, err := pgxpool.New(expect.Within(tb), s.url())
	expect.OK(tb, err)
	defer pool.Close()
	e, err := pgengine.New(pool, nil)
	expect.OK(tb, err)
	defer func() { _ = e.Close() }()
	expect.OK(tb, e.Migrate(expect.Within(tb)))
	return s
}

func (s *server) url() string { return s.Address }

func (s *server) connect() *pgx.Conn {
	s.tb.Helper()
	c, err := pgx.Connect(expect.Within(s.tb), s.url())
	expect.OK(s.tb, err)
	s.tb.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// lock locks the row of every semaphore until unlock is called.
func (s *server) lock() (unlock func()) {
	s.tb.Helper()
	c := s.connect()
	do := func(sql string) {
		_, err := c.Exec(expect.Within(s.tb), sql)
		expect.OK(s.tb, err)
	}
	do("BEGIN; SELECT FROM sema_state FOR UPDATE")
	return func() { do("ROLLBACK") }
}

// start restarts the server. Processes of the previous run may prevent that for a moment.
func (s *server) start() {
	s.tb.Helper()
	expect.Until(s.tb, "a restarted server", func() bool { return s.Restart(expect.Within(s.tb)) == nil })
}
