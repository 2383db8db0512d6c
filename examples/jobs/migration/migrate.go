//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sema"
)

// step changes the database, once and for all. Its name is never used again.
type step struct{ name, sql string }

// fence lets a transaction commit only while a permit is held: Hold of the engine, if the semaphore is in the
// same database. nil: the token alone is judged.
type fence func(context.Context, pgx.Tx, *sema.Permit) error

// migrate carries out the steps that have not been, on one host at a time: every
// host calls it at every start. done is told of each step that this host did.
func migrate(ctx context.Context, sem *sema.Semaphore, database string, steps []step, f fence, done func(step)) error {
	permit, err := sem.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = permit.Release() }()
	ctx = permit.Context(ctx) // ends before another host can begin

	conn, err := connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, s := range steps {
		did, err := carryOut(ctx, conn, permit.Token(), s, func(tx pgx.Tx) error {
			if f == nil {
				return nil
			}
			return f(ctx, tx, permit)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, errors.Join(permit.Err(), err))
		}
		if did {
			done(s)
		}
	}
	return nil
}

// connect connects, and sees to the two tables that the migration itself needs:
// which steps are done, and the largest fencing token seen.
func connect(ctx context.Context, database string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS migration_steps (name text PRIMARY KEY);
		CREATE TABLE IF NOT EXISTS migration_fence (one bool PRIMARY KEY DEFAULT true CHECK (one), token bigint NOT NULL);
		INSERT INTO migration_fence (token) VALUES (0) ON CONFLICT DO NOTHING`)
	return conn, err
}

var errFenced = errors.New("the database refuses, for a newer holder was here")

// carryOut carries out a step in one transaction, unless it was done before.
//
// The permit's context may end too late: a statement was on its way already, the
// process stood still between two lines. So the database itself judges the token.
// The row stays locked until the transaction ends: no two are in a step at once. Last
// comes what has the transaction commit only while the permit is held.
func carryOut(ctx context.Context, conn *pgx.Conn, token int64, s step, last func(pgx.Tx) error) (did bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		let, err := tx.Exec(ctx, `UPDATE migration_fence SET token = $1 WHERE token <= $1`, token)
		if err != nil {
			return err
		}
		if let.RowsAffected() == 0 {
			return errFenced
		}
		first, err := tx.Exec(ctx, `INSERT INTO migration_steps VALUES ($1) ON CONFLICT DO NOTHING`, s.name)
		if err != nil || first.RowsAffected() == 0 {
			return err
		}
		did = true
		if _, err = tx.Exec(ctx, s.sql); err != nil {
			return err
		}
		return last(tx)
	})
	return did && err == nil, err
}
