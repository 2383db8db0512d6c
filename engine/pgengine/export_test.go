package pgengine

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engine/register"
)

// NewFlushing is New, with another way to wait for the disk.
func NewFlushing(pool *pgxpool.Pool, flush string) (*register.Engine, error) {
	s := &store{lend: lendFrom(pool), sql: statements("")}
	s.sql.flush = flush
	return register.New(s, nil)
}

// Store is what an engine is made of.
type Store interface {
	register.Store
	register.Updater
}

// NewStore is the store of an engine.
func NewStore(pool *pgxpool.Pool, schema string) Store {
	return &store{lend: lendFrom(pool), sql: statements(schema)}
}

// NewStoreOn is one on a connection.
func NewStoreOn(c *pgx.Conn) Store {
	return &store{lend: func(_ context.Context, f func(*pgx.Conn) error) error { return f(c) }, sql: statements("")}
}

// Hint is what an error says to try.
func Hint(err error) string { return explain(err).Hint }
