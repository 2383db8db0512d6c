package pgengine

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"sema/engine/register"
)

// NewFlushing is New, with another way to wait for the disk.
func NewFlushing(pool *pgxpool.Pool, flush string) (*register.Engine, error) {
	s := &store{lend: lendFrom(pool), sql: statements("")}
	s.sql.flush = flush
	return register.New(s, nil)
}

// NewStore is the store of an engine.
func NewStore(pool *pgxpool.Pool, schema string) interface {
	register.Store
	register.Updater
} {
	return &store{lend: lendFrom(pool), sql: statements(schema)}
}
