//go:build unix

package pgengine_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engines/pgengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
)

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
	return c
}

// start restarts the server. Processes of the previous run may prevent that for a moment.
func (s *server) start() {
	s.tb.Helper()
	expect.Until(s.tb, "a restarted server", func() bool { return s.Restart(expect.Within(s.tb)) == nil })
}
