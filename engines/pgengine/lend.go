package pgengine

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"sema/engine"
)

// lender calls f with a connection of a pool. It returns the error of f, or that of the
// pool if it has no connection.
type lender func(ctx context.Context, f func(*pgx.Conn) error) error

func lendFrom(pool *pgxpool.Pool) lender {
	return func(ctx context.Context, f func(*pgx.Conn) error) error {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		return f(c.Conn())
	}
}

// NewSQL is New for a program that uses database/sql with the driver of pgx:
// sql.Open("pgx", …), or package stdlib of pgx. The engine polls the semaphores on which it
// waits, unless Options.Listen is set.
func NewSQL(db *sql.DB, o *Options) (*Engine, error) {
	if db == nil {
		return nil, &engine.ArgumentError{Package: "pgengine", What: "db", Value: nil, Want: `a database, such as sql.Open("pgx", …) makes`}
	}
	return o.engine(func(ctx context.Context, f func(*pgx.Conn) error) error {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }() // back to the pool
		return c.Raw(func(driver any) error {
			own, ok := driver.(*stdlib.Conn)
			if !ok {
				return &engine.Error{Err: fmt.Errorf("the driver's connection is a %T", driver), Hint: `open the database with pgx: sql.Open("pgx", …)`}
			}
			return f(own.Conn())
		})
	}, nil)
}
