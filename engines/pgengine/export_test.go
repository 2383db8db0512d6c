package pgengine

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engines/register"
)

// Limits are how long a step joins the queue, waits for one lock, and is idle with the row locked.
var Limits = limits

// NewFlushing is New with another statement to wait for the disk.
func NewFlushing(pool *pgxpool.Pool, flush string) (*register.Engine, error) {
	s := &store{lend: lendFrom(pool), sql: statements("")}
	s.sql.flush = flush
	return register.New(s, nil)
}

// Store has the methods of an engine's store.
type Store interface {
	register.Store
	register.Updater
}

// NewStore makes the store of an engine on a pool.
func NewStore(pool *pgxpool.Pool, schema string) Store {
	return &store{lend: lendFrom(pool), sql: statements(schema)}
}

// NewStoreOn makes the store of an engine on one connection.
func NewStoreOn(c *pgx.Conn) Store {
	return &store{lend: func(_ context.Context, f func(*pgx.Conn) error) error { return f(c) }, sql: statements("")}
}

// Hint is the hint for an error of PostgreSQL.
func Hint(err error) string { return explain(err).Hint }
