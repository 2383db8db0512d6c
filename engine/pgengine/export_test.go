package pgengine

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engine/register"
)

// NewFlushing is New, with another way to wait for the disk.
func NewFlushing(pool *pgxpool.Pool, flush string) (*register.Engine, error) {
	s := &store{pool: pool, sql: statements("")}
	s.sql.flush = flush
	return register.New(&listener{s, nil}, nil)
}

// NewStore is the store of an engine.
func NewStore(pool *pgxpool.Pool, schema string) interface {
	register.Store
	register.Updater
} {
	return &store{pool: pool, sql: statements(schema)}
}
