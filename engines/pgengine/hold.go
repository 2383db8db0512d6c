package pgengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sema"
	"sema/engines/register"
)

// Hold blocks all grants of a permit's semaphore until tx ends. So the writes of tx
// certainly happen while the permit is held; that depends on no process and no clock. If
// the permit is not held any more, the error is sema.ErrLost, or the one of Permit.Err:
// then roll tx back. The error sema.ErrEngine means that Hold could not check the permit.
//
// tx is a transaction in the engine's database, with isolation level READ COMMITTED,
// which is PostgreSQL's default. The transaction's user needs the same rights as the
// engine.
//
// Hold has a cost: until tx ends, every step of this semaphore waits, in all processes,
// renewals and releases too. So call Hold last, right before Commit. If tx then takes
// longer than a third of a lease, holders may lose their permits.
func (e *Engine) Hold(ctx context.Context, tx pgx.Tx, permit *sema.Permit) error {
	if err := permit.Err(); err != nil {
		return err
	}
	name, row := permit.Name(), register.Row{}
	err := tx.QueryRow(ctx, e.store.sql.hold, name).Scan(&row.Now, &row.Version, &row.At, &row.Data)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		failed := explain(err)
		failed.Op, failed.Name = "hold", name
		return failed
	}
	left, err := row.Lease(permit.ID())
	if err != nil {
		return err
	}
	if left <= 0 {
		return fmt.Errorf("pgengine: hold %q: permit %s is not held any more: %w", name, permit.ID(), sema.ErrLost)
	}
	return nil
}
