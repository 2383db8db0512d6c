package pgengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sema"
	"sema/engine/register"
)

// Hold has nobody be granted anything of a permit's semaphore until tx ends. So what tx writes
// is written while the permit is held, for certain: no process and no clock is trusted for that. If the permit
// is not held any more, the error is sema.ErrLost, or the one of Permit.Err; tx is then to be rolled back.
// A sema.ErrEngine says that this could not be found out.
//
// tx is a transaction in the engine's database, and READ COMMITTED, which is PostgreSQL's default. Its user needs the rights that the engine needs.
//
// The price: until tx ends, every step of this semaphore waits, in all processes, renewals and releases too. So call Hold
// last, right before Commit. What takes longer than a third of a lease may cost holders their permits.
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
