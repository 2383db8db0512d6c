package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// table has texts, each with the largest token under which it was written.
const table = `CREATE TABLE IF NOT EXISTS reports (name text PRIMARY KEY, text text NOT NULL, token bigint NOT NULL)`

var errFenced = errors.New("refused, for a newer holder was here")

// write stores a text under the token of a permit. It changes nothing, and fails with errFenced, if the row has a larger
// token. PostgreSQL compares and writes in one step: the row is locked meanwhile.
func write(ctx context.Context, db *pgxpool.Pool, name, text string, token int64) error {
	done, err := db.Exec(ctx, `
		INSERT INTO reports VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET text = $2, token = $3 WHERE reports.token <= $3`, name, text, token)
	if err == nil && done.RowsAffected() == 0 {
		return errFenced
	}
	return err
}

func read(ctx context.Context, db *pgxpool.Pool, name string) (text string, err error) {
	err = db.QueryRow(ctx, `SELECT text FROM reports WHERE name = $1`, name).Scan(&text)
	return text, err
}
